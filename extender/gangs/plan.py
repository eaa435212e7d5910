"""A node for every member of a gang at once: packed on few nodes, or spread over many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from extender.gangs.affinity import Where
from extender.gangs.member import Ask, Member, Needs, Place

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


PLAIN = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""What every node has."""

Assignment = Mapping[str, str]
"""Pod UID -> node."""

Way = Callable[[Ask, int, FreeCapacity, np.ndarray], Iterator[int]]
"""Nodes for so many pods that ask for the same, one after the other, as far as there are any. Whoever asks takes what
each pod needs, and counts its node as used, before asking for the next."""


def plan(members: Sequence[Member], capacity: FreeCapacity, there: Sequence[str] = ()) -> Assignment | None:
    """Nodes for all of them, or None; `capacity` stays as it is.

    What some of the gang prefer never keeps it from being placed: where packing or spreading finds no nodes for all,
    the tightest are tried. For members that all ask for the same the answer is exact; for others, None may be wrong.

    Parameters
    ----------
    there
        The nodes of members that are placed already.
    """
    for way in (_spread if _is_spread(members, there) else _pack, _tight):
        found = _assigned(members, capacity.copy(), there, way)
        if len(found) == len(members):
            return found
    return None


def guess(members: Sequence[Member], capacity: FreeCapacity) -> Assignment:
    """Nodes for as many as fit: for pods that nobody holds back, and to say how many of a gang fit."""
    return _assigned(members, capacity.copy(), (), _tight)


def _is_spread(members: Sequence[Member], there: Sequence[str]) -> bool:
    """A pod by itself that says nothing goes to the emptiest node, as with any scheduler; with GPUs it leaves none
    in pieces."""
    if not members or members[0].kind.placement:
        return bool(members) and members[0].kind.placement == "spread"
    return len(members) == 1 and not there and all(name in PLAIN for name, _ in members[0].ask.needs)


def _assigned(members: Sequence[Member], capacity: FreeCapacity, there: Sequence[str], way: Way) -> Assignment:
    node_arrays = capacity.node_arrays
    used = np.zeros(len(node_arrays.places))
    for name in there:
        if name in node_arrays.index:
            used[node_arrays.index[name]] += 1
    found: dict[str, str] = {}
    for ask, uids in _alike(members, node_arrays):
        for uid, node in zip(uids, way(ask, len(uids), capacity, used), strict=False):
            found[uid] = node_arrays.places[node].node.name
            capacity.take(found[uid], ask.needs)
            used[node] += 1
    return found


def _alike(members: Sequence[Member], node_arrays: NodeArrays) -> list[tuple[Ask, list[str]]]:
    """(what they ask for, their UIDs): the choosy ones first, then the largest."""
    alike: defaultdict[Ask, list[str]] = defaultdict(list)
    for member in members:
        alike[member.ask].append(member.uid)
    return sorted(
        alike.items(),
        key=lambda item: (int(node_arrays.allowed(item[0].where).sum()), -node_arrays.share(item[0].needs), item[1]),
    )


def _pack(ask: Ask, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """The node that takes most of them each time; of equal ones those that hold most of the gang, then the fullest."""
    while pods and (takes := np.minimum(capacity.fitting(ask), pods)).any():
        node = _best(takes > 0, (-takes, -used, capacity.left()))
        yield from repeat(node, int(takes[node]))
        pods -= int(takes[node])


def _spread(ask: Ask, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """One by one to the node that holds fewest of the gang, of these to the emptiest."""
    for _ in range(pods):
        fitting = capacity.fitting(ask)
        if not fitting.any():
            return
        yield _best(fitting > 0, (used, -capacity.left()))


def _tight(ask: Ask, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """The fullest nodes first."""
    takes = capacity.fitting(ask)
    for node in np.lexsort((np.arange(len(takes)), capacity.left())):
        yield from repeat(int(node), int(takes[node]))


def _best(possible: np.ndarray, keys: tuple[np.ndarray, ...]) -> int:
    """The first by these keys, small before large, and then by name."""
    places = np.flatnonzero(possible)
    order = np.lexsort((places, *(key[places] for key in reversed(keys))))
    return int(places[order[0]])
