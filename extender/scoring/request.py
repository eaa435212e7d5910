"""The input of scorers (a pod and candidate nodes on one snapshot) and their output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.pods.curves import LATER, Curve
from extender.pods.footprint import LEARNED, Footprint
from extender.pods.pod import Pod
from extender.view.devices import Floats
from extender.view.snapshot import Integers, Snapshot

Number = TypeVar("Number", bound=np.generic)
ROUNDING_TOLERANCE = 1e-4  # a pod that fits exactly must fit, in spite of single precision sums over some hundred pods


@lru_cache(maxsize=4096)
def _expected_demand(curve: Curve, cells: int) -> Floats:
    """(2, cells): expected demand from the start on; cached, as pods of one job share a curve."""
    return np.ascontiguousarray(curve.expected(0, cells), dtype=np.float32)


@lru_cache(maxsize=4096)
def _later_demand(curve: Curve, cells: int, passed: int) -> Floats:
    """(`LATER`,): memory after the horizon, by windows of `Snapshot.later`; `passed`: cells of the present one."""
    return curve.later_memory(cells - passed, cells, cells)[:LATER]


@dataclass(eq=False)  # not frozen, which would make construction several times slower
class PlacementRequest:
    """A pod and m candidate nodes. Treated as immutable."""

    pod: Pod
    footprint: Footprint
    snapshot: Snapshot
    places: Integers  # (m,): indices of the nodes in the snapshot
    peers: Mapping[str, int]  # node -> number of pods of the same job there
    waited_s: float = 0.0  # how long the pod has been refused by every node
    # names of nodes -> (cells + `LATER`, nodes): memory forecast there, of other namespaces up to what they declared
    memory_beside: Callable[[Sequence[str]], Floats] | None = None

    def __post_init__(self) -> None:
        """Select (2, cells, m) `load`, (first cells, m) `variance` and (2, m) `per_unit`, see `Snapshot`; (2, cells)
        `demand` is the expected use of the pod if it starts now."""
        snapshot = self.snapshot
        self.demand = _expected_demand(self.footprint.curve, snapshot.grid.cells)
        self.load, self.variance = self.at_nodes(snapshot.load), self.at_nodes(snapshot.variance)
        self.per_unit = self.at_nodes(snapshot.per_unit)

    @property
    def later_demand(self) -> Floats:
        """(`LATER`,): largest memory of the pod in the windows of `Snapshot.later`."""
        cells = self.snapshot.grid.cells
        return _later_demand(self.footprint.curve, cells, self.snapshot.first_cell % cells)

    @property
    def learned(self) -> bool:
        """Whether demand was learned for the pod or for any pod on these nodes."""
        return self.footprint.source in LEARNED or bool(self.at_nodes(self.snapshot.learned).any())

    @property
    def peers_on(self) -> Floats:
        """(m,): number of pods of the same job on each node."""
        counts, index = np.zeros(len(self.snapshot.table.names)), self.snapshot.table.index
        for node, number in self.peers.items():
            if node in index:
                counts[index[node]] = number
        return counts[self.places]

    def at_nodes(self, of_nodes: NDArray[Number]) -> NDArray[Number]:
        """Select the candidate nodes: (..., n) -> (..., m); no copy if these are all nodes."""
        if self.places is self.snapshot.table.everywhere:
            return of_nodes
        return of_nodes.take(self.places, axis=-1)


Facts = Mapping[str, float]


class NodeScores(NamedTuple):
    """The result of one scorer for m nodes."""

    values: Floats  # (m,): from 0, the worst possible, to 1, the best
    facts: Mapping[str, Floats]  # name -> (m,): quantities behind the values, for `Scorer.explain`

    def packed(self) -> NodeScores:
        """In single precision, which is enough to show: half the memory of thousands of decisions."""
        facts = {fact: amounts.astype(np.float32) for fact, amounts in self.facts.items()}
        return NodeScores(self.values.astype(np.float32), facts)


class Scorer(NamedTuple):
    """One criterion: `score` is None if it does not apply to the pod, `explain` says why a node got its value."""

    score: Callable[[PlacementRequest], NodeScores | None]
    explain: Callable[[Facts], str]
