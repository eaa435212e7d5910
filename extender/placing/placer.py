"""Answers one call of the scheduler on one snapshot, and records the decision and the advised node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from extender.errors import BadRequest
from extender.placing.decisions import AddedOverload, Decision, Decisions, RefusedNodes
from extender.placing.preemption import node_worth_evicting, sufficient_victims
from extender.placing.reserved import reserved_elsewhere, reserved_for_others
from extender.pods.pod import CPU_REASON, OTHERS_REASON, Pod, with_time_limit
from extender.protocol.wire import ExtenderArgs, FilterResult, HostPriorities, PreemptionArgs, Victims
from extender.scoring.filter import refused
from extender.scoring.request import PlacementRequest
from extender.scoring.scorers import NEUTRAL, SCORERS, scaled_scores, weighted_mean, weights_for
from extender.settings import Settings
from extender.view.devices import Floats
from extender.view.state import ClusterState
from recommender.base.units import WallClock
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.reading import BadField, Fields

Json = Mapping[str, Any]

FAILED_STEP = 1e-3  # between the totals of nodes that come last


class Placer:
    """Answers a scheduler. Thread-safe; a pod may be asked about any number of times."""

    def __init__(
        self,
        state: ClusterState,
        settings: Settings,
        decisions: Decisions,
        read_pod: Callable[[Json], Pod],
        clock: WallClock,
    ) -> None:
        self._state, self._settings, self.decisions = state, settings, decisions
        self._read_pod, self._clock = read_pod, clock
        self._advising = threading.Lock()
        self._latest: tuple[Json, Pod] | None = None
        self.unknown_nodes = 0  # how many times `filter` was asked about a node that the watch has not shown

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Refuse nodes for a pod; none for pods that are not ours."""
        pod = self._pod(args.pod)
        self._state.came_back(pod)
        if not self._state.is_ours(pod):
            return FilterResult(list(dict.fromkeys(args.names)), {})
        request, unknown = self._request_on(pod, args.names)
        self.unknown_nodes += len(unknown)
        each_once = len(request.places) + len(unknown) == len(args.names)
        names = args.names if each_once else list(dict.fromkeys(args.names))
        found = reserved_elsewhere(pod, names, self._state)
        decision = Decision(pod, self._clock(), nodes_asked=len(names), source=request.footprint.source)
        decision.waited_s = request.waited_s
        if found is None:
            found = self._forecast_refusals(request, decision) if pod.of_our_scheduler else {}
            found |= reserved_for_others(pod, names, self._state, {})
        decision.refused = RefusedNodes.read(found, request.snapshot.table)
        resolvable = ""
        passed = [name for name in names if name not in found] if found else names
        if found and not passed:
            self._state.waiting.refused(pod.uid)
            resolvable = node_worth_evicting(request, self._state, self._settings.limits)
            self._state.hold_nominated(pod)
        if len(passed) == 1:  # then the scheduler does not ask for scores
            decision.favourite = passed[0]
            self._state.advise(pod, passed[0])
        self.decisions.put(decision, attempts=1)
        if self._settings.filter_to_best and len(passed) > 1:
            passed = self._best_of(pod, passed)
        return FilterResult(passed, found, resolvable)

    def _best_of(self, pod: Pod, passed: Sequence[str]) -> Sequence[str]:
        """The best node alone, for which the scheduler then asks for no scores; all if soft constraints of the pod, or
        a taint of that node, could outvote it."""
        if pod.soft_constraints:
            return passed
        _, _, decision = self._choose(pod, passed)
        if decision is None or self._state.has_soft_taint(decision.favourite):
            return passed
        return [decision.favourite]

    def prioritize(self, args: ExtenderArgs) -> HostPriorities:
        """Score each node from 0 to 10; all nodes equally for pods that are not ours."""
        pod = self._pod(args.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            snapshot = self._state.snapshot()
            places, unknown = snapshot.table.find(args.names)
            return HostPriorities(snapshot.table, places, np.full(len(places), NEUTRAL), unknown)
        request, unknown, decision = self._choose(pod, args.names)
        scores = request.places if decision is None else decision.scores
        return HostPriorities(request.snapshot.table, request.places, scores, unknown)

    def _choose(self, pod: Pod, names: Sequence[str]) -> tuple[PlacementRequest, list[str], Decision | None]:
        """Score the known nodes and advise the best one; no decision if all are unknown."""
        with self._advising:  # concurrent calls must not all be sent to the same node
            request, unknown = self._request_on(pod, names)
            if not len(request.places):
                return request, unknown, None
            decision = self._decide(request)
            self._state.advise(pod, decision.favourite)
        former = self.decisions.of(pod.uid)
        decision.nodes_asked = former.nodes_asked if former is not None else len(request.places) + len(unknown)
        if former is not None:
            decision.refused, decision.waited_s = former.refused, former.waited_s
            decision.added_overload = former.added_overload
        self.decisions.put(decision, attempts=0 if former is not None else 1)
        return request, unknown, decision

    def preempt(self, args: PreemptionArgs) -> Victims:
        """The candidate nodes of a preemption with their victims: those proposed, and more of ours where they do not
        suffice. Nodes that would still refuse the pod, or that need no eviction, are left out."""
        pod = self._pod(args.pod)
        elsewhere = reserved_elsewhere(pod, list(args.victims), self._state) if self._state.is_ours(pod) else {}
        if elsewhere is None and not pod.of_our_scheduler:
            elsewhere = {}
        if elsewhere is not None:  # as in `filter`, the forecast does not count
            return {node: uids for node, uids in args.victims.items() if uids and node not in elsewhere}
        self._state.withdraw(pod.uid)  # as it may be nominated
        residents = {node: self._state.residents(node) for node in args.victims}
        request, unknown = self._request_on(pod, list(args.victims))
        judged = sufficient_victims(request, args.victims, residents, self._settings.limits)
        chosen = {node: args.victims[node] for node in unknown} | judged
        leaving = {
            node: [residents[node][uid].pod for uid in uids]
            for node, uids in chosen.items()
            if residents[node].keys() >= set(uids)
        }
        held = reserved_for_others(pod, list(leaving), self._state, leaving)
        self._state.hold_nominated(pod)
        return {node: uids for node, uids in chosen.items() if uids and node not in held}

    def _request_on(self, pod: Pod, names: Sequence[str]) -> tuple[PlacementRequest, list[str]]:
        """The input of scorers for the known nodes, and the names of unknown ones."""
        snapshot, footprint, peers, waited_s = self._state.view_of(pod)
        places, unknown = snapshot.table.find(names)
        beside = partial(self._state.memory_beside, pod.namespace, snapshot.first_cell)
        return PlacementRequest(pod, footprint, snapshot, places, peers, waited_s, beside), unknown

    def _forecast_refusals(self, request: PlacementRequest, decision: Decision) -> dict[str, str]:
        """Node -> reason of a refusal by the forecast; the figures are recorded in the decision."""
        limits, names = self._settings.limits, request.snapshot.table.names
        refusals = refused(request, limits)
        found: dict[str, str] = {}
        for reason, where in refusals.by_reason.items():
            text = with_time_limit(reason, limits.cycle_s if reason == OTHERS_REASON else limits.patience_s)
            found |= {names[place]: text for place in request.places[where].tolist()}
        if (short := refusals.by_reason.get(CPU_REASON)) is not None and refusals.added_overload is not None:
            shares = refusals.added_overload[short]
            decision.added_overload = AddedOverload(names, request.places[short], shares, refusals.tolerated)
        return found

    def _decide(self, request: PlacementRequest) -> Decision:
        weights = weights_for(request.pod.annotations, self._settings.weights)
        by_scorer = {
            name: scores
            for name, weight in weights.items()
            if weight > 0.0 and (scores := SCORERS[name].score(request)) is not None
        }
        totals = weighted_mean(by_scorer, weights, len(request.places))
        failed = self._last(request, totals)
        use = np.maximum(*((request.load[:, 0] + request.demand[:, 0, None]) * request.per_unit))
        points = scaled_scores(totals, use, request.at_nodes(request.snapshot.table.rank))
        return Decision(
            request.pod,
            self._clock(),
            source=request.footprint.source,
            nodes=request.snapshot.table.names,
            places=request.places,
            failed=failed,
            by_scorer={name: scores.packed() for name, scores in by_scorer.items()},
            weights=weights,
            totals=totals,
            scores=points.scores,
            favourite=request.snapshot.table.names[request.places[points.favourite]],
        )

    def _last(self, request: PlacementRequest, totals: Floats) -> Sequence[str]:
        """Put the nodes last where a pod of its owner could not be bound, the earliest first; returns their names."""
        names, failed_s = request.snapshot.table, self._state.failed_nodes(request.pod)
        failed = [name for name in sorted(failed_s, key=failed_s.__getitem__) if name in names.index]
        places = {int(place): number for number, place in enumerate(request.places)} if failed else {}
        last = [(places[place], name) for name in failed if (place := names.index[name]) in places]
        if last:
            totals[[number for number, _ in last]] = totals.min() - FAILED_STEP * np.arange(1, len(last) + 1)
        return [name for _, name in last]

    def _pod(self, raw: Json) -> Pod:
        """The pod of a request; not parsed again if the last call or the watch had it in the same version."""
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
        if not pod.uid:  # as in a manifest
            pod = pod._replace(uid=str(pod))
        self._latest = raw, pod
        return pod
