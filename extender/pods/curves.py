"""Demand curves: what a container uses by the time since its pod started, on a grid of unix time shared by all pods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from recommender.base.records import CPU, MEMORY
from recommender.cluster.objects.requests import MAX_BYTES, MAX_CORES


@dataclass(frozen=True, slots=True)
class Grid:
    """Resolution and horizon of load forecasts."""

    step_s: float = 150.0  # length of a cell; coarser than the recommender's samples, as minutes suffice for placement
    cells: int = 24  # number of cells ahead, including the present one; an hour by default

    def cell(self, unix_s: float) -> int:
        """The number of the cell that contains a time.

        >>> Grid().cell(0.0), Grid().cell(149.9), Grid().cell(150.0)
        (0, 0, 1)
        """
        return math.floor(unix_s / self.step_s)

    def cells_of(self, duration_s: float) -> int:
        """How many of the coming cells a duration covers: at least one, at most all."""
        return max(1, min(self.cells, math.ceil(duration_s / self.step_s)))


Floats = NDArray[np.float64]

VARIANCE_FACTOR = 0.5
"""Variance of CPU use, relative to that of a pod which is either idle or at its peak, with the same mean: runs of a
class do the same things, but not at the same times."""

LATER = 8
"""Windows after the horizon, each as long, in which memory is told apart. So far ahead runs differ by more than
minutes: peaks in one window count as simultaneous."""

MAX_CELLS = 4096  # longest curve; beyond it (a week of 150 s cells) the last value holds


class Curve:
    """Demand by cell since the start of the pod. Immutable.

    `values` (2, length) are the mean cpu_cores and largest memory_bytes of each cell. `ends`: all runs it was learned
    from had ended by its end; otherwise the last value holds from then on.
    """

    __slots__ = ("ends", "peak", "values")

    def __init__(self, values: Floats, *, ends: bool = False) -> None:
        self.values, self.ends = values, ends
        self.values.flags.writeable = False
        self.peak: Floats = values.max(axis=1)

    @property
    def length(self) -> int:
        return int(self.values.shape[1])

    @property
    def steady(self) -> bool:
        return self.length == 1 and not self.ends

    def ended(self, age: int) -> bool:
        """Whether all runs it was learned from had ended at this age, in cells."""
        return self.ends and age >= self.length

    def over(self, first: int, cells: int) -> Floats:
        """(2, cells): demand from cell `first` on of a pod that never ends; before the start, the first value."""
        length = self.length
        if first >= 0 and first + cells <= length:
            return self.values[:, first : first + cells]
        indices = np.minimum(np.maximum(np.arange(first, first + cells), 0), length - 1)
        return self.values[:, indices]

    def expected(self, first: int, cells: int) -> Floats:
        """(2, cells): demand from cell `first` on of a pod that is expected to end as earlier runs did. Its memory
        counts half as long again."""
        demand = self.over(first, cells)
        if not self.ends or first + cells <= self.length:
            return demand
        demand = demand.copy()
        for resource, last in ((CPU, self.length), (MEMORY, self._memory_length)):
            demand[resource, max(0, last - first) :] = 0.0
        return demand

    def later_memory(self, first: int, cells: int, begin: int = 0, *, overdue: bool = False) -> Floats:
        """(`LATER` + 1,): largest memory expected in windows of so many cells. The first one starts at cell `first` of
        the pod's age, but not before `begin`; the last two have no end."""
        starts = [first + number * cells for number in range(LATER + 1)]
        ends = [*starts[1:LATER], math.inf, math.inf]
        last = math.inf if overdue or not self.ends else self._memory_length
        return np.array([self._most_memory(max(a, begin), min(b, last)) for a, b in zip(starts, ends, strict=True)])

    def _most_memory(self, first: int, end: float) -> float:
        if first >= end:
            return 0.0
        begin = min(max(first, 0), self.length - 1)
        return float(self.values[MEMORY, begin : max(begin + 1, int(min(end, self.length)))].max())

    @property
    def _memory_length(self) -> int:
        """When its memory no longer counts: memory that is assumed free too early leads to kills."""
        return self.length + self.length // 2

    def capped(self, cpu_cores: float, memory_bytes: float) -> Curve:
        """The curve limited to these amounts; NaN for no limit."""
        if math.isnan(cpu_cores) and math.isnan(memory_bytes):
            return self
        return Curve(np.fmin(self.values, np.array([[cpu_cores], [memory_bytes]])), ends=self.ends)


def variance_of(cpu_cores: Floats, peak_cores: float) -> Floats:
    """(cells,), cores squared: variance of the CPU use of a pod with this expected use and peak; 0 at the peak and when
    idle, so also for a constant demand taken from requests."""
    return VARIANCE_FACTOR * cpu_cores * (peak_cores - cpu_cores)


@lru_cache(maxsize=16384)
def constant(cpu_cores: float, memory_bytes: float) -> Curve:
    return Curve(np.array([[cpu_cores], [memory_bytes]], dtype=np.float64))


def total(curves: Iterable[Curve]) -> Curve:
    """The sum of one or more containers; it ends with the longest curve if any of them ends."""
    parts = list(curves)
    if len(parts) == 1:
        return parts[0]
    length = max(part.length for part in parts)
    return Curve(np.sum([part.over(0, length) for part in parts], axis=0), ends=any(part.ends for part in parts))


def resampled(step_s: float, cpu_cores: Sequence[float], memory_bytes: Sequence[float], grid: Grid) -> Curve | None:
    """A demand curve of a PhaseProfile, with one value per step since the start of the pod, on the grid; None if it is
    unusable. CPU is averaged over a cell; of memory the maximum counts, as even a short shortage kills."""
    length = min(len(cpu_cores), len(memory_bytes))
    demand = np.array([cpu_cores[:length], memory_bytes[:length]], dtype=np.float64)
    if not 0.0 < length * step_s < math.inf or not ((demand >= 0.0) & (demand <= [[MAX_CORES], [MAX_BYTES]])).all():
        return None
    edges = np.arange(length + 1) * step_s
    whole = max(1, math.ceil(edges[-1] / grid.step_s - 1e-9))
    cells = min(whole, MAX_CELLS)
    bounds = np.arange(cells + 1) * grid.step_s
    points = np.union1d(edges, bounds)
    points = points[points <= min(edges[-1], bounds[-1])]
    step, cell = (np.searchsorted(each, points[:-1], side="right") - 1 for each in (edges, bounds))  # between points
    seconds, (cpu, memory) = np.diff(points), demand[:, step]
    mean_cpu = np.bincount(cell, cpu * seconds) / np.bincount(cell, seconds)
    most_memory = np.maximum.reduceat(memory, np.searchsorted(cell, np.arange(cells)))
    return Curve(np.stack([mean_cpu, most_memory]), ends=whole == cells)
