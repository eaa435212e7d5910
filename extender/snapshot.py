"""The cluster at one moment, as arrays over its nodes. Never changed once made: a call works on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from extender.grid import Grid

Floats = NDArray[np.floating]
Integers = NDArray[np.intp]


@dataclass(frozen=True)
class Snapshot:
    """Places 0..n-1 stand for nodes; some may be empty.

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
    rank
        (n,) place of each node in the order of names, for ties.
    allocatable, requested, guessed
        (2, n): cpu_cores and memory_bytes. `requested` is what the scheduler counts; `guessed` is what of the load was
        neither learned nor asked for.
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
    rank: Integers
    allocatable: Floats
    requested: Floats
    guessed: Floats
    load: Floats
    categories: Floats
    pods: Floats
    data: Mapping[str, Floats]

    @cached_property
    def per_unit(self) -> Floats:
        """(2, n): 1 / allocatable; 0 where that is not known, so that nothing ever overloads what we do not know."""
        known = np.isfinite(self.allocatable) & (self.allocatable > 0)
        return np.divide(1.0, self.allocatable, out=np.zeros_like(self.allocatable), where=known)

    def places(self, names: Sequence[str]) -> Integers:
        """(m,): the place of each name, -1 of nodes not known."""
        index = self.index
        try:
            return np.array([*map(index.__getitem__, names)], dtype=np.intp)
        except KeyError:
            return np.array([index.get(name, -1) for name in names], dtype=np.intp)
