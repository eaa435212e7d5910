"""A node for every member of a gang at once: packed on few nodes, or spread over many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from extender.gangs.affinity import NodeConstraints
from extender.gangs.member import Member, Needs, NodeCapacity, Requirements

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNLIMITED_PODS = 1 << 20
"""How many pods that need nothing of a node fit on it, where nothing else says."""

ROUNDING_TOLERANCE = 1e-9
"""Relative: a pod that fits exactly must fit, whatever was added and taken away before."""


class NodeArrays:
    """The nodes, which do not change while a decision is made; `allocatable` is (resources, n)."""

    def __init__(self, places: Iterable[NodeCapacity]) -> None:
        self.places: Sequence[NodeCapacity] = sorted(places, key=lambda place: place.node.name)
        self.index = {place.node.name: number for number, place in enumerate(self.places)}
        resources = sorted({name for place in self.places for name, _ in place.allocatable})
        self.resources = {name: number for number, name in enumerate(resources)}
        self.allocatable = np.zeros((len(resources), len(self.places)))
        for number, place in enumerate(self.places):
            for name, amount in place.allocatable:
                self.allocatable[self.resources[name], number] = amount
        self._allowed: dict[NodeConstraints, NDArray[np.bool_]] = {}

    def allowed(self, constraints: NodeConstraints) -> NDArray[np.bool_]:
        """(n,): the nodes that a pod may run on, whatever is free there."""
        if constraints not in self._allowed:
            self._allowed[constraints] = np.array([constraints.allows(place.node) for place in self.places], dtype=bool)
        return self._allowed[constraints]

    @cached_property
    def largest_allocatable(self) -> Floats:
        """(resources, 1): the largest there is of each, at least 1, as a measure."""
        largest: Floats = np.maximum(self.allocatable.max(axis=1, keepdims=True, initial=0.0), 1.0)
        return largest

    def dominant_share(self, needs: Needs) -> float:
        """The largest share of a largest node that a pod needs."""
        return max((amount / self.largest_allocatable[self.resources[name], 0] for name, amount in needs if name in self.resources),
                   default=0.0)  # fmt: skip


class FreeCapacity:
    """What is still free on the nodes; `copy` before trying something."""

    def __init__(self, node_arrays: NodeArrays, free: Floats | None = None) -> None:
        self.node_arrays = node_arrays
        self.free = node_arrays.allocatable.copy() if free is None else free

    def copy(self) -> FreeCapacity:
        return FreeCapacity(self.node_arrays, self.free.copy())

    def minimum(self, other: FreeCapacity) -> FreeCapacity:
        """What is free in both."""
        return FreeCapacity(self.node_arrays, np.minimum(self.free, other.free))

    def take(self, node: str, needs: Needs) -> None:
        """A pod is on a node; one that is not known takes nothing."""
        number = self.node_arrays.index.get(node)
        if number is not None:
            for name, amount in needs:
                if name in self.node_arrays.resources:
                    self.free[self.node_arrays.resources[name], number] -= amount

    def pods_that_fit(self, requirements: Requirements) -> Integers:
        """(n,): how many such pods each node takes."""
        count = np.where(self.node_arrays.allowed(requirements.constraints), float(UNLIMITED_PODS), 0.0)
        for name, amount in requirements.needs:
            if amount <= 0.0:
                continue
            if name not in self.node_arrays.resources:
                return np.zeros(len(count), dtype=np.int64)
            free = self.free[self.node_arrays.resources[name]]
            count = np.minimum(count, np.floor(free / amount + ROUNDING_TOLERANCE))
        return np.maximum(count, 0.0).astype(np.int64)

    def free_share(self) -> Floats:
        """(n,): the free share of each node, of the resource it has least of."""
        known = np.where(self.node_arrays.allocatable > 0.0, self.node_arrays.allocatable, 1.0)
        share: Floats = np.where(self.node_arrays.allocatable > 0.0, self.free / known, 1.0).min(axis=0, initial=1.0)
        return share


BASIC_RESOURCES = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""What every node has."""

Assignment = Mapping[str, str]
"""Pod UID -> node."""

Strategy = Callable[[Requirements, int, FreeCapacity, np.ndarray], Iterator[int]]
"""Nodes for so many pods that ask for the same, one after the other, as far as there are any. Whoever asks takes what
each pod needs, and counts its node as used, before asking for the next."""


def plan(members: Sequence[Member], capacity: FreeCapacity, existing_nodes: Sequence[str] = ()) -> Assignment | None:
    """Nodes for all of them, or None; `capacity` stays as it is.

    What some of the gang prefer never keeps it from being placed: where packing or spreading finds no nodes for all,
    the tightest are tried. For members that all ask for the same the answer is exact; for others, None may be wrong.

    Parameters
    ----------
    there
        The nodes of members that are placed already.
    """
    for strategy in (_spread if _should_spread(members, existing_nodes) else _pack, _best_fit):
        found = _assign(members, capacity.copy(), existing_nodes, strategy)
        if len(found) == len(members):
            return found
    return None


def best_fit(members: Sequence[Member], capacity: FreeCapacity) -> Assignment:
    """Nodes for as many as fit: for pods that nobody holds back, and to say how many of a gang fit."""
    return _assign(members, capacity.copy(), (), _best_fit)


def _should_spread(members: Sequence[Member], existing_nodes: Sequence[str]) -> bool:
    """A pod by itself that says nothing goes to the emptiest node, as with any scheduler; with GPUs it leaves none
    in pieces."""
    if not members or members[0].membership.placement:
        return bool(members) and members[0].membership.placement == "spread"
    return (
        len(members) == 1
        and not existing_nodes
        and all(name in BASIC_RESOURCES for name, _ in members[0].requirements.needs)
    )


def _assign(
    members: Sequence[Member], capacity: FreeCapacity, existing_nodes: Sequence[str], strategy: Strategy
) -> Assignment:
    node_arrays = capacity.node_arrays
    used = np.zeros(len(node_arrays.places))
    for name in existing_nodes:
        if name in node_arrays.index:
            used[node_arrays.index[name]] += 1
    found: dict[str, str] = {}
    for requirements, uids in _by_requirements(members, node_arrays):
        for uid, node in zip(uids, strategy(requirements, len(uids), capacity, used), strict=False):
            found[uid] = node_arrays.places[node].node.name
            capacity.take(found[uid], requirements.needs)
            used[node] += 1
    return found


def _by_requirements(members: Sequence[Member], node_arrays: NodeArrays) -> list[tuple[Requirements, list[str]]]:
    """(what they ask for, their UIDs): the choosy ones first, then the largest."""
    uids_of: defaultdict[Requirements, list[str]] = defaultdict(list)
    for member in members:
        uids_of[member.requirements].append(member.uid)
    return sorted(
        uids_of.items(),
        key=lambda item: (
            int(node_arrays.allowed(item[0].constraints).sum()),
            -node_arrays.dominant_share(item[0].needs),
            item[1],
        ),
    )


def _pack(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """The node that takes most of them each time; of equal ones those that hold most of the gang, then the fullest."""
    while pods and (fits := np.minimum(capacity.pods_that_fit(requirements), pods)).any():
        node = _first_by(fits > 0, (-fits, -used, capacity.free_share()))
        yield from repeat(node, int(fits[node]))
        pods -= int(fits[node])


def _spread(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """One by one to the node that holds fewest of the gang, of these to the emptiest."""
    for _ in range(pods):
        fits = capacity.pods_that_fit(requirements)
        if not fits.any():
            return
        yield _first_by(fits > 0, (used, -capacity.free_share()))


def _best_fit(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """The fullest nodes first."""
    fits = capacity.pods_that_fit(requirements)
    for node in np.lexsort((np.arange(len(fits)), capacity.free_share())):
        yield from repeat(int(node), int(fits[node]))


def _first_by(possible: np.ndarray, keys: tuple[np.ndarray, ...]) -> int:
    """The first by these keys, small before large, and then by name."""
    places = np.flatnonzero(possible)
    order = np.lexsort((places, *(key[places] for key in reversed(keys))))
    return int(places[order[0]])
