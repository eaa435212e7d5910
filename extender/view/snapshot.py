"""The cluster at one moment, as arrays over its nodes. Never changed once made: a call works on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.pods.curves import Grid
from extender.view.devices import Devices, Mix

Places = NDArray[np.intp]


class NameTable:
    """The nodes by name, shared by snapshots for as long as none comes or goes.

    Attributes
    ----------
    names, index
        Place -> name, and name -> place.
    everywhere
        (n,): all places in their order.
    rank
        (n,) place of each node in the order of names, for ties.
    """

    def __init__(self, names: Sequence[str]) -> None:
        # copied, so that the texts lie side by side: looking up thousands of them is a third faster
        self.names: Sequence[str] = tuple(orjson.loads(orjson.dumps(list(names))))
        self.index: Mapping[str, int] = {name: place for place, name in enumerate(self.names)}
        self.everywhere = np.arange(len(self.names))
        self.rank = np.empty(len(self.names), dtype=np.intp)
        self.rank[[self.index[name] for name in sorted(self.names)]] = self.everywhere
        self._latest: tuple[Sequence[str], tuple[Places, list[str]]] | None = None

    def find(self, names: Sequence[str]) -> tuple[Places, list[str]]:
        """(m,) the places of nodes, ascending, `everywhere` itself when these are all; and the names not known.

        Each name stands there once. `prioritize` mostly asks about the very list that `filter` was asked about.
        """
        latest = self._latest
        if latest is None or latest[0] is not names:
            latest = self._latest = (names, self._found(names))
        return latest[1]

    def _found(self, names: Sequence[str]) -> tuple[Places, list[str]]:
        try:
            found, unknown = np.fromiter(map(self.index.__getitem__, names), np.intp, len(names)), list[str]()
        except KeyError:
            unknown = [name for name in dict.fromkeys(names) if name not in self.index]
            found = np.array([self.index[name] for name in names if name in self.index], dtype=np.intp)
        asked = np.zeros(len(self.names), dtype=bool)
        asked[found] = True
        return (self.everywhere if asked.all() else np.flatnonzero(asked)), unknown


Floats = NDArray[np.floating]
Integers = NDArray[np.intp]


@dataclass(slots=True, eq=False)  # not frozen: that makes it five times as slow to make, and one is made for every pod
class Snapshot:
    """Places 0..n-1 stand for nodes.

    Attributes
    ----------
    grid, first_cell
        The cells of `load`; the first is the present one.
    table
        The nodes by name.
    allocatable, requested, guessed
        (2, n): cpu_cores and memory_bytes. `requested` is what the scheduler counts; `guessed` is what of the load was
        neither learned nor asked for.
    per_unit
        (2, n): 1 / allocatable; 0 where that is not known, so that nothing ever overloads what we do not know.
    load
        (2, cells, n): what the pods of each node will use, those just placed included.
    variance
        (first cells, n), cores squared: how uncertain what they use of CPU is; of no cell where nobody asks.
    categories
        (3, n): how many training pods of each category a node holds.
    learned
        (n,): how many pods of which a history is known a node holds.
    data
        Data set -> (n,) share of it that lies on each node.
    devices, mix
        Extended resources and GPUs of the nodes; what the cluster's pods ask for, None while none asks for GPUs.
    """

    grid: Grid
    first_cell: int
    table: NameTable
    allocatable: Floats
    per_unit: Floats
    requested: Floats
    guessed: Floats
    load: Floats
    variance: Floats
    categories: Floats
    learned: Floats
    data: Mapping[str, Floats]
    devices: Devices
    mix: Mix | None
