"""Immutable snapshots of the cluster as arrays over its nodes; each call works on one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.pods.curves import Grid
from extender.view.devices import Devices, Floats, Mix

Integers = NDArray[np.intp]


class NameTable:
    """Names of the nodes, shared by snapshots until a node is added or removed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names: Sequence[str] = tuple(names)  # not copied: kept decisions hold those of many tables
        # keys in contiguous memory make looking up thousands of names a third faster
        self.index: Mapping[str, int] = {name: n for n, name in enumerate(orjson.loads(orjson.dumps(self.names)))}
        self.everywhere = np.arange(len(self.names))  # (n,): all node indices, ascending
        # (n,): rank of each node by name, to break ties
        self.rank = np.empty(len(self.names), dtype=np.intp)
        self.rank[[self.index[name] for name in sorted(self.names)]] = self.everywhere
        self._latest: tuple[Sequence[str], tuple[Integers, list[str]]] | None = None

    def find(self, names: Sequence[str]) -> tuple[Integers, list[str]]:
        """(m,) indices of nodes, ascending, without duplicates (`everywhere` itself if all), and unknown names; cached,
        as `prioritize` usually gets the same list as `filter`."""
        latest = self._latest
        if latest is None or latest[0] is not names:
            latest = self._latest = (names, self._found(names))
        return latest[1]

    def _found(self, names: Sequence[str]) -> tuple[Integers, list[str]]:
        if len(names) == len(self.names) and not self.index.keys() - names:  # quicker than looking up each
            return self.everywhere, []
        try:
            found, unknown = np.fromiter(map(self.index.__getitem__, names), np.intp, len(names)), list[str]()
        except KeyError:
            unknown = [name for name in dict.fromkeys(names) if name not in self.index]
            found = np.array([self.index[name] for name in names if name in self.index], dtype=np.intp)
        asked = np.zeros(len(self.names), dtype=bool)
        asked[found] = True
        return (self.everywhere if asked.all() else np.flatnonzero(asked)), unknown


@dataclass(slots=True, eq=False)  # not frozen, which would make construction five times slower; one is made per pod
class Snapshot:
    """n nodes, with indices ("places") 0 to n - 1."""

    # grid, first_cell: the cells of `load`; the first is the present one
    grid: Grid
    first_cell: int
    table: NameTable  # the nodes by name
    # allocatable, requested, guessed: (2, n): cpu_cores and memory_bytes. `requested` is as counted by the scheduler;
    # `guessed` is the part of the load that is neither learned, requested nor measured
    allocatable: Floats
    sizes: Floats  # (n,): size of each node relative to the median one
    per_unit: Floats  # (2, n): 1 / allocatable; 0 if unknown, so that such nodes are never overloaded
    requested: Floats
    guessed: Floats
    load: Floats  # (2, cells, n): forecast use of the pods on each node, including those just advised
    variance: Floats  # (first cells, n), cores squared: variance of their CPU use; empty if no limit needs it
    later: Floats  # (`LATER`, n): largest forecast memory in each of the horizons after the present one, by the clock
    categories: Floats  # (3, n): number of training pods by category
    learned: Floats  # (n,): number of pods with learned demand
    data: Mapping[str, Floats]  # data set -> (n,) share of it stored on each node
    images: Mapping[str, Sequence[tuple[int, float]]]  # large image -> (place, bytes) of the nodes that store it
    # devices, mix: extended resources and GPUs of the nodes; the mix of GPU requests in the cluster, None without any
    devices: Devices
    mix: Mix | None
