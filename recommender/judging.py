"""The rules by which a dry run judges: where policies decide, how long a sample stands, what counts against them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recommender.errors import Misuse
from recommender.kernels import tally as kernel
from recommender.records import (
    VIOLATION_TOLERANCE,
    FloatArray,
    IntArray,
    Tally,
    UsageSeries,
)

ROUNDING = 1e-12
"""Relative excess that counts as equal: far above what float64 products are off by, far below any measurement."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Rules of a dry run.

    Attributes
    ----------
    cycle_s
        How long an allocation holds. Each series makes whole samples of it, at least one.
    cycle_samples
        The same in samples, on every grid; goes before `cycle_s`.
    lag
        Samples a CRBM window looks back; the first decision comes after lag + 1 samples.
    violation_tolerance
        A sample violates when its use is above allocation x this.

    Raises
    ------
    Misuse
        A cycle that holds nothing.
    """

    cycle_s: float = 600.0
    cycle_samples: int | None = None
    lag: int = 3
    violation_tolerance: float = VIOLATION_TOLERANCE

    def __post_init__(self) -> None:
        if self.cycle_samples is not None and self.cycle_samples < 1:
            raise Misuse(f"a cycle of {self.cycle_samples} samples holds nothing. Give at least 1.")
        if not self.cycle_s > 0:
            raise Misuse(f"a cycle of {self.cycle_s:g} seconds holds nothing. Give a duration such as 10m.")

    @property
    def fewest_samples(self) -> int:
        """Samples a container must have to be judged: lag + 1 before the first decision and one after it."""
        return self.lag + 2

    def samples_per_cycle(self, step_s: float) -> int:
        """Grid cells of one cycle."""
        if self.cycle_samples is not None:
            return self.cycle_samples
        return max(1, round(self.cycle_s / step_s))


def interval_s(series: UsageSeries) -> float:
    """The grid step, or the median distance of samples taken as they come (1 s when there is but one)."""
    if series.step_s > 0:
        return series.step_s
    return float(np.median(np.diff(series.timestamps))) if len(series) > 1 else 1.0


def durations_s(series: UsageSeries) -> FloatArray:
    """float64 (n,): how long each sample stands for; without a grid the time to the next one, the median at the end."""
    if series.step_s > 0:
        return np.full(len(series), series.step_s)
    return np.append(np.diff(series.timestamps).astype(np.float64), interval_s(series))


def judge(
    usage: FloatArray, positions: IntArray, allocations: FloatArray, lasting_s: FloatArray, tolerance: float
) -> Tally:
    """What allocations did to a series from the first of them on.

    Parameters
    ----------
    usage
        float64 (n, 2), cores and bytes, NaN in gaps.
    positions, allocations
        int64 (d,) increasing, d >= 1, and float64 (d, 2) cores and bytes; each holds up to the next.
    lasting_s
        float64 (n,): how long each sample stands for.
    tolerance
        A sample violates when its use is above allocation x this.
    """
    sums, counts = np.empty(kernel.N_SUMS), np.empty(kernel.N_COUNTS, np.int64)
    kernel.tally_allocations(
        np.ascontiguousarray(usage), positions, np.ascontiguousarray(allocations), lasting_s,
        tolerance, ROUNDING, sums, counts,
    )  # fmt: skip

    def pair(place: int) -> tuple[float, float]:
        return float(sums[place]), float(sums[place + 1])

    return Tally(
        samples=int(counts[kernel.SAMPLES]),
        judged_s=float(sums[kernel.JUDGED_S]),
        used=pair(kernel.USED),
        allocated=pair(kernel.ALLOCATED),
        slack=pair(kernel.SLACK),
        shortage=pair(kernel.SHORTAGE),
        violations=(int(counts[kernel.VIOLATIONS]), int(counts[kernel.VIOLATIONS + 1])),
        oom_events=int(counts[kernel.OOM_EVENTS]),
        resizes=int(counts[kernel.RESIZES]),
    )
