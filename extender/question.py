"""What is asked of the scorers: this pod, on these nodes, at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extender.footprint import Footprint
from extender.pod import Pod
from extender.snapshot import Floats, Integers, Snapshot


@dataclass(frozen=True)
class Question:
    """A pod and m nodes.

    Attributes
    ----------
    places
        (m,): the nodes' places in the snapshot, all known.
    peers
        Place -> how many pods of the same job are there.
    """

    pod: Pod
    footprint: Footprint
    snapshot: Snapshot
    places: Integers
    peers: Mapping[int, int]

    @cached_property
    def demand(self) -> Floats:
        """(2, cells): what the pod will use when it starts now."""
        return self.footprint.curve.expected(0, self.snapshot.grid.cells).astype(self.snapshot.load.dtype)

    @cached_property
    def fill(self) -> Floats:
        """(2, cells, m): the share of each node that is used with the pod on it; 0 where a node's size is not known."""
        return self.fill_of(self.snapshot.grid.cells)

    def fill_of(self, cells: int) -> Floats:
        """(2, cells, m): `fill` in the first cells alone."""
        shares = self.here(self.snapshot.load[:, :cells]) + self.demand[:, :cells, None]
        shares *= self._per_unit[:, None, :]
        return shares

    def peak_of(self, cells: int) -> Floats:
        """(2, m): the highest `fill` in the first cells."""
        demand, load = self.demand[:, :cells], self.snapshot.load[:, :cells]
        if self.footprint.curve.steady:
            return (self.here(load.max(axis=1)) + demand[:, :1]) * self._per_unit
        highest: Floats = (self.here(load) + demand[:, :, None]).max(axis=1) * self._per_unit
        return highest

    @cached_property
    def peak(self) -> Floats:
        """(2, m): the highest `fill` of the coming hour."""
        return self.peak_of(self.snapshot.grid.cells)

    @cached_property
    def mean(self) -> Floats:
        """(2, m): the mean `fill` of the coming hour."""
        demand = np.add.reduce(self.demand, axis=1, keepdims=True) / self.snapshot.grid.cells
        mean: Floats = (self.here(self.snapshot.mean_load) + demand) * self._per_unit
        return mean

    @cached_property
    def _per_unit(self) -> Floats:
        return self.here(self.snapshot.per_unit).astype(self.snapshot.load.dtype)

    def here(self, of_nodes: Floats) -> Floats:
        """(..., m) of (..., n): what is asked about; no copy where that is everything."""
        if self.places is self.snapshot.everywhere:
            return of_nodes
        return np.take(of_nodes, self.places, axis=-1)

    @cached_property
    def peers_on(self) -> Floats:
        """(m,): how many pods of the same job each node holds."""
        if not self.peers:
            return np.zeros(len(self.places))
        counts = np.zeros(len(self.snapshot.names))
        counts[list(self.peers)] = list(self.peers.values())
        return counts[self.places]
