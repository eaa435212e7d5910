"""One decision on one snapshot: read the question, judge the nodes, remember why, and what was advised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from extender.errors import BadRequest
from extender.placing.decisions import Decision, Decisions
from extender.placing.preemption import sufficient, worth_evicting
from extender.placing.reserved import elsewhere, held_for_others
from extender.pods.pod import Pod
from extender.protocol.wire import Asked, AskedVictims, Filtered, Scored, Victims
from extender.reasons import CPU_REASON, for_a_time
from extender.scoring.combine import NEUTRAL, points_of, total_of, weights_for
from extender.scoring.filter import refused
from extender.scoring.request import PlacementRequest
from extender.scoring.scorers import SCORERS
from extender.settings import Settings
from extender.view.snapshot import Integers
from extender.view.state import ClusterState, Look
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.reading import BadField, Fields

Json = Mapping[str, Any]


class Placer:
    """The answers to a scheduler. Every method may be called from any thread, any number of times for one pod.

    Parameters
    ----------
    read_pod
        Makes a pod of its JSON.
    clock
        Unix seconds.
    """

    def __init__(
        self,
        state: ClusterState,
        settings: Settings,
        decisions: Decisions,
        read_pod: Callable[[Json], Pod],
        clock: Callable[[], float],
    ) -> None:
        self._state, self._settings, self.decisions = state, settings, decisions
        self._read_pod, self._clock = read_pod, clock
        self._advising = threading.Lock()
        self._latest: tuple[Json, Pod] | None = None
        self.unknown_nodes = 0
        """Times that `filter` was asked about a node that no watch has shown."""

    def filter(self, asked: Asked) -> Filtered:
        """Which nodes the pod must not go to; none for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            return Filtered(list(dict.fromkeys(asked.names)), {})
        request, unknown = self._request_on(pod, asked.names)
        self.unknown_nodes += len(unknown)
        each_once = len(request.places) + len(unknown) == len(asked.names)
        names = asked.names if each_once else list(dict.fromkeys(asked.names))
        found = elsewhere(pod, names, self._state)
        decision = Decision(pod, self._clock(), asked=len(names), source=request.footprint.source)
        decision.waited_s = request.waited_s
        if found is None:
            found = self._overloaded(request, decision) | held_for_others(pod, names, self._state)
        decision.refused = found
        resolvable = ""
        passed = [name for name in names if name not in found] if found else names
        if found and not passed:
            self._state.waiting.refused(pod.uid)
            resolvable = worth_evicting(request, self._state, self._settings.limits)
        if len(passed) == 1:  # the scheduler does not ask for scores then
            decision.favourite = passed[0]
            self._state.advise(pod, passed[0])
        self.decisions.put(decision, attempts=1)
        return Filtered(passed, found, resolvable)

    def prioritize(self, asked: Asked) -> Scored:
        """A score of 0 to 10 for each node; all the same for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            snapshot = self._state.snapshot()
            places, unknown = snapshot.table.find(asked.names)
            return Scored(snapshot.table.names, places, np.full(len(places), NEUTRAL), unknown)
        with self._advising:  # two schedulers that ask at once must not be sent to the same node
            request, unknown = self._request_on(pod, asked.names)
            if not len(request.places):
                return Scored(neutral=unknown)
            decision = self._decide(request)
            self._state.advise(pod, decision.favourite)
        former = self.decisions.of(pod.uid)
        decision.asked = former.asked if former is not None else len(request.places) + len(unknown)
        if former is not None:
            decision.refused, decision.added, decision.tolerated = former.refused, former.added, former.tolerated
            decision.waited_s = former.waited_s
        self.decisions.put(decision, attempts=0 if former is not None else 1)
        return Scored(decision.nodes, decision.places, decision.scores, unknown)

    def preempt(self, asked: AskedVictims) -> Victims:
        """The nodes that would let the pod in, and who must be evicted there: those proposed, and others of ours where
        they would not do. Nodes that would refuse it all the same, or without anybody to evict, are left out."""
        pod = self._pod(asked.pod)
        if not self._state.is_ours(pod):
            return {node: uids for node, uids in asked.victims.items() if uids}
        there = {node: self._state.residents(node) for node in asked.victims}
        request, unknown = self._request_on(pod, list(asked.victims))
        judged = sufficient(request, asked.victims, there, self._settings.limits)
        chosen = {node: asked.victims[node] for node in unknown} | judged
        leaving = {
            node: [there[node][uid].pod for uid in uids]
            for node, uids in chosen.items()
            if there[node].keys() >= set(uids)
        }
        held = held_for_others(pod, list(leaving), self._state, leaving)
        return {node: uids for node, uids in chosen.items() if uids and node not in held}

    def _request_on(self, pod: Pod, names: Sequence[str]) -> tuple[PlacementRequest, list[str]]:
        """What the scorers are asked of the nodes that are known; and the names of the others."""
        look = self._state.look(pod)
        places, unknown = look.snapshot.table.find(names)
        return _request(pod, look, places), unknown

    def _overloaded(self, request: PlacementRequest, decision: Decision) -> dict[str, str]:
        """Node -> why the pod must not go there, by the forecast; the numbers behind it go into the decision."""
        refusals, names = refused(request, self._settings.limits), request.snapshot.table.names
        found: dict[str, str] = {}
        for reason, there in refusals.by_reason.items():
            words = for_a_time(reason, self._settings.limits.patience_s)
            found |= {names[place]: words for place in request.places[there].tolist()}
        if (short := refusals.by_reason.get(CPU_REASON)) is not None and refusals.added is not None:
            shares = zip(request.places[short].tolist(), refusals.added[short].tolist(), strict=True)
            decision.added, decision.tolerated = {names[place]: share for place, share in shares}, refusals.tolerated
        return found

    def _decide(self, request: PlacementRequest) -> Decision:
        weights = weights_for(request.pod.words, self._settings.weights)
        said = {
            name: scores
            for name, weight in weights.items()
            if weight > 0.0 and (scores := SCORERS[name].score(request)) is not None
        }
        totals = total_of(said, weights, len(request.places))
        use = (request.use[:, 0] * request.per_unit).max(axis=0)
        points = points_of(totals, use, request.here(request.snapshot.table.rank))
        return Decision(
            request.pod,
            self._clock(),
            source=request.footprint.source,
            nodes=request.snapshot.table.names,
            places=request.places,
            said=said,
            weights=weights,
            totals=totals,
            scores=points.scores,
            favourite=request.snapshot.table.names[request.places[points.favourite]],
        )

    def _pod(self, raw: Json) -> Pod:
        """The pod of a request; what `filter` was asked about, or the watch has shown, is not read again.

        A pod of one version never changes.
        """
        latest = self._latest
        if latest is not None and latest[0] is raw:
            return latest[1]
        try:
            metadata = Fields(raw).child("metadata")
            pod = self._state.waiting.of(metadata.text("uid"))
            if pod is None or metadata.raw.get("resourceVersion") != pod.version:
                pod = self._read_pod(raw)
        except (BadField, BadObject) as error:
            raise BadRequest(str(error)) from error
        if not pod.uid:
            raise BadRequest(f"Pod {pod} has no uid")
        self._latest = raw, pod
        return pod


def _request(pod: Pod, look: Look, places: Integers) -> PlacementRequest:
    return PlacementRequest(pod, look.footprint, look.snapshot, places, look.peers, look.waited_s)
