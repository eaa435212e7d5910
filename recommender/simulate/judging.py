"""Rules of a dry run: when policies decide, how long a sample lasts, what counts as a violation or a kill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recommender.base.cycle import cycle_samples_on
from recommender.base.records import (
    MEMORY,
    VIOLATION_TOLERANCE,
    BoolArray,
    FloatArray,
    IntArray,
    RunTally,
    Tally,
    UsageSeries,
    amounts_of,
)
from recommender.kernels import tally as kernel


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Rules of a dry run."""

    cycle_s: float = 600.0  # how long an allocation holds; rounded to whole samples of each series, at least one
    cycle_samples: int | None = None  # the same in samples, on every grid; overrides `cycle_s`
    lag: int = 3  # history of a CRBM window; the first decision comes after lag + 1 samples

    @property
    def fewest_samples(self) -> int:
        """Samples a container needs to be judged: lag + 1 before the first decision and one after it."""
        return self.lag + 2

    def samples_per_cycle(self, step_s: float) -> int:
        """Number of grid cells in a cycle."""
        return cycle_samples_on(step_s, self.cycle_s, self.cycle_samples)


MemoryLimits = Literal["follow", "stay", "none"]


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """How a simulated cluster applies recommendations, and what a memory kill costs."""

    apply_delay_s: float = 0.0  # from the time that an allocation leaves its bounds until it is resized
    restart_s: float = 120.0  # duration of a restart
    checkpoint_every_s: float = math.inf  # age between checkpoints of a run; infinite: a kill loses all of it
    # Memory limit, above which use kills: it follows the request, stays as declared, or there is none.
    limits: MemoryLimits = "follow"
    recreates: bool = False  # whether a resize recreates the container, and so costs as much as a kill
    # Whether a new run is seen before it gets a node, and starts with the recommendation if that is less.
    resizes_waiting: bool = False


def fixed_limits(declared_bytes: FloatArray, limits: MemoryLimits) -> FloatArray:
    """Part of the memory limit below which use never kills, float64 (n,), from the declared limit, NaN without one.

    Where none is declared, none follows: the VPA scales limits and sets no new ones.
    """
    if limits == "none":
        return np.full(len(declared_bytes), np.inf)
    return np.where(np.isnan(declared_bytes), np.inf, 0.0 if limits == "follow" else declared_bytes)


def interval_s(series: UsageSeries) -> float:
    """The grid step; without a grid the median distance of samples (1 s for a single one)."""
    if series.step_s > 0:
        return series.step_s
    return float(np.median(np.diff(series.timestamps))) if len(series) > 1 else 1.0


def durations_s(series: UsageSeries) -> FloatArray:
    """float64 (n,): duration of each sample; without a grid the time to the next one, the median for the last."""
    if series.step_s > 0:
        return np.full(len(series), series.step_s)
    return np.append(np.diff(series.timestamps).astype(np.float64), interval_s(series))


def decision_positions(present: BoolArray, cycle_samples: int, lag: int) -> IntArray:
    """Positions at which a policy decides: after lag + 1 samples, then every cycle.

    `cycle_samples`: grid cells between decisions.

    Returns int64 (d,): increasing positions in 0..n-1, without those whose cycle has no sample. Empty for fewer than
    lag + 2 samples.

    >>> decision_positions(np.ones(12, bool), cycle_samples=4, lag=3)
    array([4, 8])
    """
    samples = np.flatnonzero(present)
    if len(samples) < lag + 2:
        return np.empty(0, np.int64)
    positions = np.arange(samples[lag] + 1, len(present), cycle_samples, dtype=np.int64)
    has_samples = np.searchsorted(samples, positions + cycle_samples) > np.searchsorted(samples, positions)
    return positions[has_samples]


def judge(usage: FloatArray, positions: IntArray, allocations: FloatArray, sample_s: FloatArray) -> Tally:
    """Compare a series with its allocations, from the first of them on.

    `usage`: float64 (n, 2), cores and bytes, NaN in gaps.
    `positions`, `allocations`: int64 (d,) increasing, d >= 1, and float64 (d, 2) cores and bytes; each holds until the
    next.
    `sample_s`: float64 (n,): duration of each sample.
    """
    sums, counts = np.empty(kernel.N_SUMS), np.empty(kernel.N_COUNTS, np.int64)
    kernel.tally_allocations(
        np.ascontiguousarray(usage), positions, np.ascontiguousarray(allocations), sample_s,
        VIOLATION_TOLERANCE, sums, counts,
    )  # fmt: skip

    return Tally(
        samples=int(counts[kernel.SAMPLES]),
        judged_s=float(sums[kernel.JUDGED_S]),
        used=amounts_of(sums[kernel.USED : kernel.USED + 2]),
        allocated=amounts_of(sums[kernel.ALLOCATED : kernel.ALLOCATED + 2]),
        slack=amounts_of(sums[kernel.SLACK : kernel.SLACK + 2]),
        shortage=amounts_of(sums[kernel.SHORTAGE : kernel.SHORTAGE + 2]),
        violations=(int(counts[kernel.VIOLATIONS]), int(counts[kernel.VIOLATIONS + 1])),
        oom_events=int(counts[kernel.OOM_EVENTS]),
        resizes=int(counts[kernel.RESIZES]),
    )


def judge_run(
    usage: FloatArray,
    declared: FloatArray,
    positions: IntArray,
    allocations: FloatArray,
    sample_s: FloatArray,
    rules: ClusterRules,
    limit_bytes: FloatArray | None = None,
    delay_samples: int = 0,
) -> RunTally:
    """Kills of a run under its allocations, and what they cost, from the first decision on.

    `usage`: float64 (n, 2), cores and bytes, NaN in gaps.
    `declared`: float64 (n, 2): in force until the first decision is.
    `positions`, `allocations`, `sample_s`: as for `judge`.
    `limit_bytes`: float64 (n,): the fixed memory limit; by default from the declared one, see `fixed_limits`.
    `delay_samples`: from a decision until it is in force.
    """
    n = len(usage)
    decided = np.searchsorted(positions + delay_samples, np.arange(n), side="right") - 1
    in_force = np.where(decided[:, np.newaxis] >= 0, allocations[np.maximum(decided, 0)], declared)
    fixed_bytes = fixed_limits(declared[:, MEMORY], rules.limits) if limit_bytes is None else limit_bytes
    figures = np.empty(kernel.N_FIGURES)
    first = int(positions[0])
    kernel.simulate_kills(
        np.ascontiguousarray(usage[:, MEMORY]), np.ascontiguousarray(in_force),
        fixed_bytes, sample_s, first, rules.restart_s, rules.checkpoint_every_s,
        rules.recreates, figures,
    )  # fmt: skip
    judged = np.arange(n) >= first
    judged &= ~np.isnan(usage[:, MEMORY])
    wanted = (declared[judged] * sample_s[judged, np.newaxis]).sum(axis=0)
    kills = int(figures[kernel.KILLS])
    reserved, lost = figures[kernel.RESERVED : kernel.RESERVED + 2], figures[kernel.LOST : kernel.LOST + 2]
    return RunTally(
        int(np.isfinite(fixed_bytes).any()),
        int(kills > 0),
        kills,
        *(amounts_of(amounts) for amounts in (wanted, reserved, lost)),
    )
