"""Nodes reserved for the pods of gangs, as they stand in a ConfigMap that `phasewise controller` alone may write.

For a gang it holds UIDs and nodes, no amounts: what is reserved is what the pods themselves ask for, and nothing for a
pod that is bound, gone, or made anew under the same name. A pod that is moved needs a seat before the one is made that
will take its place, so that its reservation says how much. Why it is one object stands in docs/decisions/extender.md.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from extender.pods.pod import Pod
from recommender.cluster.objects.reading import BadField, Fields, reads
from recommender.cluster.objects.requests import extended_of

log = logging.getLogger(__name__)

CONFIG_MAP = "phasewise-reservations"
ENTRY = "gangs.json"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes for pods of one gang, reserved at one moment.

    Attributes
    ----------
    gang
        Its name, unique within the namespace.
    since_s, hold_s
        Unix seconds of the controller's clock, to the millisecond; and for how long it counts.
    nodes
        Pod UID -> node.
    needs, priority
        Resource -> cores, bytes or pieces, and the priority, of whoever takes the place of these pods, which are to be
        moved there; empty and 0 where the node is for the pods themselves.
    """

    namespace: str
    gang: str
    since_s: float
    hold_s: float
    nodes: Mapping[str, str]
    needs: Mapping[str, float] = field(default_factory=dict)
    priority: int = 0

    def without(self, uids: Set[str]) -> Reservation:
        """The same but for these pods; itself where it names none of them."""
        if uids.isdisjoint(self.nodes):
            return self
        return replace(self, nodes={uid: node for uid, node in self.nodes.items() if uid not in uids})

    def remaining_s(self, now_s: float) -> float:
        """For how long it still counts. A clock that was put back, or is ahead of ours, makes it no longer than
        `hold_s`; one that is further off than that makes it count for nothing.

        Examples
        --------
        >>> reservation = Reservation("team", "g", since_s=1000.0, hold_s=300.0, nodes={})
        >>> [reservation.remaining_s(now_s) for now_s in (1100.0, 990.0, 1300.0, 0.0)]
        [200.0, 300.0, 0.0, 0.0]
        """
        age_s = now_s - self.since_s
        return self.hold_s - max(age_s, 0.0) if abs(age_s) < self.hold_s else 0.0


@reads("ConfigMap")
def read_reservations(raw: Fields) -> tuple[Reservation, ...]:
    """Those of the ConfigMap that can be read: one that cannot voids no other. BadObject where it is no list of any."""
    text, found = raw.child("data").text(ENTRY), []
    try:
        entries = orjson.loads(text) if text else []
    except orjson.JSONDecodeError as error:
        raise BadField(f"data.{ENTRY}", "is not JSON") from error
    if not isinstance(entries, list):
        raise BadField(f"data.{ENTRY}", "is not a list")
    for number, entry in enumerate(entries):
        try:
            found.append(_reservation(Fields(entry, f"data.{ENTRY}[{number}]")))
        except BadField as error:
            log.warning("a reservation counts for nothing: %s", error)
    return tuple(found)


def _reservation(told: Fields) -> Reservation:
    since_s, hold_s = told.time_s("since"), told.integer("holdSeconds")
    if since_s is None or hold_s <= 0:
        raise BadField(told.path, "does not say since when and for how long")
    by_node = told.child("nodes")
    nodes = {uid: node for node in by_node.raw for uid in by_node.texts(node)}
    asked = told.child("needs")
    needs = {name: asked.quantity(name) or 0.0 for name in asked.raw}
    namespace, gang, priority = told.required("namespace"), told.required("gang"), told.integer("priority")
    return Reservation(namespace, gang, since_s, float(hold_s), nodes, needs, priority)


def reservations_data(reservations: Sequence[Reservation]) -> Mapping[str, str]:
    """The `data` of the ConfigMap."""
    return {ENTRY: orjson.dumps([_as_json(each) for each in reservations]).decode()}


def _as_json(reservation: Reservation) -> dict[str, Any]:
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    for uid, node in reservation.nodes.items():
        by_node[node].append(uid)
    of_a_move = {"needs": reservation.needs, "priority": reservation.priority} if reservation.needs else {}
    return {
        "namespace": reservation.namespace,
        "gang": reservation.gang,
        "since": datetime.fromtimestamp(reservation.since_s, UTC).isoformat(timespec="milliseconds"),
        "holdSeconds": round(reservation.hold_s),
        "nodes": by_node,
        **of_a_move,
    }


class _Active(NamedTuple):
    reservation: Reservation
    until_s: float
    uids_on: Mapping[str, Sequence[str]]


class Reservations:
    """Those that count now. What counts is replaced as a whole, so that threads need no lock.

    How long a reservation counts is settled when it is first seen, by the clock on the wall, since a restart must not
    renew it; from then on it is measured by one that nobody puts forward or back.

    Parameters
    ----------
    clock, monotonic
        Unix seconds, and monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._all: Sequence[_Active] = ()

    def put(self, told: Iterable[Reservation]) -> None:
        """All there are now."""
        ends = {_identity(held.reservation): held.until_s for held in self._all}
        now_s, monotonic_s = self._clock(), self._monotonic()
        self._all = [
            _Active(each, ends.get(_identity(each), monotonic_s + each.remaining_s(now_s)), _by_node(each))
            for each in told
        ]

    def node_of(self, uid: str) -> str:
        """The node that is reserved for a pod; empty for none."""
        return next((node for each in self._active() if (node := each.reservation.nodes.get(uid))), "")

    def replacement_of(self, uid: str) -> Pod | None:
        """What stands for the pod that will take the place of one that is moved; None for any other."""
        return next((_replacement(each.reservation) for each in self._active() if _moves(each.reservation, uid)), None)

    def by_node(self) -> Mapping[str, Sequence[str]]:
        """Node -> UIDs of the pods that it is reserved for, bound ones among them."""
        active = self._active()
        if len(active) == 1:
            return active[0].uids_on
        nodes = {node for held in active for node in held.uids_on}
        return {node: [uid for held in active for uid in held.uids_on.get(node, ())] for node in nodes}

    def _active(self) -> Sequence[_Active]:
        if not self._all:
            return ()
        now_s = self._monotonic()
        return [held for held in self._all if now_s < held.until_s]


def _moves(reservation: Reservation, uid: str) -> bool:
    return bool(reservation.needs) and uid in reservation.nodes


def _replacement(reservation: Reservation) -> Pod:
    needs = reservation.needs
    return Pod(
        reservation.namespace, reservation.gang, "", "", False, "", "",
        (needs.get("cpu", 0.0), needs.get("memory", 0.0)), (), 0.0, "", {}, True,
        priority=reservation.priority, extended=extended_of(needs),
    )  # fmt: skip


def _identity(reservation: Reservation) -> tuple[str, str, float]:
    """What tells one reservation from the next of the same gang."""
    return reservation.namespace, reservation.gang, reservation.since_s


def _by_node(reservation: Reservation) -> Mapping[str, Sequence[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for uid, node in reservation.nodes.items():
        found[node].append(uid)
    return found
