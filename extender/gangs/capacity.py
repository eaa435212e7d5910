"""What is free on every node, as arrays: who may go where, and how many of a kind fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from extender.gangs.affinity import Where
from extender.gangs.member import Ask, Needs, Place

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PLENTY = 1 << 20
"""How many pods that need nothing of a node fit on it, where nothing else says."""

ROUNDING = 1e-9
"""Relative: a pod that fits exactly must fit, whatever was added and taken away before."""


class NodeArrays:
    """The nodes, which do not change while a decision is made; `allocatable` is (resources, n)."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places: Sequence[Place] = sorted(places, key=lambda place: place.node.name)
        self.index = {place.node.name: number for number, place in enumerate(self.places)}
        resources = sorted({name for place in self.places for name, _ in place.allocatable})
        self.resources = {name: number for number, name in enumerate(resources)}
        self.allocatable = np.zeros((len(resources), len(self.places)))
        for number, place in enumerate(self.places):
            for name, amount in place.allocatable:
                self.allocatable[self.resources[name], number] = amount
        self._allowed: dict[Where, NDArray[np.bool_]] = {}

    def allowed(self, where: Where) -> NDArray[np.bool_]:
        """(n,): the nodes that a pod may run on, whatever is free there."""
        if where not in self._allowed:
            self._allowed[where] = np.array([where.allows(place.node) for place in self.places], dtype=bool)
        return self._allowed[where]

    @cached_property
    def whole(self) -> Floats:
        """(resources, 1): the largest there is of each, at least 1, as a measure."""
        largest: Floats = np.maximum(self.allocatable.max(axis=1, keepdims=True, initial=0.0), 1.0)
        return largest

    def share(self, needs: Needs) -> float:
        """The largest share of a largest node that a pod needs."""
        return max((amount / self.whole[self.resources[name], 0] for name, amount in needs if name in self.resources),
                   default=0.0)  # fmt: skip


class FreeCapacity:
    """What is still free on the nodes; `copy` before trying something."""

    def __init__(self, node_arrays: NodeArrays, free: Floats | None = None) -> None:
        self.node_arrays = node_arrays
        self.free = node_arrays.allocatable.copy() if free is None else free

    def copy(self) -> FreeCapacity:
        return FreeCapacity(self.node_arrays, self.free.copy())

    def least(self, other: FreeCapacity) -> FreeCapacity:
        """What is free in both."""
        return FreeCapacity(self.node_arrays, np.minimum(self.free, other.free))

    def take(self, node: str, needs: Needs) -> None:
        """A pod is on a node; one that is not known takes nothing."""
        number = self.node_arrays.index.get(node)
        if number is not None:
            for name, amount in needs:
                if name in self.node_arrays.resources:
                    self.free[self.node_arrays.resources[name], number] -= amount

    def fitting(self, ask: Ask) -> Integers:
        """(n,): how many such pods each node takes."""
        count = np.where(self.node_arrays.allowed(ask.where), float(PLENTY), 0.0)
        for name, amount in ask.needs:
            if amount <= 0.0:
                continue
            if name not in self.node_arrays.resources:
                return np.zeros(len(count), dtype=np.int64)
            free = self.free[self.node_arrays.resources[name]]
            count = np.minimum(count, np.floor(free / amount + ROUNDING))
        return np.maximum(count, 0.0).astype(np.int64)

    def left(self) -> Floats:
        """(n,): the free share of each node, of the resource it has least of."""
        known = np.where(self.node_arrays.allocatable > 0.0, self.node_arrays.allocatable, 1.0)
        share: Floats = np.where(self.node_arrays.allocatable > 0.0, self.free / known, 1.0).min(axis=0, initial=1.0)
        return share
