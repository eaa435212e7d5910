"""The extender put together: watches, state, decisions and the HTTP face of one process."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flask import Flask
from prometheus_client import CollectorRegistry

from extender.placing.decisions import MOST_NUMBERS, Decisions
from extender.placing.events import EventWriter
from extender.placing.placer import Placer
from extender.pods.pod import Pod
from extender.settings import Settings
from extender.view.cache import ClusterCache
from extender.view.state import ClusterState
from extender.web.api import create_app
from extender.web.body import BodyLimits
from extender.web.machine import give_memory_back, take_memory
from extender.web.telemetry import Telemetry
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import Candidate, LeaderElection

log = logging.getLogger(__name__)

LEASE = "phasewise-extender"
NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How one replica runs.

    Attributes
    ----------
    lease_namespace
        Where the Lease lies by which replicas agree on who answers; empty for a single replica.
    """

    settings: Settings = field(default_factory=Settings)
    body: BodyLimits = field(default_factory=BodyLimits)
    lease_namespace: str = ""


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
        self._registry = CollectorRegistry()
        self.telemetry = Telemetry(self._registry)
        self.state = ClusterState(settings, clock, monotonic)
        self.decisions = Decisions()
        self.cache = ClusterCache(api, self.state, settings, self._bound)
        self._events = EventWriter(api, clock)
        self._election = _election(api, options.lease_namespace) if options.lease_namespace else None
        placer = Placer(self.state, settings, self.decisions, self.cache.read_pod, clock)
        self.app: Flask = create_app(placer, self.telemetry, self.not_ready, options.body)
        self.telemetry.watch("ready", "1 while calls are answered.", lambda: float(not self.not_ready()))
        self.telemetry.watch("advised", "Placements advised and not yet seen.", lambda: float(self.state.advised))
        self.telemetry.watch("known_nodes", "Nodes known.", lambda: float(len(self.state.snapshot().index)))
        self.telemetry.watch("staleness_seconds", "Since the API server last spoke.", self.cache.staleness_s)
        self.telemetry.watch("watches_failing", "Watches without contact.", lambda: float(self.cache.failing))
        self.telemetry.watch("events_lost", "Events asked for and not written.", lambda: float(self._events.dropped))

    def start(self) -> Service:
        """Begin to watch; returns at once."""
        self.cache.start()
        self._events.start()
        if self._election is not None:
            self._election.start()
        threading.Thread(target=self._settle, name="settle", daemon=True).start()
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

    def _settle(self) -> None:
        """What was listed stays: kept out of every later garbage collection, whose pauses would be those of calls."""
        while not self.cache.synced:
            time.sleep(0.1)
        gc.collect()
        gc.freeze()
        give_memory_back()
        take_memory(NUMBER_BYTES * MOST_NUMBERS)
        log.info("ready: %d nodes listed", len(self.state.snapshot().index))

    def _bound(self, pod: Pod) -> None:
        decision = self.decisions.bound(pod.uid, pod.node)
        if decision is not None:
            self.telemetry.outcome(decision.outcome)
            self._events.bound(decision)


def _election(api: Api, namespace: str) -> LeaderElection:
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    candidate = Candidate(api.apart(TokenBucket(5, 10)), namespace, LEASE, identity)
    return LeaderElection(
        candidate, on_won=lambda: log.info("leading"), on_lost=lambda: log.warning("no longer leading")
    )
