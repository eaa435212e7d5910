"""Arrays over nodes, updated incrementally with every pod."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extender.pods import footprint
from extender.pods.curves import LATER, Curve, Grid, variance_of
from extender.pods.footprint import Footprint
from extender.pods.pod import Node, Pod
from extender.view.devices import DemandMix, DeviceTable, Floats
from extender.view.snapshot import NameTable, Snapshot
from recommender.base.records import CPU, MEMORY
from recommender.cluster.objects.quantities import Pair

REQUESTED, GUESSED, CATEGORIES, LEARNED, ROWS = slice(0, 2), slice(2, 4), slice(4, 7), 7, 8
"""Rows of `_counts`: requests and guesses (CPU and memory each), pods by category, and pods with learned demand."""

COUNTED = attrgetter(
    "node", "start_cell", "category", "overdue",
    *(f"pod.{name}" for name in ("namespace", "workload", "job", "requests", "extended", "gpu")),
)  # fmt: skip
NO_CATEGORY = -1
INITIAL_PLACES = 64
HORIZONS_KEPT = 2
"""Load of a node is kept for so many horizons from its `base` on, so that its pods are summed up once per horizon."""


@dataclass(slots=True, eq=False)  # not frozen, for the same reason as `Snapshot`
class Entry:
    pod: Pod
    node: str
    footprint: Footprint
    start_cell: int
    category: int  # index in `CATEGORIES`, or `NO_CATEGORY`
    # whether it has outlived all runs that its curve was learned from; the last value of the curve then holds
    overdue: bool = False

    def counts_as(self, other: Entry) -> bool:
        """Whether both contribute the same to all sums."""
        return self.footprint is other.footprint and COUNTED(self) == COUNTED(other)

    def use(self, first_cell: int, cells: int) -> Floats:
        """(2, cells): use from `first_cell` on; (2, 1) if it is constant."""
        curve = self.footprint.curve
        return curve.values if curve.steady else _use(curve, first_cell - self.start_cell, cells, self.overdue)

    def later(self, horizon: int, cells: int) -> Floats:
        """(`LATER` + 1,): largest memory in that horizon of so many cells since the epoch, and in those after it."""
        curve = self.footprint.curve
        return _later(curve, 0 if curve.steady else horizon * cells - self.start_cell, cells, self.overdue)

    def frees(self, first_cell: int, cells: int) -> NDArray[np.float64]:
        """(3, cells + `LATER`): what its eviction frees in the coming cells and, of memory, later; in cores and bytes,
        without guesses, which refuse no pod; and the variance of its CPU use."""
        curve, passed = self.footprint.curve, first_cell % cells
        first = 0 if curve.steady else first_cell - self.start_cell
        return _freed(curve, self.footprint.guessed, first, 0 if curve.steady else passed, cells, self.overdue)

    @property
    def counts(self) -> NDArray[np.float64]:
        """(8,): its contribution to the counts of its node."""
        categories, learned = (self.category == each for each in range(3)), self.footprint.source in footprint.LEARNED
        return np.array([*self.pod.requests, *self.footprint.guessed, *categories, learned], dtype=np.float64)


@lru_cache(maxsize=4096)
def _use(curve: Curve, first: int, cells: int, overdue: bool) -> NDArray[np.float64]:
    """(2, cells): use from cell `first` of a pod's age on; cached, as most pods belong to a few jobs."""
    return np.array((curve.over if overdue else curve.expected)(first, cells), order="C")


@lru_cache(maxsize=4096)
def _freed(curve: Curve, guessed: Pair, first: int, passed: int, cells: int, overdue: bool) -> NDArray[np.float64]:
    """`passed`: cells of the present horizon."""
    use, freed = _use(curve, first, cells, overdue), np.zeros((3, cells + LATER))
    freed[:2, :cells] = use - np.array(guessed)[:, None]
    freed[2, :cells] = variance_of(use[CPU], curve.peak[CPU])
    freed[MEMORY, cells:] = _later(curve, first + cells - passed, cells, overdue)[:LATER] - guessed[MEMORY]
    return freed


@lru_cache(maxsize=4096)
def _later(curve: Curve, first: int, cells: int, overdue: bool) -> Floats:
    return curve.later_memory(first, cells, overdue=overdue)


class NodeTable:
    """Nodes with contiguous indices ("places"), and sums over their pods. Not thread-safe.

    Sums are kept in double precision by adding and subtracting the same numbers; the remaining rounding error is a few
    bytes and disappears when they are renewed: for each node once per horizon, and at any time for a few nodes only.

    `variance_cells`: number of coming cells for which snapshots hold the variance of CPU use; 0 for none.
    """

    def __init__(self, grid: Grid, variance_cells: int = 0) -> None:
        self.grid, self._variance_cells = grid, variance_cells
        self.index: dict[str, int] = {}
        self.mix = DemandMix()
        self._nodes: list[Node] = []
        self._allocatable = np.full((2, INITIAL_PLACES), np.nan)
        self._devices = DeviceTable(INITIAL_PLACES)
        kept = HORIZONS_KEPT * grid.cells
        self._bases = np.zeros(INITIAL_PLACES, dtype=np.int64)
        self._load = np.zeros((2, kept, INITIAL_PLACES))
        self._counts = np.zeros((ROWS, INITIAL_PLACES))
        self._variance = np.zeros((kept if variance_cells else 0, INITIAL_PLACES))
        self._later = np.zeros((LATER + 1, INITIAL_PLACES))  # memory from the horizon after that of the base on
        self._dirty: set[int] = set()
        self._names = NameTable(())
        self._invalidate()

    def _invalidate(self) -> None:
        self._largest: Pair | None = None
        # parts of the snapshot that are shared until a node is added, changed or removed
        self._static: dict[str, Any] | None = None
        self._latest: Snapshot | None = None

    @property
    def largest(self) -> Pair:
        """Largest cpu_cores and largest memory_bytes of any node; infinite if unknown."""
        if self._largest is None:
            cpu_cores, memory_bytes = np.fmax.reduce(self._allocatable, axis=1).tolist()
            sized = not (math.isnan(cpu_cores) or math.isnan(memory_bytes))
            self._largest = (cpu_cores, memory_bytes) if sized else (math.inf, math.inf)
        return self._largest

    def node(self, name: str) -> Node | None:
        place = self.index.get(name)
        return None if place is None else self._nodes[place]

    def put_node(self, node: Node) -> bool:
        """Add or update a node; True if it offers a new resource, for which no pod has been counted yet."""
        place = self.index.get(node.name)
        if place is not None and self._nodes[place] == node:
            return False  # a heartbeat
        if place is None:
            place = self.index[node.name] = len(self._nodes)
            self._nodes.append(node)
            if place >= len(self._bases):
                self._grow()
        self._nodes[place] = node
        self._allocatable[:, place] = node.allocatable
        self._invalidate()
        return self._devices.put_node(place, node.extended, node.gpus)

    def _grow(self) -> None:
        more = max(INITIAL_PLACES, len(self._bases) // 4)
        self._allocatable = np.pad(self._allocatable, ((0, 0), (0, more)), constant_values=np.nan)
        self._bases, self._counts = np.pad(self._bases, (0, more)), np.pad(self._counts, ((0, 0), (0, more)))
        self._load = np.pad(self._load, ((0, 0), (0, 0), (0, more)))
        self._variance, self._later = (np.pad(each, ((0, 0), (0, more))) for each in (self._variance, self._later))
        self._devices.grow(len(self._bases))

    @property
    def _sums(self) -> tuple[Floats, ...]:
        return self._load, self._counts, self._variance, self._later

    def drop_node(self, name: str) -> None:
        """Remove a node with its sums; the last node takes its index."""
        if (place := self.index.pop(name, None)) is None:
            return
        last = len(self._nodes) - 1
        mover = self._nodes.pop()
        if place != last:
            self._nodes[place], self.index[mover.name] = mover, place
        for numbers in (self._allocatable, self._bases, *self._sums):
            numbers[..., place] = numbers[..., last]
        self._devices.move(place, last)
        self._allocatable[:, last] = np.nan
        for numbers in self._sums:
            numbers[..., last] = 0.0
        self._invalidate()

    def outdated(self, cell: int) -> list[str]:
        """The nodes whose sums do not cover the horizon from `cell` on: time has passed, or the clock was set."""
        if self._latest is not None and self._latest.first_cell == cell:
            return []  # no node has come or changed since
        bases = self._bases[: len(self._nodes)]
        outside = (cell < bases) | (cell > bases + (HORIZONS_KEPT - 1) * self.grid.cells)
        return [self._nodes[place].name for place in np.flatnonzero(outside).tolist()]

    def renew(self, name: str, cell: int, entries: Sequence[Entry]) -> None:
        """Sum up all pods of a node from a new base on, at most a horizon before `cell`. Bases are spread over the
        cells of a horizon, so that few nodes are outdated at a time."""
        place = self.index[name]
        self._bases[place] = cell - (cell - place) % self.grid.cells
        for sums in self._sums:
            sums[..., place] = 0.0
        self._devices.clear(place)
        self._dirty.add(place)
        for entry in entries:
            self.count(place, entry, 1)

    def count(self, place: int, entry: Entry, sign: int) -> None:
        """Add a pod to its node (`sign` 1), or take it away (-1)."""
        self._dirty.add(place)
        self._devices.count(place, entry.pod.uid, entry.pod.extended, entry.pod.gpu, sign)
        base, cells = int(self._bases[place]), self.grid.cells
        use = entry.use(base, self._load.shape[1])
        self._later[:, place] += sign * entry.later(base // cells + 1, cells)
        self._load[:, :, place] += sign * use
        self._counts[:, place] += sign * entry.counts
        if self._variance_cells:
            self._variance[:, place] += sign * variance_of(use[CPU], entry.footprint.curve.peak[CPU])

    def snapshot(self, cell: int) -> Snapshot:
        """A snapshot of the present state, from `cell` on; no node may be outdated."""
        if self._static is None:
            self._static = self._build_static()
        nodes, latest, horizon = len(self._nodes), self._latest, cell // self.grid.cells
        few = 2 * len(self._dirty) < nodes  # usually one or two; most of them after a change of a large class
        if latest is not None and latest.first_cell == cell and few:
            load, variance, later = latest.load.copy(), latest.variance.copy(), latest.later.copy()
            for place in self._dirty:
                base = int(self._bases[place])
                first, next_horizon = cell - base, horizon - base // self.grid.cells
                later[:, place] = self._later[next_horizon : next_horizon + LATER, place]
                load[:, :, place] = self._load[:, first : first + self.grid.cells, place]
                if self._variance_cells:
                    variance[:, place] = self._variance[first : first + self._variance_cells, place]
        else:
            coming, places = cell - self._bases[:nodes] + np.arange(self.grid.cells)[:, None], np.arange(nodes)
            load = self._load[:, coming, places].astype(np.float32, order="C")
            variance = self._variance[coming[: self._variance_cells], places].astype(np.float32, order="C")
            horizons = horizon - self._bases[:nodes] // self.grid.cells + np.arange(LATER)[:, None]
            later = self._later[horizons, places].astype(np.float32, order="C")
        counts = self._counts[:, :nodes].copy()
        self._dirty.clear()
        self._latest = Snapshot(
            grid=self.grid,
            first_cell=cell,
            requested=counts[REQUESTED],
            guessed=counts[GUESSED],
            load=load,
            variance=variance,
            later=later,
            categories=counts[CATEGORIES],
            learned=counts[LEARNED],
            devices=self._devices.snapshot(nodes),
            mix=self.mix.mix(),
            **self._static,
        )
        return self._latest

    def _build_static(self) -> dict[str, Any]:
        nodes = len(self._nodes)
        data: dict[str, Floats] = {}
        images: dict[str, list[tuple[int, float]]] = {}
        for place, node in enumerate(self._nodes):
            for data_set, share in node.data.items():
                data.setdefault(data_set, np.zeros(nodes))[place] = share
            for name, size in node.images.items():
                images.setdefault(name, []).append((place, size))
        allocatable = self._allocatable[:, :nodes].copy()
        known = np.isfinite(allocatable) & (allocatable > 0)
        per_unit = np.divide(1.0, allocatable, out=np.zeros((2, nodes), dtype=np.float32), where=known)
        names = tuple(node.name for node in self._nodes)
        if names != self._names.names:
            self._names = NameTable(names)
        sizes = _sizes(allocatable, known)
        return {
            "table": self._names,
            "allocatable": allocatable,
            "per_unit": per_unit,
            "sizes": sizes,
            "data": data,
            "images": images,
        }


def _sizes(allocatable: Floats, known: NDArray[np.bool_]) -> Floats:
    """(n,): size of each node relative to the median one, by the scarcer of CPU and memory; 1 if unknown. In steps of a
    tenth: nodes of one type differ a little, which must not decide between them."""
    ratios = np.full(allocatable.shape, np.inf)
    for ratio, amounts, there in zip(ratios, allocatable, known, strict=True):
        if there.any():
            ratio[there] = amounts[there] / np.median(amounts[there])
    scarcer = np.minimum(*ratios)
    steps: Floats = 1.1 ** np.rint(np.log(np.where(np.isfinite(scarcer), scarcer, 1.0)) / math.log(1.1))
    return steps
