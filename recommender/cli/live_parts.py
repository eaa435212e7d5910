"""From options to the parts of a running recommender, and their life: started, told to stop, given back."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer

from prometheus_client import CollectorRegistry

from recommender.cli.live_rounds import Rounds
from recommender.cli.replicas import give_back
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import LeaderElection
from recommender.engine.fleet import Fleet
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.recording import Recorder
from recommender.engine.warm_up import warm_up
from recommender.live.auto.keeper import AutoKeeper
from recommender.live.auto.view import AutoView
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.outside.model_source import ModelWatch
from recommender.live.past import PriorHistory
from recommender.live.progress.progress import Progress
from recommender.live.round import Recommender
from recommender.live.service import Service
from recommender.live.view.scope import Scope
from recommender.live.writing.showing import FEW
from recommender.policies.constraints import SharedLimits

AUTO_QPS, AUTO_BURST = 50.0, 200
"""For the VPAs that we make: a thousand new jobs must not hold up the statuses either."""

PROFILES_SHARE = 0.1
"""Of the requests that may be sent between two rounds: PhaseProfiles; statuses and checkpoints need theirs. Of three
thousand VPAs each has its turn once in the forty rounds of a cycle, which is how often the state must be kept."""

CHECKPOINTS_SHARE = 0.2
"""The same of checkpoints that are written again. Of six thousand each has its turn once in forty rounds, ten minutes,
which is how often one is written in the long run."""


def make_recommender(
    view: ClusterView,
    models: ModelWatch,
    rounds: Rounds,
    options: Options,
    limits: SharedLimits,
    progress: Progress,
    prior: PriorHistory | None,
    qps: float,
    recorder: Recorder | None,
) -> Recommender:
    """The recommender's state, made anew each time this process begins to lead."""
    if prior is not None:
        prior.load(view)
    return Recommender(
        view,
        partial(Fleet, models.in_use.model, rounds.step_s, rounds.cycle_samples),
        options,
        limits,
        clock=time.time,
        stopwatch=time.monotonic,
        lead_time=LeadTime(rounds.lead_time_s, rounds.step_s),
        class_ttl_s=rounds.class_ttl_s,
        progress=progress,
        writers=rounds.workers,
        profiles_a_round=max(FEW, PROFILES_SHARE * qps * rounds.interval_s),
        resizes_waiting=rounds.resizes_waiting,
        observes_only=rounds.observe_only,
        recorder=recorder,
    )


def checked(models: ModelWatch, rounds: Rounds) -> str:
    """Load the model, and all that is compiled; returns words on it."""
    model = models.first().model
    warm_up(model, rounds.step_s, rounds.cycle_samples)
    return f"{model.origin}: {model.detector.n_phases} phases; options are sound, all is compiled"


def keeper_of(
    server: Api, view: ClusterView, scope: Scope, registry: CollectorRegistry, leads: Callable[[], bool]
) -> AutoKeeper:
    """What makes VPAs for labelled workloads."""
    apart = server.apart(TokenBucket(AUTO_QPS, AUTO_BURST))
    return AutoKeeper(apart, AutoView(server, view, scope), scope.recommender, registry, leads)


def run_until_told(
    service: Service, ended: threading.Event, endpoints: ThreadingHTTPServer, election: LeaderElection | None
) -> None:
    """Run until SIGTERM or Ctrl-C; then give back what is ours."""

    def end(*_: object) -> None:
        ended.set()
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        service.run()
    finally:
        if election:
            give_back(election)
        endpoints.shutdown()
