"""The cluster at one moment, as arrays over its nodes. Never changed once made: a call works on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from extender.kernels import fullness
from extender.pods.grid import Grid
from extender.view.names import AsCame, NameTable

Floats = NDArray[np.floating]
Integers = NDArray[np.intp]


@dataclass(slots=True, eq=False)  # not frozen: that makes it five times as slow to make, and one is made for every pod
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
    everywhere
        (n,): all places in their order.
    rank
        (n,) place of each node in the order of names, for ties.
    allocatable, requested, guessed
        (2, n): cpu_cores and memory_bytes. `requested` is what the scheduler counts; `guessed` is what of the load was
        neither learned nor asked for.
    per_unit, most_per_unit
        (2, n): 1 / allocatable; 0 where that is not known, so that nothing ever overloads what we do not know. And that
        of the smallest node, of CPU and memory each.
    load
        (2, cells, n): what the pods of each node will use, those just placed included.
    variance
        (first cells, n), cores squared: how uncertain what they use of CPU is; of no cell where nobody asks.
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
    everywhere: Integers
    rank: Integers
    allocatable: Floats
    per_unit: Floats
    most_per_unit: tuple[float, float]
    requested: Floats
    guessed: Floats
    load: Floats
    variance: Floats
    categories: Floats
    pods: Floats
    data: Mapping[str, Floats]
    _fullest: dict[int, tuple[float, float]] = field(default_factory=dict)

    def fullest(self, within_s: float) -> tuple[float, float]:
        """No node will be used to a larger share within so many seconds, of CPU and memory each."""
        cells = self.grid.cells_of(within_s)
        if cells not in self._fullest:
            self._fullest[cells] = fullness.fullest(self.load, self.per_unit, cells, self.everywhere)
        return self._fullest[cells]

    def follows(self, former: Snapshot, changed: Integers) -> None:
        """What is known of the nodes of another snapshot still bounds them, but for those that have changed since."""
        for cells, (cpu, memory) in former._fullest.copy().items():
            cpu_there, memory_there = fullness.fullest(self.load, self.per_unit, cells, changed)
            self._fullest[cells] = max(cpu, cpu_there), max(memory, memory_there)

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
