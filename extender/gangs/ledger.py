"""The ConfigMap in which the controller writes what it has reserved: read now and then, written by version; and how a
gang is let go by it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from extender.errors import ExtenderError
from extender.gangs.affinity import NodeConstraints
from extender.gangs.gang import Gang
from extender.gangs.member import GATE, RESERVED_NODE, Member, Requirements
from extender.gangs.plan import Assignment
from extender.pods.reservations import CONFIG_MAP, Reservation, read_reservations, reservations_data
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadObject, Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import CONFIG_MAPS, PODS, path_of

log = logging.getLogger(__name__)

CACHE_TTL_S = 5.0
"""What was read or written last is believed for so long: shorter than anybody else can begin to lead in."""


class Ledger:
    """What is reserved, as it was last read or written here; every method raises `ApiError` where that fails.

    Nobody else writes it. Somebody who does all the same, a successor among them, is noticed at the next write at the
    latest, which names the version: then nothing is written, and all is read anew.
    """

    def __init__(self, api: Api, namespace: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api, self._path = api, path_of(CONFIG_MAPS, namespace, CONFIG_MAP)
        self._monotonic, self._cached_until_s = monotonic, 0.0
        self._object: Mapping[str, Any] | None = None
        self._reservations: Sequence[Reservation] = ()
        self.problem = ""
        """Why nothing can be reserved, while that is so."""
        self.lock = threading.RLock()
        """Held from reading to writing, where two threads do both."""

    def read(self) -> Sequence[Reservation]:
        """All there are, as somebody begins to decide by them."""
        if self._monotonic() >= self._cached_until_s:
            self._object = None
        return self.cached()

    def cached(self) -> Sequence[Reservation]:
        """Those that were read or written last."""
        if self._object is None:
            self._store(self._call(lambda: self._api.get(self._path)))
        return self._reservations

    def write(self, reservations: Sequence[Reservation]) -> None:
        """These take the place of those that are known; nothing is done where they are the same."""
        if list(reservations) != list(self.cached()):
            changed = {**(self._object or {}), "data": reservations_data(reservations)}
            self._store(self._call(lambda: self._api.replace(self._path, changed)))

    def _call(self, requirements: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            answer = requirements()
        except ApiError as error:
            self._object, self.problem = None, str(error)
            raise
        self.problem = ""
        return answer

    def _store(self, raw: Mapping[str, Any]) -> None:
        self._object, self._cached_until_s = raw, self._monotonic() + CACHE_TTL_S
        try:
            self._reservations = read_reservations(raw)
        except BadObject as error:
            log.warning("what was reserved cannot be read, and counts no more: %s", error)
            self._reservations = ()


def with_reservations(pods: Iterable[Member], reservations: Iterable[Reservation]) -> Iterator[Member]:
    """The pods, each with the node reserved for it."""
    reserved_nodes = {uid: (node, each.since_s) for each in reservations for uid, node in each.nodes.items()}
    for pod in pods:
        node, since_s = reserved_nodes.get(pod.uid, ("", pod.reserved_since_s))
        yield replace(pod, reserved_node=node, reserved_since_s=since_s) if node else pod


def still_needed(
    reservations: Iterable[Reservation], pods: Iterable[Member], stale: Iterable[Member], now_s: float
) -> list[Reservation]:
    """What of them is still needed: in time, for pods of which not all are seen bound, and not for stale ones.

    A pod that is not seen may be gone, or our watch is behind that of a former leader. To keep what is reserved for it
    costs nothing: the extender holds no node for a pod that it does not see.
    """
    placed = {pod.uid for pod in pods if pod.node or not pod.alive}
    given_back = {pod.uid for pod in stale}
    left = (each.without(given_back) for each in reservations if each.remaining_s(now_s) > 0.0)
    return [each for each in left if each.needs or not each.nodes.keys() <= placed]


def replacement_uid(uid: str) -> str:
    """The UID by which we call the pod that will take the place of one that is being moved."""
    return f"next-{uid}"


def seats(reservations: Iterable[Reservation], now_s: float) -> Iterator[Member]:
    """For each pod that is being moved one that stands for its next: it takes its room on the new node already."""
    for each in reservations:
        if each.needs and each.remaining_s(now_s) > 0.0:
            for uid, node in each.nodes.items():
                requirements = Requirements(tuple(sorted(each.needs.items())), NodeConstraints())
                yield Member(
                    ObjectKey(each.namespace, each.gang),
                    replacement_uid(uid),
                    node,
                    "Pending",
                    False,
                    now_s,
                    None,
                    requirements,
                )


def hand_over_seats(
    reservations: Iterable[Reservation], pods: Iterable[Member], now_s: float, hold_s: float
) -> list[Reservation]:
    """The same, but that the seat of a pod which was moved is for the one at the gate that has taken its place."""
    pods = list(pods)
    there = {pod.uid for pod in pods if pod.alive}
    gated = {
        (pod.key.namespace, pod.membership.name): pod
        for pod in pods
        if pod.alive and pod.membership.name and GATE in pod.gates
    }
    found = []
    for each in reservations:
        after = gated.get((each.namespace, each.gang))
        if each.needs and after is not None and there.isdisjoint(each.nodes) and each.remaining_s(now_s) > 0.0:
            node = next(iter(each.nodes.values()))
            found.append(Reservation(each.namespace, each.gang, round(now_s, 3), hold_s, {after.uid: node}))
        else:
            found.append(each)
    return found


class NotLeading(ExtenderError):
    """Somebody else may act by now: stop at once."""


class Admitter:
    """Reserves a node for each member of a gang first, then opens the gates one after the other.

    All are reserved by one write while every gate is still shut. A controller that dies before the first gate is open
    leaves members that wait as before; one that dies after it leaves the nodes of all others reserved, and the next
    goes on with these. No write is done without leading, and none is blind: a reservation names the pod's UID and the
    version it is written over, the opening of a gate the UID and the gate. Every method raises an `ApiError` for what
    could not be done, or `NotLeading`.

    Parameters
    ----------
    leads
        Asked before every write.
    opened
        Told of each pod that is not held by our gate any more, before the watch shows it.
    """

    def __init__(
        self, api: Api, ledger: Ledger, leads: Callable[[], bool], opened: Callable[[Member], None] = lambda _: None
    ) -> None:
        self._api, self._ledger, self._leads, self._opened = api, ledger, leads, opened

    def admit(self, gang: Gang, reserved_nodes: Assignment, now_s: float, hold_s: float) -> None:
        """Reserve all nodes, then open all gates. What is reserved as it should be is not reserved for longer."""
        new = {
            member.uid: reserved_nodes[member.uid]
            for member in gang.gated
            if member.reserved_node != reserved_nodes[member.uid]
        }
        if new:
            self._require_leadership()
            made = Reservation(gang.namespace, gang.name, round(now_s, 3), float(math.ceil(hold_s)), new)
            self._ledger.write([*(each.without(new.keys()) for each in self._ledger.cached()), made])
        for member in gang.gated:
            self.open(member, reserved_nodes[member.uid])

    def keep(self, reservations: Sequence[Reservation]) -> None:
        """These and no others are needed any longer."""
        self._require_leadership()
        self._ledger.write(reservations)

    def open(self, member: Member, node: str = "") -> None:
        """Open our gate of a pod, unless it is gone; the node is for people, and not told where it finds no room."""
        self._require_leadership()
        try:
            self._api.patch(_path(member), gate_removal_patch(member.uid, node), strategic=True)
        except (NotFound, Conflict):
            log.info("%s is gone", member)  # or another has its name
        except Invalid:
            if not node:
                raise
            self.open(member)
        self._opened(member)

    def _require_leadership(self) -> None:
        if not self._leads():
            raise NotLeading("no longer leading: stopped in the middle")


def gate_removal_patch(uid: str, node: str) -> dict[str, Any]:
    """The patch that takes our gate off the very pod that was seen, if it is still there, and says what is reserved."""
    told = {"annotations": {RESERVED_NODE: node}} if node else {}
    return {"metadata": {"uid": uid, **told}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}


def _path(member: Member) -> str:
    return path_of(PODS, member.key.namespace, member.key.name)
