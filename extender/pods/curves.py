"""What a container needs by the time since its pod started, on cells of unix time that are the same for all pods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from recommender.cluster.objects.requests import MOST_BYTES, MOST_CORES
from recommender.records import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class Grid:
    """How finely, and how far ahead, load is forecast.

    Attributes
    ----------
    step_s
        Length of a cell. Coarser than the recommender's samples: a placement is judged by minutes.
    cells
        Cells ahead, the present one included: an hour by default.
    """

    step_s: float = 150.0
    cells: int = 24

    def cell(self, unix_s: float) -> int:
        """The number of the cell a moment falls into.

        Examples
        --------
        >>> Grid().cell(0.0), Grid().cell(149.9), Grid().cell(150.0)
        (0, 0, 1)
        """
        return math.floor(unix_s / self.step_s)

    def cells_of(self, duration_s: float) -> int:
        """How many of the coming cells a duration covers, at least one, at most all."""
        return max(1, min(self.cells, math.ceil(duration_s / self.step_s)))


Floats = NDArray[np.float64]

VARIANCE_FACTOR = 0.5
"""How uncertain use is: half as much as that of a pod which is either at its peak or idle, and as often as its mean use
says. Runs of a class are alike in what they do, and not in when."""

MAX_CELLS = 4096
"""Cells of a curve; beyond them (a week of 150 s) the last value holds."""


class Curve:
    """Demand in cells since the start of the pod. Never changed once made.

    Attributes
    ----------
    values
        (2, length): mean cpu_cores and largest memory_bytes of each cell.
    ends
        The runs it was learned from had all ended by its end. Else the last value holds for ever after.
    """

    __slots__ = ("ends", "peak", "values")

    def __init__(self, values: Floats, *, ends: bool = False) -> None:
        self.values, self.ends = values, ends
        self.values.flags.writeable = False
        self.peak: Floats = values.max(axis=1)

    @property
    def length(self) -> int:
        """Cells."""
        return int(self.values.shape[1])

    @property
    def steady(self) -> bool:
        """The same at all times."""
        return self.length == 1 and not self.ends

    def over(self, first: int, cells: int) -> Floats:
        """(2, cells): the demand from cell `first` since the start on, of a pod that goes on for ever.

        Before the start that of the start counts.
        """
        length = self.length
        if first >= 0 and first + cells <= length:
            return self.values[:, first : first + cells]
        places = np.minimum(np.maximum(np.arange(first, first + cells), 0), length - 1)
        return self.values[:, places]

    def expected(self, first: int, cells: int) -> Floats:
        """(2, cells): the same of a pod that is expected to end as those before it did.

        Its memory is given up later, after half as long again: memory counted on too early kills.
        """
        demand = self.over(first, cells)
        if not self.ends or first + cells <= self.length:
            return demand
        demand = demand.copy()
        for resource, last in ((CPU, self.length), (MEMORY, self.length + self.length // 2)):
            demand[resource, max(0, last - first) :] = 0.0
        return demand

    def capped(self, cpu_cores: float, memory_bytes: float) -> Curve:
        """No more than these; NaN leaves a resource as it is."""
        if math.isnan(cpu_cores) and math.isnan(memory_bytes):
            return self
        return Curve(np.fmin(self.values, np.array([[cpu_cores], [memory_bytes]])), ends=self.ends)


def variance_of(cpu_cores: Floats, peak_cores: float) -> Floats:
    """(cells,), cores squared: how uncertain use is that is expected to be this, of a pod whose curve has this peak.

    None at the peak and none when nothing is used, so that what is asked for and never learned is certain.
    """
    return VARIANCE_FACTOR * cpu_cores * (peak_cores - cpu_cores)


@lru_cache(maxsize=16384)
def constant(cpu_cores: float, memory_bytes: float) -> Curve:
    """The same at all times."""
    return Curve(np.array([[cpu_cores], [memory_bytes]], dtype=np.float64))


def total(curves: Iterable[Curve]) -> Curve:
    """Several containers together; at least one. They end together, with the last one whose end is known."""
    parts = list(curves)
    if len(parts) == 1:
        return parts[0]
    length = max(part.length for part in parts)
    return Curve(np.sum([part.over(0, length) for part in parts], axis=0), ends=any(part.ends for part in parts))


def resampled(step_s: float, cpu_cores: Sequence[float], memory_bytes: Sequence[float], grid: Grid) -> Curve | None:
    """A demand curve of a profile on the grid; None where it says nothing that can be used.

    Parameters
    ----------
    step_s
        Seconds between its values.
    cpu_cores, memory_bytes
        One value a step since the start of the pod. CPU is averaged over a cell, of memory the most counts: what lasts
        a second does not slow a cell, but kills.
    """
    length = min(len(cpu_cores), len(memory_bytes))
    told = np.array([cpu_cores[:length], memory_bytes[:length]], dtype=np.float64)
    if not 0.0 < length * step_s < math.inf or not ((told >= 0.0) & (told <= [[MOST_CORES], [MOST_BYTES]])).all():
        return None
    edges = np.arange(length + 1) * step_s
    whole = max(1, math.ceil(edges[-1] / grid.step_s - 1e-9))
    cells = min(whole, MAX_CELLS)
    values = np.empty((2, cells))
    for cell in range(cells):
        begins, ends = cell * grid.step_s, (cell + 1) * grid.step_s
        shares = np.clip(np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins), 0.0, None)
        inside = shares > 0.0
        values[CPU, cell] = (told[CPU, inside] * shares[inside]).sum() / shares[inside].sum()
        values[MEMORY, cell] = told[MEMORY, inside].max()
    return Curve(values, ends=whole == cells)
