"""Decisions and the reasons for them: the last one of each recent pod is kept, and written as an event on request."""

from __future__ import annotations

import queue
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from extender.pods.event import Events
from extender.pods.pod import EXPLAIN_ANNOTATION, Pod
from extender.scoring.request import NodeScores
from extender.scoring.scorers import SCORERS
from extender.view.devices import Floats
from extender.view.snapshot import Integers, NameTable
from recommender.base.units import WallClock, format_duration
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey

MAX_DECISIONS, MAX_BYTES = 5000, 16 << 20
"""Decisions kept, and bytes of all their arrays, beside one list of names for each set of nodes."""

NOWHERE = np.zeros(0, dtype=np.intp)


class RefusedNodes(NamedTuple):
    """The nodes refused for a pod, as arrays: a dict of names takes ten times as much memory."""

    names: Sequence[str] = ()  # names of all nodes of the snapshot
    by_reason: Mapping[str, Integers] = MappingProxyType({})  # reason -> (k,) indices of the nodes refused for it

    @classmethod
    def read(cls, reasons: Mapping[str, str], table: NameTable) -> RefusedNodes:
        """From node -> reason; nodes that the table does not know are left out."""
        if not reasons:
            return cls(table.names)
        number_of = {reason: number for number, reason in enumerate(dict.fromkeys(reasons.values()))}
        numbers = np.fromiter(map(number_of.__getitem__, reasons.values()), np.intp, len(reasons))
        places = np.fromiter(map(table.index.get, reasons, repeat(-1)), np.intp, len(reasons))
        known = places >= 0
        return cls(table.names, {reason: places[known & (numbers == number)] for reason, number in number_of.items()})

    def reasons(self, limit: int | None) -> dict[str, str]:
        """Node -> reason, of the first `limit` nodes by name."""
        found = [(self.names[place], reason) for reason, places in self.by_reason.items() for place in places.tolist()]
        return dict(sorted(found)[:limit])

    def counts(self) -> dict[str, int]:
        """Reason -> number of nodes, the most frequent first."""
        return dict(Counter({reason: len(places) for reason, places in self.by_reason.items()}).most_common())


class AddedOverload(NamedTuple):
    """For (k,) nodes refused because of CPU: indices, overload that the pod would add as a share of its demand; and the
    limit of it."""

    names: Sequence[str]
    places: Integers
    shares: Floats
    tolerated: float

    def as_json(self, limit: int | None) -> dict[str, Any]:
        shares = sorted(zip([self.names[place] for place in self.places.tolist()], self.shares.tolist(), strict=True))
        return {
            "tolerated": round(self.tolerated, 4),
            "least": round(float(self.shares.min()), 4),
            "most": round(float(self.shares.max()), 4),
            "nodes": {node: round(share, 4) for node, share in shares[:limit]},
        }


@dataclass(slots=True)
class Decision:
    """The decision on one pod: refused nodes, scores, and the outcome."""

    pod: Pod
    asked_s: float
    attempts: int = 0  # number of scheduling attempts; `asked_s` is the last, unix seconds
    nodes_asked: int = 0
    source: str = ""  # where the footprint comes from
    # refused, added_overload: refused nodes, and figures on those refused because of CPU; None if there are none
    refused: RefusedNodes = field(default_factory=RefusedNodes)
    added_overload: AddedOverload | None = None
    waited_s: float = 0.0  # how long the pod had been refused by every node
    # nodes, places: names of all nodes of the snapshot, and (m,) indices of the scored ones
    nodes: Sequence[str] = ()
    places: Integers = field(default_factory=lambda: NOWHERE)
    failed: Sequence[str] = ()  # nodes that come last, as a pod of its owner could not be bound there
    # by_scorer, weights, totals, scores: results and weights of the scorers, and the (m,) combined results
    by_scorer: Mapping[str, NodeScores] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    totals: Floats = field(default_factory=lambda: np.zeros(0))
    scores: Integers = field(default_factory=lambda: NOWHERE)
    # favourite, bound: the advised node and the actual one; empty if none (yet)
    favourite: str = ""
    bound: str = ""

    @property
    def bytes_held(self) -> int:
        """Bytes of its arrays."""
        arrays = [*self.refused.by_reason.values(), self.places, self.totals, self.scores]
        if self.added_overload is not None:
            arrays += self.added_overload.places, self.added_overload.shares
        for scores in self.by_scorer.values():
            arrays += scores.values, *scores.facts.values()
        return sum([array.nbytes for array in arrays])

    @property
    def outcome(self) -> str:
        """What the scheduler did, as a label."""
        if not self.bound:
            return "not bound yet"
        if not self.favourite:
            return "bound without our advice"
        if self.bound != self.favourite:
            return "outvoted by the scheduler's own scores"
        return "bound where advised" if len(self.places) else "bound to the only node left"

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """Plain data for JSON: at most `limit` scored nodes, best first, and as many refused ones.

        `reasons` counts all refused nodes by reason.
        """
        order = np.lexsort((self.places, -self.totals, -self.scores)) if len(self.places) else self.places
        return {
            "pod": str(self.pod),
            "uid": self.pod.uid,
            "workload": self.pod.workload,
            "askedSeconds": round(self.asked_s, 3),
            "attempts": self.attempts,
            "nodesAsked": self.nodes_asked,
            "waitedSeconds": round(self.waited_s, 3),
            "demandFrom": self.source,
            "weights": dict(self.weights),
            "failedBefore": list(self.failed),
            "advised": self.favourite,
            "bound": self.bound,
            "outcome": self.outcome,
            "nodes": [self._node(int(number)) for number in order[:limit]],
            "refused": self.refused.reasons(limit),
            "reasons": self.refused.counts(),
            "cpuOverload": self.added_overload.as_json(limit) if self.added_overload is not None else None,
        }

    def node_as_json(self, node: str) -> dict[str, Any] | None:
        """One scored node, as in `as_json`; None if it was not scored."""
        number = next((number for number, place in enumerate(self.places) if self.nodes[int(place)] == node), None)
        return None if number is None else self._node(number)

    def _node(self, number: int) -> dict[str, Any]:
        return {
            "node": self.nodes[int(self.places[number])],
            "score": int(self.scores[number]),
            "total": round(float(self.totals[number]), 4),
            "scorers": {
                name: {
                    "value": round(float(scores.values[number]), 3),
                    "why": SCORERS[name].explain({fact: float(of[number]) for fact, of in scores.facts.items()}),
                }
                for name, scores in self.by_scorer.items()
            },
        }


class Decisions:
    """The last decision of each pod, thread-safe. One decision per pod, so frequent retries do not evict the others."""

    def __init__(self, max_decisions: int = MAX_DECISIONS, max_bytes: int = MAX_BYTES) -> None:
        self._max_decisions, self._max_bytes, self._bytes = max_decisions, max_bytes, 0
        self._lock = threading.Lock()
        self._by_uid: OrderedDict[str, Decision] = OrderedDict()

    def put(self, decision: Decision, attempts: int) -> None:
        """Store a decision and count further attempts; evicts the oldest decisions if there are too many."""
        uid = decision.pod.uid
        with self._lock:
            former = self._drop(uid)
            decision.attempts = attempts + (former.attempts if former is not None else 0)
            self._by_uid[uid] = decision
            self._bytes += decision.bytes_held
            while len(self._by_uid) > self._max_decisions or (self._bytes > self._max_bytes and len(self._by_uid) > 1):
                self._drop(next(iter(self._by_uid)))

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, uid: str) -> Decision | None:
        with self._lock:
            return self._by_uid.get(uid)

    def find(self, namespace: str, name: str) -> Decision | None:
        """The latest decision on a pod with this name."""
        with self._lock:
            named = (d for d in reversed(self._by_uid.values()) if (d.pod.namespace, d.pod.name) == (namespace, name))
            return next(named, None)

    def bound(self, uid: str, node: str) -> Decision | None:
        """Record that a pod is bound; returns its decision the first time."""
        with self._lock:
            decision = self._by_uid.get(uid)
            if decision is None or decision.bound:
                return None
            decision.bound = node
            return decision

    def _drop(self, uid: str) -> Decision | None:
        decision = self._by_uid.pop(uid, None)
        if decision is not None:
            self._bytes -= decision.bytes_held
        return decision


MAX_QUEUED = 1000


def event_text(decision: Decision) -> str:
    """What became of the advice, then the scorers, those with the largest weight first."""
    scored = decision.node_as_json(decision.bound)
    where = f"{decision.bound}: {decision.outcome}"
    if decision.waited_s:
        where += f" after being refused by all nodes for {format_duration(round(decision.waited_s))}"
    if decision.bound != decision.favourite and decision.favourite:
        where += f" ({decision.favourite} was advised)"
    if scored is None:
        return where
    by_weight = sorted(scored["scorers"].items(), key=lambda scorer: -decision.weights[scorer[0]])
    reasons = [f"{name} {each['value']:g} ({each['why']})" for name, each in by_weight]
    return f"{where}, {scored['score']} of 10 among {len(decision.places)} nodes; {'; '.join(reasons)}"


class EventWriter:
    """Writes events on a thread of its own; events that cannot be written in time are dropped and counted."""

    def __init__(self, api: Api, clock: WallClock) -> None:
        self._events = Events(api, "phasewise-extender", clock)
        self._waiting: queue.Queue[Decision | None] = queue.Queue(MAX_QUEUED)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait at most a second for queued events."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(1.0)

    def bound(self, decision: Decision) -> None:
        """Queue an event on a bound pod if its annotation asks for one."""
        if decision.pod.annotations.get(EXPLAIN_ANNOTATION) != "event":
            return
        try:
            self._waiting.put_nowait(decision)
        except queue.Full:
            self.dropped += 1

    def _run(self) -> None:
        while (decision := self._waiting.get()) is not None:
            pod = decision.pod
            key = ObjectKey(pod.namespace, pod.name)
            self.dropped += not self._events.write(key, pod.uid, "PlacementExplained", event_text(decision))
