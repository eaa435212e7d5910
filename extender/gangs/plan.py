"""A node for every member of a gang at once: packed on few nodes, or spread over many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extender.gangs.capacity import FreeCapacity, Integers
from extender.gangs.member import Ask, Member

PLAIN = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""What every node has."""

Assignment = Mapping[str, str]
"""Pod UID -> node."""

Way = Callable[[Ask, list[str], FreeCapacity, np.ndarray], dict[str, str]]
"""Nodes for pods that ask for the same, as far as there are any; takes what they need and counts them as used."""


def plan(members: Sequence[Member], capacity: FreeCapacity, there: Sequence[str] = ()) -> Assignment | None:
    """Nodes for all of them, or None; `capacity` stays as it is.

    What some of the gang prefer never keeps it from being placed: where packing or spreading finds no nodes for all,
    the tightest are tried. For members that all ask for the same the answer is exact; for others, None may be wrong.

    Parameters
    ----------
    there
        The nodes of members that are placed already.
    """
    way = _spread if _is_spread(members, there) else _pack
    return _assigned(members, capacity.copy(), there, way) or _assigned(members, capacity.copy(), there, _tight)


def guess(members: Sequence[Member], capacity: FreeCapacity) -> Assignment:
    """Nodes for as many as fit: for pods that nobody holds back, and to say how many of a gang fit."""
    capacity = capacity.copy()
    found: dict[str, str] = {}
    for ask, uids in _alike(members, capacity):
        found |= _tight(ask, uids, capacity, np.zeros(len(capacity.node_arrays.places)))
    return found


def _is_spread(members: Sequence[Member], there: Sequence[str]) -> bool:
    """A pod by itself that says nothing goes to the emptiest node, as with any scheduler; with GPUs it leaves none
    in pieces."""
    if not members or members[0].kind.placement:
        return bool(members) and members[0].kind.placement == "spread"
    return len(members) == 1 and not there and all(name in PLAIN for name, _ in members[0].ask.needs)


def _assigned(members: Sequence[Member], capacity: FreeCapacity, there: Sequence[str], way: Way) -> Assignment | None:
    used = np.zeros(len(capacity.node_arrays.places))
    for node in there:
        if node in capacity.node_arrays.index:
            used[capacity.node_arrays.index[node]] += 1
    found: dict[str, str] = {}
    for ask, uids in _alike(members, capacity):
        found |= way(ask, uids, capacity, used)
    return found if len(found) == len(members) else None


def _alike(members: Sequence[Member], capacity: FreeCapacity) -> list[tuple[Ask, list[str]]]:
    """(what they ask for, their UIDs): the choosy ones first, then the largest."""
    alike: defaultdict[Ask, list[str]] = defaultdict(list)
    for member in members:
        alike[member.ask].append(member.uid)
    node_arrays = capacity.node_arrays
    return sorted(
        alike.items(),
        key=lambda item: (int(node_arrays.allowed(item[0].where).sum()), -node_arrays.share(item[0].needs), item[1]),
    )


def _put(ask: Ask, uid: str, node: int, capacity: FreeCapacity, used: np.ndarray, found: dict[str, str]) -> None:
    name = capacity.node_arrays.places[node].node.name
    capacity.take(name, ask.needs)
    used[node] += 1
    found[uid] = name


def _pack(ask: Ask, uids: list[str], capacity: FreeCapacity, used: np.ndarray) -> dict[str, str]:
    """The node that takes most of them each time; of equal ones those that hold most of the gang, then the fullest."""
    found: dict[str, str] = {}
    left = list(uids)
    while left:
        takes = np.minimum(capacity.fitting(ask), len(left))
        if not takes.any():
            break
        node = _best(takes > 0, (-takes, -used, capacity.left()))
        for uid in left[: takes[node]]:
            _put(ask, uid, node, capacity, used, found)
        left = left[takes[node] :]
    return found


def _spread(ask: Ask, uids: list[str], capacity: FreeCapacity, used: np.ndarray) -> dict[str, str]:
    """One by one to the node that holds fewest of the gang, of these to the emptiest."""
    found: dict[str, str] = {}
    for uid in uids:
        fitting: Integers = capacity.fitting(ask)
        if not fitting.any():
            break
        _put(ask, uid, _best(fitting > 0, (used, -capacity.left())), capacity, used, found)
    return found


def _tight(ask: Ask, uids: list[str], capacity: FreeCapacity, used: np.ndarray) -> dict[str, str]:
    """The fullest nodes first."""
    found: dict[str, str] = {}
    left = list(uids)
    takes = capacity.fitting(ask)
    for node in np.lexsort((np.arange(len(takes)), capacity.left())):
        for uid in left[: takes[node]]:
            _put(ask, uid, int(node), capacity, used, found)
        left = left[takes[node] :]
    return found


def _best(possible: np.ndarray, keys: tuple[np.ndarray, ...]) -> int:
    """The first by these keys, small before large, and then by name."""
    places = np.flatnonzero(possible)
    order = np.lexsort((places, *(key[places] for key in reversed(keys))))
    return int(places[order[0]])
