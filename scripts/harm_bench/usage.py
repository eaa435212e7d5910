"""What containers use: cores and bytes as functions of a run's age and the time of day."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harm_bench.simulated.pods import Use
from recommender.records import Amounts

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
NOISE_STEP_S = 15.0
NOISE_LENGTH = 4093
REPLICA_STRIDE = 977
"""Replicas hear the same noise at other times; both are prime, so that they never meet."""


def steady(cpu_cores: float, memory_bytes: float) -> Use:
    """The same all the time.

    Examples
    --------
    >>> steady(0.3, 2**20)(5.0, 0.0, 0)
    (0.3, 1048576)
    """
    return lambda age_s, now_s, replica: (cpu_cores, memory_bytes)


def periodic(low: Amounts, high: Amounts, period_s: float, busy_share: float = 0.5) -> Use:
    """`high` at the beginning of each period of the clock, `low` for the rest of it."""
    return lambda age_s, now_s, replica: high if now_s % period_s < busy_share * period_s else low


def wave(low: Amounts, high: Amounts, period_s: float) -> Use:
    """A sine between two amounts; `low` at the beginning of each period of the clock."""

    def use(_age_s: float, now_s: float, _replica: int) -> Amounts:
        share = 0.5 - 0.5 * math.cos(2.0 * math.pi * now_s / period_s)
        return low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1])

    return use


def phases(parts: Sequence[tuple[float, Amounts]]) -> Use:
    """One after the other from the start of the run, each for its seconds; the last one stays.

    Examples
    --------
    >>> start = phases([(60.0, (1.0, 4e9)), (math.inf, (0.5, 5e8))])
    >>> start(59.0, 0.0, 0), start(60.0, 0.0, 0)
    ((1.0, 4000000000.0), (0.5, 500000000.0))
    """

    def use(age_s: float, _now_s: float, _replica: int) -> Amounts:
        for lasts_s, amounts in parts:
            if age_s < lasts_s:
                return amounts
            age_s -= lasts_s
        return parts[-1][1]

    return use


def leak(cpu_cores: float, at_start_bytes: float, bytes_per_hour: float) -> Use:
    """Memory that is never given back before the end of the run."""
    return lambda age_s, now_s, replica: (cpu_cores, at_start_bytes + bytes_per_hour * age_s / HOUR_S)


def step(before: Amounts, after: Amounts, at_s: float) -> Use:
    """Another load from a moment of the clock on."""
    return lambda age_s, now_s, replica: after if now_s >= at_s else before


def spikes(base: Amounts, spike: Amounts, every_s: float, lasts_s: float) -> Use:
    """Now and then, at the same time in all replicas, much more."""
    return lambda age_s, now_s, replica: spike if now_s % every_s < lasts_s else base


def noisy(use: Use, share: float, seed: int) -> Use:
    """Another use with noise around it: normal, `share` of the amount wide, cut at three times that."""
    numbers = np.random.default_rng(seed).normal(0.0, share, (NOISE_LENGTH, 2)).clip(-3.0 * share, 3.0 * share)
    factors: list[list[float]] = (1.0 + numbers).tolist()

    def with_noise(age_s: float, now_s: float, replica: int) -> Amounts:
        cpu_cores, memory_bytes = use(age_s, now_s, replica)
        cpu, memory = factors[(int(now_s // NOISE_STEP_S) + REPLICA_STRIDE * replica) % NOISE_LENGTH]
        return cpu_cores * cpu, memory_bytes * memory

    return with_noise
