"""What the scorers judge: this pod, on these nodes, at this moment; and what they say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.pods.curves import Curve, variance_of
from extender.pods.footprint import LEARNED, Footprint
from extender.pods.pod import Pod
from extender.view.snapshot import Floats, Integers, Snapshot
from recommender.records import CPU

Number = TypeVar("Number", bound=np.generic)


@lru_cache(maxsize=4096)
def _expected_demand(curve: Curve, cells: int) -> Floats:
    """(2, cells): what is expected from the start on. Pods of one job share a curve."""
    return np.ascontiguousarray(curve.expected(0, cells), dtype=np.float32)


@dataclass(eq=False)  # not frozen: that makes it several times as slow to make
class PlacementRequest:
    """A pod and m nodes. Never changed once made.

    Attributes
    ----------
    places
        (m,): the nodes' places in the snapshot, all known.
    peers
        Place -> how many pods of the same job are there.
    waited_s
        How long the pod has been refused every node.
    """

    pod: Pod
    footprint: Footprint
    snapshot: Snapshot
    places: Integers
    peers: Mapping[int, int]
    waited_s: float = 0.0

    @cached_property
    def demand(self) -> Floats:
        """(2, cells): what the pod will use when it starts now."""
        return _expected_demand(self.footprint.curve, self.snapshot.grid.cells)

    @cached_property
    def demand_variance(self) -> Floats:
        """(cells,), cores squared: how uncertain what it will use of CPU is."""
        return variance_of(self.demand[CPU], self.footprint.curve.peak[CPU]).astype(self.demand.dtype)

    @cached_property
    def use(self) -> Floats:
        """(2, cells, m), cores and bytes: what of each node is used with the pod on it."""
        return self.load + self.demand[:, :, None]

    @cached_property
    def peak(self) -> Floats:
        """(2, m): the highest share of each node in the coming hour; 0 where a node's size is not known."""
        peak: Floats = self.use.max(axis=1) * self.per_unit
        return peak

    @cached_property
    def learned(self) -> bool:
        """Whether more than requests is known: of the pod, or of any on these nodes."""
        return self.footprint.source in LEARNED or bool(self.at_nodes(self.snapshot.learned).any())

    @cached_property
    def load(self) -> Floats:
        """(2, cells, m)."""
        return self.at_nodes(self.snapshot.load)

    @cached_property
    def variance(self) -> Floats:
        """(first cells, m), see `Snapshot`."""
        return self.at_nodes(self.snapshot.variance)

    @cached_property
    def per_unit(self) -> Floats:
        """(2, m), see `Snapshot`."""
        return self.at_nodes(self.snapshot.per_unit)

    @cached_property
    def peers_on(self) -> Floats:
        """(m,): how many pods of the same job each node holds."""
        counts = np.zeros(len(self.snapshot.table.names))
        counts[list(self.peers)] = list(self.peers.values())
        return counts[self.places]

    def at_nodes(self, of_nodes: NDArray[Number]) -> NDArray[Number]:
        """(..., m) of (..., n): of the nodes asked about; no copy where these are all."""
        if self.places is self.snapshot.table.everywhere:
            return of_nodes
        return of_nodes.take(self.places, axis=-1)


Facts = Mapping[str, float]


class NodeScores(NamedTuple):
    """Of m nodes.

    Attributes
    ----------
    values
        (m,): 0 for the worst that can be, 1 for the best.
    facts
        Name -> (m,): what the values follow from, kept for the words.
    """

    values: Floats
    facts: Mapping[str, Floats]


class Scorer(NamedTuple):
    """One criterion for nodes.

    `score` returns None if it does not apply to the pod, which is then scored by the others alone; `explain` says in
    words why a node got its value, from the facts of that node.
    """

    score: Callable[[PlacementRequest], NodeScores | None]
    explain: Callable[[Facts], str]
