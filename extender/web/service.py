"""The extender as a process: watches, state, decisions and HTTP server."""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson
from flask import Response, request

from extender.placing.decisions import Decisions, EventWriter
from extender.placing.placer import Placer
from extender.pods.pod import Pod
from extender.protocol import wire
from extender.settings import Settings
from extender.view.cache import ClusterCache
from extender.view.state import ClusterState
from extender.web.app import JSON, App, BodyLimits, ExtenderTelemetry, error_answer
from recommender.cluster.access.connection import Api
from recommender.cluster.lease import LeaderElection


def extender_app(
    placer: Placer,
    telemetry: ExtenderTelemetry,
    not_ready: Callable[[], str],
    limits: BodyLimits = BodyLimits(),  # noqa: B008  immutable
) -> App:
    """The scheduler's calls, and `/explain/NAMESPACE/POD`: the last decision on a pod."""
    read_args = wire.ArgsReader()

    def filter_nodes(body: bytes) -> bytes:
        args = read_args(body)
        filtered = placer.filter(args)
        telemetry.nodes_refused.inc(len(filtered.refused))
        return wire.filter_answer(args, filtered)

    def prioritize(body: bytes) -> bytes:
        return wire.priority_answer(placer.prioritize(read_args(body)))

    def preempt(body: bytes) -> bytes:
        args = wire.read_preemption_args(body)
        return wire.preemption_answer(args, placer.preempt(args))

    verbs = {"/filter": filter_nodes, "/prioritize": prioritize, "/preempt": preempt}
    app = App(telemetry, verbs, not_ready, limits)

    @app.pages.get("/explain/<namespace>/<pod>")
    def explain(namespace: str, pod: str) -> Response:
        decision = placer.decisions.find(namespace, pod)
        if decision is None:
            return Response(error_answer(f"no decision on {namespace}/{pod} is kept"), 404, content_type=JSON)
        most = request.args.get("nodes", 50, type=int)
        answer = orjson.dumps(decision.as_json(max(0, most)), option=orjson.OPT_APPEND_NEWLINE)
        return Response(answer, content_type=JSON)

    return app


LEASE = "phasewise-extender"


class Service:
    """One replica. `app` answers 503 until everything has been listed and this replica leads; without a
    `lease_namespace` it always does. `controller_namespace`: of the gang controller's reservations."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        limits: BodyLimits = BodyLimits(),  # noqa: B008  immutable
        lease_namespace: str = "",
        controller_namespace: str = "kube-system",
    ) -> None:
        self.telemetry = ExtenderTelemetry()
        self.state = ClusterState(settings, time.time, time.monotonic)
        self.decisions = Decisions()
        self.cache = ClusterCache(api, self.state, settings, self._pod_bound, controller_namespace)
        self._events = EventWriter(api, time.time)
        self._election = LeaderElection.join(api, lease_namespace, LEASE) if lease_namespace else None
        placer = Placer(self.state, settings, self.decisions, self.cache.read_pod, time.time)
        self.app = extender_app(placer, self.telemetry, self.not_ready, limits)
        self.app.parts = (self.cache, self._events, self._election)
        self.telemetry.watch(
            ("ready", "1 while calls are answered.", lambda: not self.not_ready()),
            ("advised", "Advised placements not seen yet.", lambda: self.state.advised),
            ("known_nodes", "Nodes known.", lambda: len(self.state.snapshot().table.index)),
            ("unknown_nodes", "Unknown nodes named in filter calls.", lambda: placer.unknown_nodes),
            ("unreadable_objects", "Objects that cannot be parsed and are ignored.", lambda: self.cache.all.unreadable),
            ("staleness_seconds", "Time since the API server last sent anything.", self.cache.staleness_s),
            ("lag_seconds", "Age of the newest processed change.", lambda: time.time() - self.cache.newest_s),
            ("watches_failing", "Watches without contact.", lambda: self.cache.failing),
            ("events_lost", "Requested events that were not written.", lambda: self._events.dropped),
        )

    def not_ready(self) -> str:
        """Why calls cannot be answered; empty when they can."""
        if waiting_for := self.cache.needed.waiting_for:
            return waiting_for
        if self._election is not None and not self._election.is_leader:
            if problem := self._election.problem:
                return f"the leader is unknown: {problem}"
            return f"another replica leads: {self._election.holder or 'unknown'}"
        return ""

    def _pod_bound(self, pod: Pod) -> None:
        decision = self.decisions.bound(pod.uid, pod.node)
        if decision is not None:
            self.telemetry.outcomes.labels(decision.outcome).inc()
            self._events.bound(decision)
