"""What is asked of the scorers: this pod, on these nodes, at this moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.kernels import fullness
from extender.pods.curves import Curve, variance_of
from extender.pods.footprint import Footprint
from extender.pods.pod import Pod
from extender.view.snapshot import Floats, Integers, Snapshot
from recommender.records import CPU


@lru_cache(maxsize=4096)
def _highest(curve: Curve, cells: int) -> Sequence[float]:
    return tuple(curve.expected(0, cells).max(axis=1).tolist())


Number = TypeVar("Number", bound=np.generic)


@lru_cache(maxsize=4096)
def _ahead(curve: Curve, cells: int) -> Floats:
    """(2, cells): what is expected from the start on. Pods of one job share a curve."""
    return np.ascontiguousarray(curve.expected(0, cells), dtype=np.float32)


Value = TypeVar("Value")


class _Once(Generic[Value]):
    """`cached_property` as of Python 3.12: the lock of 3.11 takes longer than most of what is kept here."""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make, self._name = make, make.__name__

    def __get__(self, question: object, _: type) -> Value:
        value = question.__dict__[self._name] = self._make(question)
        return value


@dataclass(eq=False)  # not frozen: that makes it several times as slow to make
class Question:
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

    @_Once
    def demand(self) -> Floats:
        """(2, cells): what the pod will use when it starts now."""
        return _ahead(self.footprint.curve, self.snapshot.grid.cells)

    @_Once
    def doubt(self) -> Floats:
        """(cells,), cores squared: how uncertain what it will use of CPU is."""
        return variance_of(self.demand[CPU], self.footprint.curve.peak[CPU]).astype(self.demand.dtype)

    def highest_demand(self, cells: int) -> Sequence[float]:
        """The highest of `demand` in the first cells, of CPU and memory each."""
        return _highest(self.footprint.curve, cells)

    @_Once
    def fill(self) -> Floats:
        """(2, cells, m): the share of each node that is used with the pod on it; 0 where a node's size is not known."""
        return self.fill_of(self.snapshot.grid.cells)

    def fill_of(self, cells: int) -> Floats:
        """(2, cells, m): `fill` in the first cells alone."""
        shares = self.load[:, :cells] + self.demand[:, :cells, None]
        shares *= self.per_unit[:, None, :]
        return shares

    def peak_and_mean_of(self, cells: int) -> tuple[Floats, Floats]:
        """(2, m) each: the highest and the mean `fill` in the first cells."""
        peak, mean = np.empty((2, *self.per_unit.shape), dtype=np.float32)
        fullness.shares(self.load, self.demand, self.per_unit, cells, peak, mean)
        return peak, mean

    @_Once
    def peak_and_mean(self) -> tuple[Floats, Floats]:
        """(2, m) each: the highest and the mean `fill` of the coming hour."""
        return self.peak_and_mean_of(self.snapshot.grid.cells)

    @_Once
    def load(self) -> Floats:
        """(2, cells, m)."""
        return self.here(self.snapshot.load)

    @_Once
    def variance(self) -> Floats:
        """(first cells, m), see `Snapshot`."""
        return self.here(self.snapshot.variance)

    @_Once
    def per_unit(self) -> Floats:
        return self.here(self.snapshot.per_unit)

    @_Once
    def held(self) -> NDArray[np.float64]:
        """(3, m): how many training pods of each category a node holds."""
        return np.array(self.here(self.snapshot.categories), dtype=np.float64)  # kept, and not all sums with it

    def here(self, of_nodes: NDArray[Number]) -> NDArray[Number]:
        """(..., m) of (..., n): what is asked about; no copy where that is everything."""
        if self.places is self.snapshot.everywhere:
            return of_nodes
        return of_nodes.take(self.places, axis=-1)

    @_Once
    def peers_on(self) -> Floats:
        """(m,): how many pods of the same job each node holds."""
        if not self.peers:
            return np.zeros(len(self.places))
        counts = np.zeros(len(self.snapshot.names))
        counts[list(self.peers)] = list(self.peers.values())
        return counts[self.places]
