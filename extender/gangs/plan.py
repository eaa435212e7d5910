"""Assigns a node to every member of a gang at once: packed on few nodes or spread over many."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from extender.gangs.affinity import Bools, NodeConstraints, NodeFacts
from extender.gangs.member import Member, Needs, NodeCapacity, Requirements

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
UNLIMITED_PODS = 1 << 20  # how many pods without requests fit on a node that allows them

ROUNDING_TOLERANCE = 1e-9
"""In pods: a pod that fits exactly must fit, in spite of rounding in earlier additions and subtractions."""


Assignment = Mapping[str, str]  # pod UID -> node


class NodeArrays:
    """The nodes as arrays, fixed during one decision; `allocatable` is (resources, n)."""

    def __init__(self, nodes: Iterable[NodeCapacity]) -> None:
        self.nodes: Sequence[NodeCapacity] = sorted(nodes, key=lambda each: each.node.name)
        self.index = {each.node.name: number for number, each in enumerate(self.nodes)}
        resources = sorted({name for each in self.nodes for name, _ in each.allocatable})
        self.resources = {name: number for number, name in enumerate(resources)}
        self.allocatable = np.zeros((len(resources), len(self.nodes)))
        for number, node in enumerate(self.nodes):
            for name, amount in node.allocatable:
                self.allocatable[self.resources[name], number] = amount
        self._largest = np.maximum(self.allocatable.max(axis=1, initial=0.0), 1.0)
        self._facts = NodeFacts([each.node for each in self.nodes])
        self._allowed: dict[NodeConstraints, Bools] = {}

    def allowed(self, constraints: NodeConstraints) -> Bools:
        """(n,): the nodes that a pod may run on, regardless of free capacity."""
        if constraints not in self._allowed:
            self._allowed[constraints] = self._facts.allowed(constraints)
        return self._allowed[constraints]

    def allowed_for_any(self, members: Iterable[Member]) -> Bools:
        """(n,): the nodes that at least one of these pods may run on."""
        found = np.zeros(len(self.nodes), dtype=bool)
        for constraints in {member.requirements.constraints for member in members}:
            found |= self.allowed(constraints)
        return found

    @cached_property
    def offered(self) -> frozenset[str]:
        """The resources of which any node has some."""
        return frozenset(name for name, number in self.resources.items() if self.allocatable[number].any())

    def dominant_share(self, needs: Needs) -> float:
        """A pod's largest request of any resource, as a share of the largest node."""
        known = [(self.resources[name], amount) for name, amount in needs if name in self.resources]
        return max((amount / self._largest[number] for number, amount in known), default=0.0)


class FreeCapacity:
    """Free capacity of the nodes; `copy` it before a trial placement."""

    def __init__(self, node_arrays: NodeArrays, free: Floats | None = None) -> None:
        self.node_arrays = node_arrays
        self.free = node_arrays.allocatable.copy() if free is None else free

    def copy(self) -> FreeCapacity:
        return FreeCapacity(self.node_arrays, self.free.copy())

    def minimum(self, other: FreeCapacity) -> FreeCapacity:
        return FreeCapacity(self.node_arrays, np.minimum(self.free, other.free))

    def take(self, node: str, needs: Needs) -> None:
        """Subtract a pod from a node; an unknown node is ignored."""
        number = self.node_arrays.index.get(node)
        if number is not None:
            for name, amount in needs:
                if name in self.node_arrays.resources:
                    self.free[self.node_arrays.resources[name], number] -= amount

    def without(self, members: Iterable[Member], nodes: Assignment) -> FreeCapacity:
        """What these pods would leave on their nodes."""
        left = self.copy()
        for member in members:
            left.take(nodes[member.uid], member.requirements.needs)
        return left

    def reserved_nodes(self, members: Sequence[Member]) -> Assignment:
        """The nodes that are reserved for these pods; empty unless all have one and fit there together."""
        left, found = self.copy(), dict[str, str]()
        for member in members:
            node = self.node_arrays.index.get(member.reserved_node)
            if node is None or not left.pods_that_fit(member.requirements)[node]:
                return {}
            left.take(member.reserved_node, member.requirements.needs)
            found[member.uid] = member.reserved_node
        return found

    def fits(self, node: str, needs: Needs) -> bool:
        """Whether a pod that runs on this node fits there."""
        number, known = self.node_arrays.index.get(node), self.node_arrays.resources
        return number is None or all(
            self.free[known[name], number] >= amount * (1.0 - ROUNDING_TOLERANCE)
            for name, amount in needs
            if amount > 0.0 and name in known
        )

    def give_back(self, node: str, needs: Needs) -> None:
        """Undo a `take`."""
        self.take(node, tuple((name, -amount) for name, amount in needs))

    def only(self, nodes: Integers) -> FreeCapacity:
        """The capacity of these nodes, and none on the others."""
        some = np.full_like(self.free, -np.inf)
        some[:, nodes] = self.free[:, nodes]
        return FreeCapacity(self.node_arrays, some)

    def pods_that_fit(self, requirements: Requirements) -> Integers:
        """(n,): how many such pods fit on each node."""
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
        """(n,): the smallest free share of any resource on each node."""
        known = np.where(self.node_arrays.allocatable > 0.0, self.node_arrays.allocatable, 1.0)
        share: Floats = np.where(self.node_arrays.allocatable > 0.0, self.free / known, 1.0).min(axis=0, initial=1.0)
        return share


BASIC_RESOURCES = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})  # resources that every node has

Strategy = Callable[[Requirements, int, FreeCapacity, np.ndarray], Iterator[int]]
"""Yields nodes for a number of pods with equal requirements, one by one, until none is left. The caller subtracts each
pod from the capacity and counts it in the array of pods per node before it asks for the next."""


def plan(members: Sequence[Member], capacity: FreeCapacity, existing_nodes: Sequence[str] = ()) -> Assignment | None:
    """Nodes for all members, or None; `existing_nodes` are those of members placed already. A preference never prevents
    placement: if packing or spreading fails, best fit is tried. For members with unequal requirements, None may be
    wrong."""
    for strategy in (_spread if _should_spread(members, existing_nodes) else _pack, _best_fit):
        found = _assign(members, capacity.copy(), existing_nodes, strategy)
        if len(found) == len(members):
            return found
    return None


def plan_on_emptiest(members: Sequence[Member], capacity: FreeCapacity, present: FreeCapacity) -> Assignment | None:
    """Nodes for all members where they fit in `capacity`, on as few of the emptiest nodes at `present` as suffice."""
    order = np.argsort(-present.free_share(), kind="stable")

    def on(count: int) -> Assignment | None:
        return plan(members, capacity.only(order[:count]))

    count = bisect_left(range(len(order)), True, key=lambda each: on(each) is not None)
    return on(count) or plan(members, capacity)


def fit_in_any_order(members: Sequence[Member], capacity: FreeCapacity) -> bool:
    """Whether each of these pods finds a node, wherever the scheduler puts the others: for each kind of pod, all others
    that may share a node with it are too few to fill all its nodes. False may be wrong."""
    kinds = Counter(member.requirements for member in members)
    return all(_finds_node(kind, kinds, capacity) for kind in kinds)


def _finds_node(kind: Requirements, kinds: Mapping[Requirements, int], capacity: FreeCapacity) -> bool:
    node_arrays = capacity.node_arrays
    where = np.flatnonzero(capacity.pods_that_fit(kind))
    if not len(where):
        return False
    allowed = node_arrays.allowed(kind.constraints)
    others = {
        other: count - (other is kind)
        for other, count in kinds.items()
        if (node_arrays.allowed(other.constraints) & allowed).any()
    }
    filled = 0  # most nodes on which the others can leave too little of some resource, if there are so many of them
    for name, need in kind.needs:
        if need <= 0.0:
            continue
        left = np.sort(capacity.free[node_arrays.resources[name], where] - need)
        asked = sum(dict(other.needs).get(name, 0.0) * count for other, count in others.items())
        filled += int((left.clip(0.0).cumsum() < asked * (1.0 - ROUNDING_TOLERANCE)).sum())
    return min(filled, sum(others.values())) < len(where)


def best_fit(members: Sequence[Member], capacity: FreeCapacity) -> Assignment:
    """Nodes for as many members as fit, the fullest nodes first."""
    return _assign(members, capacity.copy(), (), _best_fit)


def _should_spread(members: Sequence[Member], existing_nodes: Sequence[str]) -> bool:
    """As stated; else true only for single pods without extended resources, as packing avoids GPU fragmentation."""
    if not members or members[0].membership.placement:
        return bool(members) and members[0].membership.placement == "spread"
    single = len(members) == 1 and not existing_nodes
    return single and all(name in BASIC_RESOURCES for name, _ in members[0].requirements.needs)


def _assign(
    members: Sequence[Member], capacity: FreeCapacity, existing_nodes: Sequence[str], strategy: Strategy
) -> Assignment:
    node_arrays = capacity.node_arrays
    used = np.zeros(len(node_arrays.nodes))
    for name in existing_nodes:
        if name in node_arrays.index:
            used[node_arrays.index[name]] += 1
    found: dict[str, str] = {}
    for requirements, uids in _by_requirements(members, node_arrays):
        for uid, node in zip(uids, strategy(requirements, len(uids), capacity, used), strict=False):
            found[uid] = node_arrays.nodes[node].node.name
            capacity.take(found[uid], requirements.needs)
            used[node] += 1
    return found


def _by_requirements(members: Sequence[Member], node_arrays: NodeArrays) -> list[tuple[Requirements, list[str]]]:
    """(requirements, UIDs): those with the fewest allowed nodes first, then the largest."""
    uids_of: defaultdict[Requirements, list[str]] = defaultdict(list)
    for member in members:
        uids_of[member.requirements].append(member.uid)
    allowed, share = node_arrays.allowed, node_arrays.dominant_share
    return sorted(
        uids_of.items(), key=lambda item: (int(allowed(item[0].constraints).sum()), -share(item[0].needs), item[1])
    )


def _pack(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """Nodes that fit most of the pods first; on ties those with most members of the gang, then the fullest."""
    while pods and (fits := np.minimum(capacity.pods_that_fit(requirements), pods)).any():
        node = _first_by(fits > 0, (-fits, -used, capacity.free_share()))
        yield from repeat(node, int(fits[node]))
        pods -= int(fits[node])


def _spread(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    """For each pod the node with the fewest members of the gang; on ties the emptiest."""
    for _ in range(pods):
        fits = capacity.pods_that_fit(requirements)
        if not fits.any():
            return
        yield _first_by(fits > 0, (used, -capacity.free_share()))


def _best_fit(requirements: Requirements, pods: int, capacity: FreeCapacity, used: np.ndarray) -> Iterator[int]:
    fits = capacity.pods_that_fit(requirements)
    for node in np.lexsort((np.arange(len(fits)), capacity.free_share())):
        yield from repeat(int(node), int(fits[node]))


def _first_by(possible: np.ndarray, keys: tuple[np.ndarray, ...]) -> int:
    """The index of the first node by these keys, ascending, then by name."""
    nodes = np.flatnonzero(possible)
    order = np.lexsort((nodes, *(key[nodes] for key in reversed(keys))))
    return int(nodes[order[0]])
