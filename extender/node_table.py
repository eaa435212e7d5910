"""The arrays over nodes that are kept up to date with every pod that comes and goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from extender.footprint import Footprint
from extender.grid import Grid
from extender.pod import Node, Pair, Pod
from extender.snapshot import Floats, Snapshot

NO_CATEGORY = -1
SPAN = 2
"""Load is kept for so many horizons from `base` on: only once in a horizon everything is added up anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A pod on a node, seen there or advised to go there; `category` is its place in `CATEGORIES`, or none."""

    pod: Pod
    node: str
    footprint: Footprint
    start_cell: int
    category: int

    def use(self, first_cell: int, cells: int) -> Floats:
        """(2, cells): what it uses from `first_cell` on; one column that stands for all where that is steady."""
        curve = self.footprint.curve
        return curve.values if curve.steady else curve.over(first_cell - self.start_cell, cells)


class NodeTable:
    """A place for each node, and sums over its pods. Not safe for several threads by itself.

    Sums are kept in double precision, by adding and taking away the very same numbers; what rounding leaves behind is a
    few bytes, and goes with the next adding up.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid, self.base = grid, 0
        self.index: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._free: list[int] = []
        self._allocate(64)
        self._forget_order()

    def _allocate(self, places: int) -> None:
        self._names = [""] * places
        self._allocatable = np.full((2, places), np.nan)
        self._clear(places)
        self._free = list(range(places - 1, -1, -1))

    def _clear(self, places: int) -> None:
        self._requested, self._guessed = np.zeros((2, places)), np.zeros((2, places))
        self._load = np.zeros((2, SPAN * self.grid.cells, places))
        self._categories, self._pods = np.zeros((3, places)), np.zeros(places)

    def _forget_order(self) -> None:
        self._largest: Pair | None = None
        self._order: tuple[dict[str, int], tuple[str, ...], np.ndarray, dict[str, Floats]] | None = None

    # -- nodes -----------------------------------------------------------------------------------------------------

    @property
    def largest(self) -> Pair:
        """(cpu_cores, memory_bytes) of the largest node, each by itself; infinite while no node's size is known."""
        if self._largest is None:
            cpu_cores, memory_bytes = np.fmax.reduce(self._allocatable, axis=1).tolist()
            sized = not (math.isnan(cpu_cores) or math.isnan(memory_bytes))
            self._largest = (cpu_cores, memory_bytes) if sized else (math.inf, math.inf)
        return self._largest

    def put_node(self, node: Node) -> bool:
        """Take in a node; True when the pods on all nodes must be added anew, since the arrays have grown."""
        grown = False
        if node.name not in self.index:
            if not self._free:
                self._grow()
                grown = True
            place = self._free.pop()
            self.index[node.name], self._names[place] = place, node.name
        self._nodes[node.name] = node
        self._allocatable[:, self.index[node.name]] = node.allocatable
        self._forget_order()
        return grown

    def _grow(self) -> None:
        nodes = list(self._nodes.values())
        self.index.clear()
        self._nodes.clear()
        self._allocate(2 * len(self._names))
        for node in nodes:
            self.put_node(node)

    def drop_node(self, name: str) -> None:
        """Forget a node and what was on it."""
        if (place := self.index.pop(name, None)) is None:
            return
        del self._nodes[name]
        self._names[place] = ""
        self._allocatable[:, place] = np.nan
        for sums in (self._requested, self._guessed, self._load, self._categories, self._pods):
            sums[..., place] = 0.0
        self._free.append(place)
        self._forget_order()

    # -- pods ------------------------------------------------------------------------------------------------------

    def out_of_sight(self, cell: int) -> bool:
        """Whether the hour from `cell` on is not wholly kept: time went on, or a clock was set."""
        return not self.base <= cell <= self.base + (SPAN - 1) * self.grid.cells

    def restart(self, cell: int) -> None:
        """Begin anew at a cell, with nothing on any node."""
        self.base = cell
        self._clear(len(self._names))

    def count(self, place: int, entry: Entry, sign: int) -> None:
        """Add a pod to its node (`sign` 1), or take it away (-1)."""
        self._load[:, :, place] += sign * entry.use(self.base, SPAN * self.grid.cells)
        self._requested[:, place] += sign * np.asarray(entry.pod.requests)
        self._guessed[:, place] += sign * np.asarray(entry.footprint.guessed)
        self._pods[place] += sign
        if entry.category != NO_CATEGORY:
            self._categories[entry.category, place] += sign

    def count_all(self, place: int, entries: Sequence[Entry]) -> None:
        """Add many pods to one node; several times faster than one by one."""
        if not entries:
            return
        steady, load = np.zeros((2, 1)), np.zeros((2, SPAN * self.grid.cells))
        for entry in entries:
            if entry.footprint.curve.steady:
                steady += entry.footprint.curve.values
            else:
                load += entry.use(self.base, SPAN * self.grid.cells)
            if entry.category != NO_CATEGORY:
                self._categories[entry.category, place] += 1
        self._load[:, :, place] += load + steady
        self._requested[:, place] += np.sum([entry.pod.requests for entry in entries], axis=0)
        self._guessed[:, place] += np.sum([entry.footprint.guessed for entry in entries], axis=0)
        self._pods[place] += len(entries)

    # -- what others see -------------------------------------------------------------------------------------------

    def snapshot(self, cell: int, now_s: float) -> Snapshot:
        """Everything as it is now; the caller has seen to it that `cell` is kept."""
        if self._order is None:
            self._order = self._ordered()
        index, names, rank, data = self._order
        from_base = cell - self.base
        return Snapshot(
            grid=self.grid,
            first_cell=cell,
            taken_s=now_s,
            index=index,
            names=names,
            rank=rank,
            allocatable=self._allocatable.copy(),
            requested=self._requested.copy(),
            guessed=self._guessed.copy(),
            load=self._load[:, from_base : from_base + self.grid.cells].astype(np.float32),
            categories=self._categories.copy(),
            pods=self._pods.copy(),
            data=MappingProxyType(data),
        )

    def _ordered(self) -> tuple[dict[str, int], tuple[str, ...], np.ndarray, dict[str, Floats]]:
        rank = np.zeros(len(self._names), dtype=np.intp)
        for number, name in enumerate(sorted(self.index)):
            rank[self.index[name]] = number
        data: dict[str, Floats] = {}
        for name, node in self._nodes.items():
            for data_set, share in node.data.items():
                data.setdefault(data_set, np.zeros(len(self._names)))[self.index[name]] = share
        return self.index.copy(), tuple(self._names), rank, data
