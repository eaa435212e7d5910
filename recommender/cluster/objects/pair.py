"""Pairs of CPU and memory amounts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from recommender.cluster.objects.reading import Fields
from recommender.records import or_nan

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes), NaN where absent. Always `math.nan` itself, so that equal pairs compare equal."""

NOTHING: Pair = (math.nan, math.nan)


def read_pair(resources: Fields) -> Pair:
    """CPU and memory of a resource map; NaN where absent."""
    return _pair(or_nan(resources.quantity("cpu")), or_nan(resources.quantity("memory")))


def pair_of(amounts: Mapping[str, float]) -> Pair:
    """CPU and memory of amounts by resource; 0 where absent."""
    return _pair(amounts.get("cpu", 0.0), amounts.get("memory", 0.0))


def without_zeros(pair: Pair) -> Pair:
    """The pair with NaN for amounts of 0."""
    cpu_cores, memory_bytes = (math.nan if amount == 0.0 else amount for amount in pair)
    return _pair(cpu_cores, memory_bytes)


@lru_cache(maxsize=4096)
def _pair(cpu_cores: float, memory_bytes: float) -> Pair:
    """Cached, since thousands of containers have equal requests."""
    return cpu_cores, memory_bytes
