"""The ConfigMap of reservations, written with optimistic locking, and the admission of gangs by means of it."""

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
from extender.pods.reservations import (
    CONFIG_MAP,
    Identity,
    Reservation,
    Reservations,
    read_reservations,
    reservations_data,
)
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadObject, Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import CONFIG_MAPS, PODS, path_of

log = logging.getLogger(__name__)

CACHE_TTL_S = 5.0  # how long the last read or write is used: shorter than it takes another replica to become leader


class Ledger:
    """The reservations, cached; every method raises `ApiError` if a request fails. Only the leader writes them: a write
    by anybody else makes our next one fail with a conflict, and the reservations are read again. Those of moves are
    left out once they have expired."""

    def __init__(
        self, api: Api, namespace: str, clock: WallClock = time.time, monotonic: MonotonicClock = time.monotonic
    ) -> None:
        self._api, self._path = api, path_of(CONFIG_MAPS, namespace, CONFIG_MAP)
        self._monotonic, self._cached_until_s = monotonic, 0.0
        self._object: Mapping[str, Any] | None = None
        self._stored: Sequence[Reservation] = ()
        self._found_s: dict[Identity, float] = {}  # when those that another controller made were first read
        self._in_force = Reservations(clock, monotonic)
        self.problem = ""  # why nothing can be reserved; empty if it can
        self.lock = threading.RLock()  # held from read to write, as two threads do both

    def read(self) -> Sequence[Reservation]:
        """The reservations, at most `CACHE_TTL_S` old."""
        if self._monotonic() >= self._cached_until_s:
            self._object = None
        return self.cached()

    def cached(self) -> Sequence[Reservation]:
        """The reservations as last read or written."""
        if self._object is None:
            ours = {each.identity for each in self._stored} - self._found_s.keys()
            self._store(self._call(lambda: self._api.get(self._path)))
            others, now_s = {each.identity for each in self._stored} - ours, self._monotonic()
            self._found_s = {identity: self._found_s.get(identity, now_s) for identity in others}
        in_force = self._in_force.active()
        return [each for each in self._stored if not each.needs or each in in_force]

    def found_within(self, seconds: float) -> list[Reservation]:
        """Reservations that another controller made, if they were first read so recently."""
        since_s = self._monotonic() - seconds
        return [each for each in self._stored if self._found_s.get(each.identity, -math.inf) > since_s]

    def write(self, reservations: Sequence[Reservation]) -> None:
        """Replace all reservations; no request is made if nothing changes."""
        if self._object is None:
            self.cached()
        if list(reservations) != list(self._stored):
            changed = {**(self._object or {}), "data": reservations_data(reservations)}
            self._store(self._call(lambda: self._api.replace(self._path, changed)))

    def _call(self, request: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            answer = request()
        except ApiError as error:
            self._object, self.problem = None, str(error)
            raise
        self.problem = ""
        return answer

    def _store(self, raw: Mapping[str, Any]) -> None:
        self._object, self._cached_until_s = raw, self._monotonic() + CACHE_TTL_S
        try:
            self._stored = read_reservations(raw)
        except BadObject as error:
            log.warning("the reservations cannot be parsed and are ignored: %s", error)
            self._stored = ()
        self._in_force.put(self._stored)


def with_reservations(pods: Iterable[Member], reservations: Iterable[Reservation]) -> Iterator[Member]:
    reserved_nodes = {uid: (node, each.since_s) for each in reservations for uid, node in each.nodes.items()}
    for pod in pods:
        node, since_s = reserved_nodes.get(pod.uid, ("", pod.reserved_since_s))
        yield replace(pod, reserved_node=node, reserved_since_s=since_s) if node else pod


def still_needed(
    reservations: Iterable[Reservation], pods: Iterable[Member], stale: Iterable[Member], now_s: float
) -> list[Reservation]:
    """The reservations of moves, and those that have not expired and have pods that still wait for a node, without
    stale pods."""
    waiting, stale_uids = {pod.uid for pod in pods if pod.alive and not pod.node}, {pod.uid for pod in stale}

    def needed(each: Reservation) -> bool:
        return bool(each.needs) or (not waiting.isdisjoint(each.nodes) and each.remaining_s(now_s) > 0.0)

    return [each for each in (one.without(stale_uids) for one in reservations) if needed(each)]


def with_kept(
    reservations: Sequence[Reservation], gang: Gang, nodes: Assignment, now_s: float, hold_s: float
) -> list[Reservation]:
    """The reservations, with the nodes that are kept for a waiting gang; made anew once half of `hold_s` has passed, so
    that they end soon after the controller does."""
    for each in reservations:
        if (each.namespace, each.gang) == gang.key and each.nodes == nodes and each.remaining_s(now_s) > hold_s / 2.0:
            return list(reservations)
    others = [left for each in reservations if (left := each.without(nodes.keys())).nodes]
    return [*others, Reservation(gang.namespace, gang.name, round(now_s, 3), float(math.ceil(hold_s)), nodes)]


def replacement_uid(uid: str) -> str:
    """Placeholder UID of the pod that will replace one that is being moved."""
    return f"next-{uid}"


def replacement_members(reservations: Iterable[Reservation], now_s: float) -> Iterator[Member]:
    """A placeholder for the replacement of each pod being moved: it occupies the new node from now on."""
    for each in reservations:
        if each.needs:
            key = ObjectKey(each.namespace, each.gang)
            requirements = Requirements(tuple(sorted(each.needs.items())), NodeConstraints())
            for uid, node in each.nodes.items():
                yield Member(
                    key, replacement_uid(uid), node, "Pending", deleting=False, created_s=now_s, owner=None,
                    requirements=requirements,
                )  # fmt: skip


def hand_over_reservations(
    reservations: Iterable[Reservation], pods: Iterable[Member], now_s: float, hold_s: float
) -> list[Reservation]:
    """The reservations, those made for a move handed over to the gated pod that replaces the moved one."""
    alive = [pod for pod in pods if pod.alive]
    uids = {pod.uid for pod in alive}
    gated = {
        (pod.key.namespace, pod.membership.name): pod for pod in alive if pod.membership.name and GATE in pod.gates
    }
    found = []
    for each in reservations:
        replacement = gated.get((each.namespace, each.gang))
        if each.needs and replacement is not None and uids.isdisjoint(each.nodes):
            node = next(iter(each.nodes.values()))
            found.append(Reservation(each.namespace, each.gang, round(now_s, 3), hold_s, {replacement.uid: node}))
        else:
            found.append(each)
    return found


class NotLeading(ExtenderError):
    """Another replica may be leading: stop at once."""


class Admitter:
    """Admits gangs: reserves a node for each member, then removes the gates one by one.

    All nodes are reserved by one write before the first gate is removed. If the controller dies before that, the
    members still wait; if it dies later, the next leader goes on with the reservations. Every write names what it
    overwrites: the resourceVersion of the reservations, the UID of the pod whose gate is removed. Every method raises
    `ApiError` or `NotLeading`. `removed` is called with each pod whose gate was removed, before the watch shows it.
    """

    def __init__(
        self, api: Api, ledger: Ledger, leads: Callable[[], bool], removed: Callable[[Member], None] = lambda _: None
    ) -> None:
        self._api, self._ledger, self._leads, self._gate_removed = api, ledger, leads, removed

    def admit(self, gang: Gang, reserved_nodes: Assignment, now_s: float, hold_s: float) -> None:
        """Reserve all nodes, then remove all gates. Reservations that exist already are not extended."""
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
            self.remove_gate(member, reserved_nodes[member.uid])

    def write(self, reservations: Sequence[Reservation]) -> None:
        """Replace all reservations."""
        self._require_leadership()
        self._ledger.write(reservations)

    def remove_gate(self, member: Member, node: str = "") -> None:
        """Remove our gate from a pod, if it still exists, and annotate its node, if the annotation is accepted."""
        self._require_leadership()
        try:
            self._api.patch(path_of(PODS, *member.key), gate_removal_patch(member.uid, node), strategic=True)
        except (NotFound, Conflict):
            log.info("%s is gone", member)  # or another pod has its name
        except Invalid:
            if not node:
                raise
            self.remove_gate(member)
        self._gate_removed(member)

    def _require_leadership(self) -> None:
        if not self._leads():
            raise NotLeading("no longer leading: stopped part-way")


def gate_removal_patch(uid: str, node: str) -> dict[str, Any]:
    """The patch that removes our gate from the pod with this UID and annotates its reserved node."""
    annotations = {"annotations": {RESERVED_NODE: node}} if node else {}
    return {"metadata": {"uid": uid, **annotations}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
