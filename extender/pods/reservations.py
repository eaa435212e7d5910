"""Reservations of nodes for the pods of gangs, in a ConfigMap that only `phasewise controller` may write.

For a gang it holds UIDs and nodes but no amounts: what the pods request is reserved, and nothing for a pod that is
bound, deleted or recreated. A reservation for a move is made before the replacement pod exists, so it also holds
amounts. docs/decisions/extender.md says why it is a single object.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import orjson

from extender.pods.pod import Pod
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.objects.reading import BadField, Fields, reads

log = logging.getLogger(__name__)

Identity = tuple[str, str, float]
"""Distinguishes successive reservations of the same gang."""

CONFIG_MAP = "phasewise-reservations"
ENTRY = "gangs.json"


@dataclass(frozen=True)
class Reservation:
    """Nodes reserved for pods of one gang."""

    namespace: str
    gang: str  # name of the gang, unique within the namespace
    # since_s, hold_s: creation by the controller's clock, unix seconds to the millisecond; and duration
    since_s: float
    hold_s: float
    nodes: Mapping[str, str]  # Pod UID -> node
    # needs, priority: for a move: resource -> amount, and priority, of the pod that will replace the one in `nodes`;
    # else empty and 0. The controller's amounts, with shares of GPUs counted in GPUs
    needs: Mapping[str, float] = field(default_factory=dict)
    priority: int = 0
    # the extended resources that this pod requests. Nodes offer shares of GPUs in this unit
    extended: Mapping[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        return self.namespace, self.gang, self.since_s

    @cached_property
    def uids_by_node(self) -> Mapping[str, Sequence[str]]:
        """Node -> UIDs of the pods that it is reserved for, including bound ones."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for uid, node in self.nodes.items():
            found[node].append(uid)
        return found

    def without(self, uids: Set[str]) -> Reservation:
        """The reservation without these pods; itself if it names none of them."""
        if uids.isdisjoint(self.nodes):
            return self
        return replace(self, nodes={uid: node for uid, node in self.nodes.items() if uid not in uids})

    def remaining_s(self, now_s: float) -> float:
        """Time until it expires, at most `hold_s` even if clocks differ; 0 if they differ by more than that. For a move
        always `hold_s`: the controller drops it when the move has ended, and no step of the clock may do so before.

        >>> reservation = Reservation("team", "g", since_s=1000.0, hold_s=300.0, nodes={})
        >>> [reservation.remaining_s(now_s) for now_s in (1100.0, 990.0, 1300.0, 0.0)]
        [200.0, 300.0, 0.0, 0.0]
        """
        age_s = 0.0 if self.needs else now_s - self.since_s
        return self.hold_s - max(age_s, 0.0) if abs(age_s) < self.hold_s else 0.0


@reads("ConfigMap")
def read_reservations(raw: Fields) -> tuple[Reservation, ...]:
    """Read the reservations of the ConfigMap, skipping malformed ones; BadObject if it holds no list."""
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
            log.warning("a malformed reservation is ignored: %s", error)
    return tuple(found)


def _reservation(fields: Fields) -> Reservation:
    since_s, hold_s = fields.time_s("since"), fields.integer("holdSeconds")
    if since_s is None or hold_s <= 0:
        raise BadField(fields.path, "does not say since when and for how long")
    by_node = fields.child("nodes")
    nodes = {uid: node for node in by_node.raw for uid in by_node.texts(node)}
    return Reservation(
        fields.required("namespace"), fields.required("gang"), since_s, float(hold_s), nodes,
        _amounts(fields.child("needs")), fields.integer("priority"), _amounts(fields.child("extended")),
    )  # fmt: skip


def _amounts(fields: Fields) -> dict[str, float]:
    return {name: fields.quantity(name) or 0.0 for name in fields.raw}


def reservations_data(reservations: Sequence[Reservation]) -> Mapping[str, str]:
    return {ENTRY: orjson.dumps([_as_json(each) for each in reservations]).decode()}


def _as_json(reservation: Reservation) -> dict[str, Any]:
    needs, priority, extended = reservation.needs, reservation.priority, reservation.extended
    of_a_move = {"needs": needs, "priority": priority, "extended": extended} if needs else {}
    return {
        "namespace": reservation.namespace,
        "gang": reservation.gang,
        "since": datetime.fromtimestamp(reservation.since_s, UTC).isoformat(timespec="milliseconds"),
        "holdSeconds": round(reservation.hold_s),
        "nodes": reservation.uids_by_node,
        **of_a_move,
    }


class Reservations:
    """The reservations in force, replaced as a whole, so that threads need no lock. The end of one is computed when it
    is first seen, for a gang by the wall clock, as a restart must not extend it; then the monotonic clock counts."""

    def __init__(self, clock: WallClock, monotonic: MonotonicClock) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._all: Sequence[tuple[Reservation, float]] = ()  # each with its end by the monotonic clock

    def put(self, reservations: Iterable[Reservation]) -> None:
        ends = {each.identity: until_s for each, until_s in self._all}
        now_s, monotonic_s = self._clock(), self._monotonic()
        self._all = [(each, ends.get(each.identity, monotonic_s + each.remaining_s(now_s))) for each in reservations]

    def node_of(self, uid: str) -> str:
        """The node reserved for a pod; empty for none."""
        return next((node for each in self.active() if (node := each.nodes.get(uid))), "")

    def replacement_of(self, uid: str) -> Pod | None:
        """A placeholder for the replacement of a pod that is being moved; None for other pods."""
        return next((_replacement(each) for each in self.active() if each.needs and uid in each.nodes), None)

    def by_node(self) -> Mapping[str, Sequence[str]]:
        """Node -> UIDs of the pods that it is reserved for, including bound ones."""
        active = self.active()
        if len(active) == 1:
            return active[0].uids_by_node
        nodes = {node for each in active for node in each.uids_by_node}
        return {node: [uid for each in active for uid in each.uids_by_node.get(node, ())] for node in nodes}

    def active(self) -> Sequence[Reservation]:
        now_s = self._monotonic() if self._all else 0.0
        return [each for each, until_s in self._all if now_s < until_s]


def _replacement(reservation: Reservation) -> Pod:
    needs = reservation.needs
    return Pod(
        reservation.namespace, reservation.gang, "", "", False, "", "",
        (needs.get("cpu", 0.0), needs.get("memory", 0.0)), (), 0.0, "", {}, True,
        priority=reservation.priority, extended=reservation.extended,
    )  # fmt: skip
