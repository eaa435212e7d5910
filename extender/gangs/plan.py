"""A node for every member of a gang at once: packed on few nodes, or spread over many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extender.gangs.member import Ask, Member
from extender.gangs.room import Integers, Room

Plan = Mapping[str, str]
"""Pod UID -> node."""

Way = Callable[[Ask, list[str], Room, np.ndarray], dict[str, str]]
"""Seats for pods that ask for the same, as far as there are any; takes them from the room and counts them as used."""


def plan(members: Sequence[Member], room: Room, there: Sequence[str] = ()) -> Plan | None:
    """Seats for all of them, or None; `room` stays as it is.

    What some of the gang prefer never keeps it from being placed: where packing or spreading finds no seats for all,
    the tightest are tried. For members that all ask for the same the answer is exact; for others, None may be wrong.

    Parameters
    ----------
    there
        The nodes of members that are placed already.
    """
    spread = bool(members) and members[0].kind.spread
    return _seats(members, room.copy(), there, _spread if spread else _pack) or _seats(
        members, room.copy(), there, _tight
    )


def guess(members: Sequence[Member], room: Room) -> Plan:
    """Seats for as many as fit: for pods that nobody holds back, and to say how many of a gang fit."""
    room = room.copy()
    found: dict[str, str] = {}
    for ask, uids in _alike(members, room):
        found |= _tight(ask, uids, room, np.zeros(len(room.land.places)))
    return found


def _seats(members: Sequence[Member], room: Room, there: Sequence[str], way: Way) -> Plan | None:
    used = np.zeros(len(room.land.places))
    for node in there:
        if node in room.land.index:
            used[room.land.index[node]] += 1
    found: dict[str, str] = {}
    for ask, uids in _alike(members, room):
        found |= way(ask, uids, room, used)
    return found if len(found) == len(members) else None


def _alike(members: Sequence[Member], room: Room) -> list[tuple[Ask, list[str]]]:
    """(what they ask for, their UIDs): the choosy ones first, then the largest."""
    alike: defaultdict[Ask, list[str]] = defaultdict(list)
    for member in members:
        alike[member.ask].append(member.uid)
    land = room.land
    return sorted(
        alike.items(), key=lambda item: (int(land.allowed(item[0].where).sum()), -land.share(item[0].needs), item[1])
    )


def _put(ask: Ask, uid: str, node: int, room: Room, used: np.ndarray, found: dict[str, str]) -> None:
    name = room.land.places[node].node.name
    room.take(name, ask.needs)
    used[node] += 1
    found[uid] = name


def _pack(ask: Ask, uids: list[str], room: Room, used: np.ndarray) -> dict[str, str]:
    """The node that takes most of them each time; of equal ones those that hold most of the gang, then the fullest."""
    found: dict[str, str] = {}
    left = list(uids)
    while left:
        takes = np.minimum(room.fitting(ask), len(left))
        if not takes.any():
            break
        node = _best(takes > 0, (-takes, -used, room.left()))
        for uid in left[: takes[node]]:
            _put(ask, uid, node, room, used, found)
        left = left[takes[node] :]
    return found


def _spread(ask: Ask, uids: list[str], room: Room, used: np.ndarray) -> dict[str, str]:
    """One by one to the node that holds fewest of the gang, of these to the emptiest."""
    found: dict[str, str] = {}
    for uid in uids:
        fitting: Integers = room.fitting(ask)
        if not fitting.any():
            break
        _put(ask, uid, _best(fitting > 0, (used, -room.left())), room, used, found)
    return found


def _tight(ask: Ask, uids: list[str], room: Room, used: np.ndarray) -> dict[str, str]:
    """The fullest nodes first."""
    found: dict[str, str] = {}
    left = list(uids)
    takes = room.fitting(ask)
    for node in np.lexsort((np.arange(len(takes)), room.left())):
        for uid in left[: takes[node]]:
            _put(ask, uid, int(node), room, used, found)
        left = left[takes[node] :]
    return found


def _best(possible: np.ndarray, keys: tuple[np.ndarray, ...]) -> int:
    """The first by these keys, small before large, and then by name."""
    places = np.flatnonzero(possible)
    order = np.lexsort((places, *(key[places] for key in reversed(keys))))
    return int(places[order[0]])
