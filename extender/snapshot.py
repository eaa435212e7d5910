"""The cluster at one moment, as arrays over its nodes. Never changed once made: a call works on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from extender.grid import Grid
from extender.kernels import fullness
from extender.names import AsCame, NameTable

Floats = NDArray[np.floating]
Integers = NDArray[np.intp]


@dataclass(frozen=True)
class Snapshot:
    """Places 0..n-1 stand for nodes.

    Attributes
    ----------
    grid, first_cell
        The cells of `load`; the first is the present one.
    taken_s
        Unix seconds.
    index
        Node name -> place.
    names
        Place -> node name.
    table
        The same for names as they came.
    rank
        (n,) place of each node in the order of names, for ties.
    allocatable, requested, guessed
        (2, n): cpu_cores and memory_bytes. `requested` is what the scheduler counts; `guessed` is what of the load was
        neither learned nor asked for.
    per_unit
        (2, n): 1 / allocatable; 0 where that is not known, so that nothing ever overloads what we do not know.
    load
        (2, cells, n): what the pods of each node will use, those just placed included.
    categories
        (3, n): how many training pods of each category a node holds.
    pods
        (n,): how many pods a node holds.
    data
        Data set -> (n,) share of it that lies on each node.
    """

    grid: Grid
    first_cell: int
    taken_s: float
    index: Mapping[str, int]
    names: Sequence[str]
    table: NameTable
    rank: Integers
    allocatable: Floats
    per_unit: Floats
    requested: Floats
    guessed: Floats
    load: Floats
    categories: Floats
    pods: Floats
    data: Mapping[str, Floats]

    @cached_property
    def everywhere(self) -> Integers:
        """(n,): all places in their order."""
        return np.arange(len(self.names))

    @cached_property
    def most_per_unit(self) -> Sequence[float]:
        """`per_unit` of the smallest node, of CPU and memory each."""
        return tuple(self.per_unit.max(axis=1, initial=0.0).tolist())

    @cached_property
    def _fullest(self) -> dict[int, Sequence[float]]:
        return {}

    def fullest(self, within_s: float) -> Sequence[float]:
        """The largest share of any node that will be used within so many seconds, of CPU and memory each."""
        cells = self.grid.cells_of(within_s)
        if cells not in self._fullest:
            shares = np.empty(self.per_unit.shape, dtype=np.float32)
            nothing = np.zeros((2, cells), dtype=np.float32)
            fullness.highest(self.load, nothing, self.per_unit.astype(np.float32), cells, shares)
            self._fullest[cells] = tuple(shares.max(axis=1, initial=0.0).tolist())
        return self._fullest[cells]

    def find(self, names: Sequence[str]) -> tuple[Integers, list[str]]:
        """The places of nodes, each once and ascending; and the names that are not known, each once.

        `everywhere` itself when these are all nodes.
        """
        if isinstance(names, AsCame) and (places := self.table.find(names)) is not None:
            return (self.everywhere if len(places) == len(self.names) else places), []
        index, unknown = self.index, []
        try:
            found = [*map(index.__getitem__, names)]
        except KeyError:
            unknown = list(dict.fromkeys(name for name in names if name not in index))
            found = [index[name] for name in names if name in index]
        once = set(found)
        return (self.everywhere if len(once) == len(self.names) else np.array(sorted(once), dtype=np.intp)), unknown
