"""Demand of a container by the time since its start, in bounded memory however long it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recommender.base.records import CPU, FloatArray, IntArray
from recommender.base.slots import SlotArrays, fresh

POINTS = 240  # maximum number of buckets: an hour at 15 s; longer runs have wider ones


@dataclass(frozen=True, slots=True)
class DemandCurve:
    """Demand curve of one run, or of several combined."""

    step_s: float  # width of a bucket in seconds
    # float32 (n, 2), n up to `POINTS`: peak demand in each bucket since the start, cores and bytes; NaN without a
    # sample.
    levels: NDArray[np.float32]
    used_cores: float  # mean use

    @property
    def duration_s(self) -> float:
        """Length of the curve."""
        return self.step_s * len(self.levels)

    @property
    def used_core_s(self) -> float:
        """CPU time used in all of it."""
        return self.used_cores * self.duration_s

    def merged(self, buckets: int) -> DemandCurve:
        """The curve with so many buckets merged into one."""
        if buckets == 1:
            return self
        n = -(-len(self.levels) // buckets)
        levels = np.full((n * buckets, 2), np.nan, np.float32)
        levels[: len(self.levels)] = self.levels
        peaks = np.fmax.reduce(levels.reshape(n, buckets, 2), axis=1)
        return replace(self, step_s=self.step_s * buckets, levels=peaks)


class CurveRecorder(SlotArrays):
    """Demand curves of many live containers, on a grid of `step_s`, the smallest width of a bucket."""

    levels: NDArray[np.float32] = fresh(np.full((POINTS, 2), np.nan, np.float32))
    width: IntArray = fresh(1)
    length: IntArray = fresh(0)
    used_cores: FloatArray = fresh(0.0)
    samples: IntArray = fresh(0)

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self.step_s = step_s

    def observe(self, slots: IntArray, positions: IntArray, used: FloatArray) -> None:
        """Add a sample of each container; `slots`, int64 (m,), hold each at most once.

        `positions`: int64 (m,): steps of the grid since the container started.
        `used`: float64 (m, 2): cores and bytes.
        """
        buckets = self._buckets(slots, positions)
        self.levels[slots, buckets] = np.fmax(self.levels[slots, buckets], used)
        self.samples[slots] += 1
        self.used_cores[slots] += (used[:, CPU] - self.used_cores[slots]) / self.samples[slots]

    def raise_latest(self, slots: IntArray, positions: IntArray, used: FloatArray) -> None:
        """Raise the latest sample of each container, see `observe`; a slot may repeat."""
        np.fmax.at(self.levels, (slots, self._buckets(slots, positions)), used.astype(np.float32))

    def curve(self, slot: int) -> DemandCurve:
        """The curve of a container so far; a copy."""
        levels, used_cores = self.levels[slot, : self.length[slot]].copy(), float(self.used_cores[slot])
        return DemandCurve(float(self.step_s * self.width[slot]), levels, used_cores)

    def peaks(self) -> FloatArray:
        """float64 (slots, 2): peak demand of each container so far; NaN without a sample."""
        peaks: FloatArray = np.fmax.reduce(self.levels, axis=1).astype(np.float64)
        return peaks

    def restore(self, slot: int, curve: DemandCurve) -> None:
        """Continue a stored curve; one whose step does not fit the grid is ignored."""
        width = curve.step_s / self.step_s
        if width >= 1 and width == int(width) and len(curve.levels) <= POINTS:
            self.width[slot], self.length[slot] = int(width), len(curve.levels)
            self.levels[slot, : len(curve.levels)] = curve.levels
            self.samples[slot] = int(width) * np.count_nonzero(~np.isnan(curve.levels[:, CPU]))
            self.used_cores[slot] = curve.used_cores

    def _buckets(self, slots: IntArray, positions: IntArray) -> IntArray:
        """int64 (m,): buckets of these positions, which the curves then reach."""
        while (beyond := positions // self.width[slots] >= POINTS).any():
            self._widen(slots[beyond])
        buckets: IntArray = positions // self.width[slots]
        self.length[slots] = np.maximum(self.length[slots], buckets + 1)
        return buckets

    def _widen(self, slots: IntArray) -> None:
        """Merge pairs of buckets."""
        pairs = self.levels[slots].reshape(len(slots), POINTS // 2, 2, 2)
        self.levels[slots] = np.nan
        self.levels[slots, : POINTS // 2] = np.fmax(pairs[:, :, 0], pairs[:, :, 1])
        self.width[slots] *= 2
        self.length[slots] = (self.length[slots] + 1) // 2
