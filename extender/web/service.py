"""The extender put together: watches, state, decisions and the HTTP face of one process."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import orjson
from flask import Flask, Response, request

from extender.placing.decisions import Decisions, EventWriter
from extender.placing.placer import Placer
from extender.pods.pod import Pod
from extender.protocol import wire
from extender.settings import Settings
from extender.view.cache import ClusterCache
from extender.view.state import ClusterState
from extender.web.app import JSON, App, BodyLimits, ExtenderTelemetry, Post, create_pages, error_answer
from recommender.cluster.access.connection import Api
from recommender.cluster.lease import LeaderElection

DEFAULT_NODES = 50
"""How many nodes `/explain` tells of at most, unless asked for others by `?nodes=`."""


def verbs_of(placer: Placer, telemetry: ExtenderTelemetry) -> Mapping[str, Post]:
    """What answers them, by path."""

    def filter_nodes(body: bytes) -> bytes:
        args = wire.read_args(body)
        filtered = placer.filter(args)
        telemetry.nodes_refused.inc(len(filtered.refused))
        return wire.filter_answer(args, filtered)

    def prioritize(body: bytes) -> bytes:
        return wire.priority_answer(placer.prioritize(wire.read_args(body)))

    def preempt(body: bytes) -> bytes:
        args = wire.read_preemption_args(body)
        return wire.preemption_answer(args, placer.preempt(args))

    return {"/filter": filter_nodes, "/prioritize": prioritize, "/preempt": preempt}


def add_explain(pages: Flask, placer: Placer) -> None:
    """`/explain/NAMESPACE/POD`: the last decision on a pod."""

    @pages.get("/explain/<namespace>/<pod>")
    def explain(namespace: str, pod: str) -> Response:
        decision = placer.decisions.find(namespace, pod)
        if decision is None:
            return Response(error_answer(f"no decision on {namespace}/{pod} is kept"), 404, content_type=JSON)
        most = request.args.get("nodes", DEFAULT_NODES, type=int)
        told = orjson.dumps(decision.as_json(max(0, most)), option=orjson.OPT_APPEND_NEWLINE)
        return Response(told, content_type=JSON)


log = logging.getLogger(__name__)

LEASE = "phasewise-extender"


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How one replica runs.

    Attributes
    ----------
    lease_namespace
        Where the Lease lies by which replicas agree on who answers; empty for a single replica.
    controller_namespace
        Where the gang controller keeps what it has reserved.
    """

    settings: Settings = field(default_factory=Settings)
    limits: BodyLimits = field(default_factory=BodyLimits)
    lease_namespace: str = ""
    controller_namespace: str = "kube-system"


class Service:
    """One replica. `app` may be called at once; it answers 503 until everything was listed and this replica leads.

    Parameters
    ----------
    clock, monotonic
        Unix seconds for forecasts and for people, monotonic seconds for how long advice is held.
    """

    def __init__(
        self,
        api: Api,
        options: ServiceOptions,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = options.settings
        self.telemetry = ExtenderTelemetry()
        self.state = ClusterState(settings, clock, monotonic)
        self.decisions = Decisions()
        self.cache = ClusterCache(api, self.state, settings, self._pod_bound, options.controller_namespace)
        self._events = EventWriter(api, clock)
        self._election = LeaderElection.on(api, options.lease_namespace, LEASE) if options.lease_namespace else None
        placer = Placer(self.state, settings, self.decisions, self.cache.read_pod, clock)
        pages = create_pages("extender", self.telemetry, self.not_ready)
        add_explain(pages, placer)
        verbs = verbs_of(placer, self.telemetry)
        self.app = App(pages, verbs, self.telemetry, self.not_ready, options.limits)
        for name, words, value in (
            ("ready", "1 while calls are answered.", lambda: not self.not_ready()),
            ("advised", "Placements advised and not yet seen.", lambda: self.state.advised),
            ("known_nodes", "Nodes known.", lambda: len(self.state.snapshot().table.index)),
            ("unknown_nodes", "Times that a node was asked about that is not known.", lambda: placer.unknown_nodes),
            ("unreadable_objects", "Objects that cannot be read, and are left out.", lambda: self.cache.unreadable),
            ("staleness_seconds", "Since the API server last spoke.", self.cache.staleness_s),
            ("lag_seconds", "Age of the newest change that counts.", lambda: clock() - self.cache.newest_s),
            ("watches_failing", "Watches without contact.", lambda: self.cache.failing),
            ("events_lost", "Events asked for and not written.", lambda: self._events.dropped),
        ):
            self.telemetry.watch(name, words, value)

    def start(self) -> Service:
        """Begin to watch; returns at once."""
        self.cache.start()
        self._events.start()
        if self._election is not None:
            self._election.start()
        threading.Thread(target=self._tune_garbage_collection, name="settle", daemon=True).start()
        return self

    def stop(self) -> None:
        """End what `start` began, and give the lease back."""
        self.cache.stop()
        self._events.stop()
        if self._election is not None:
            self._election.stop()

    def not_ready(self) -> str:
        """Why no call can be answered; empty when they can."""
        if waiting_for := self.cache.waiting_for:
            return waiting_for
        if self._election is not None and not self._election.leads:
            if problem := self._election.problem:
                return f"not known who leads: {problem}"
            return f"another replica leads: {self._election.holder or 'not known which'}"
        return ""

    def _tune_garbage_collection(self) -> None:
        """Collecting garbage pauses calls: what was listed stays and is left out, and no pod's JSON sets off many."""
        while not self.cache.synced:
            time.sleep(0.1)
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000)
        log.info("ready: %d nodes listed", len(self.state.snapshot().table.index))

    def _pod_bound(self, pod: Pod) -> None:
        decision = self.decisions.bound(pod.uid, pod.node)
        if decision is not None:
            self.telemetry.outcomes.labels(decision.outcome).inc()
            self._events.bound(decision)
