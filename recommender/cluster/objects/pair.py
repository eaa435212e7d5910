"""Amounts of cpu and memory side by side, as resource maps have them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from recommender.cluster.objects.reading import Fields

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes), NaN where absent. The one `math.nan` is used, so that equal pairs compare equal."""

NOTHING: Pair = (math.nan, math.nan)


def read_pair(resources: Fields) -> Pair:
    """cpu and memory of a resource map; NaN where absent."""
    cpu, memory = resources.quantity("cpu"), resources.quantity("memory")
    return _pair(math.nan if cpu is None else cpu, math.nan if memory is None else memory)


def pair_of(amounts: Mapping[str, float]) -> Pair:
    """cpu and memory of amounts by resource; 0 where absent."""
    return _pair(amounts.get("cpu", 0.0), amounts.get("memory", 0.0))


@lru_cache(maxsize=4096)
def _pair(cpu_cores: float, memory_bytes: float) -> Pair:
    """Thousands of containers ask for the same; one pair serves them all."""
    return cpu_cores, memory_bytes
