"""`phasewise recommender`: the live VPA recommender."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from http.server import ThreadingHTTPServer

import click
from prometheus_client import CollectorRegistry

from recommender import model as models
from recommender.cli.grouped import config_option, grouped, settings_of
from recommender.cli.live_options import (
    BAND_OPTIONS,
    LEASE_OPTIONS,
    LIMIT_OPTIONS,
    OPERATION,
    RAIL_OPTIONS,
    TIMING_OPTIONS,
    Replicas,
    make_limits,
    make_rails,
)
from recommender.cli.live_rounds import (
    AUTO_OPTION,
    PROMETHEUS_OPTIONS,
    RECORD_OPTIONS,
    ROUND_OPTIONS,
    SERVER_OPTIONS,
    WHOSE_OPTIONS,
    Asked,
    Reached,
    Recording,
    Rounds,
    make_scope,
)
from recommender.cli.logs import LOG_OPTIONS, set_up_logging
from recommender.cli.progress_options import PROGRESS_OPTIONS, ProgressSettings, make_progress, sources_of
from recommender.cli.prometheus import ACCESS_OPTIONS, USAGE_OPTIONS, make_access, make_usage
from recommender.cli.upstream_flags import UpstreamCommand
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import LeaderElection
from recommender.engine.fleet import Fleet
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import BandOptions, Options, RailOptions
from recommender.engine.recording import Recorder
from recommender.engine.warm_up import warm_up
from recommender.live.auto.controller import AutoVpaController
from recommender.live.auto.view import AutoView
from recommender.live.health import serve
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.outside.model_source import ModelWatch, model_source
from recommender.live.past import PriorHistory
from recommender.live.progress.progress import Progress
from recommender.live.round import Recommender
from recommender.live.service import Service, Timing
from recommender.live.telemetry import Telemetry
from recommender.live.view.scope import Scope
from recommender.live.writing.profile import SAVE_STATE_UP_TO
from recommender.policies.constraints import SharedLimits
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import UsageSettings

log = logging.getLogger(__name__)

ENVIRONMENT = "PHASEWISE_RECOMMENDER"

LEASE_GIVEN_BACK_WITHIN_S = 0.8
"""With what `service.EXIT_DEADLINE_S` takes before, less than ten seconds."""

AUTO_QPS, AUTO_BURST = 50.0, 200
"""For the VPAs that we make: a thousand new jobs must not hold up the statuses either."""

PROFILES_SHARE = 0.1
"""Of the requests that may be sent between two rounds: PhaseProfiles; statuses and checkpoints need theirs. Of three
thousand VPAs each has its turn once in the forty rounds of a cycle, which is how often the state must be kept."""

CHECKPOINTS_SHARE = 0.2
"""The same of checkpoints that are written again. Of six thousand each has its turn once in forty rounds, ten minutes,
which is how often one is written in the long run."""

_source, _operation = grouped("Cluster and model"), grouped(OPERATION)


@click.command(
    name="recommender",
    cls=UpstreamCommand,
    environment=ENVIRONMENT,
    others="Prometheus (with --prometheus)",
    context_settings={"show_default": True},
)
@settings_of("whose", WHOSE_OPTIONS, make_scope)
@AUTO_OPTION
@settings_of("rounds", ROUND_OPTIONS, Rounds)
@settings_of("rails", RAIL_OPTIONS, make_rails)
@settings_of("band", BAND_OPTIONS, BandOptions)
@settings_of("limits", LIMIT_OPTIONS, make_limits)
@settings_of("told", PROGRESS_OPTIONS, make_progress)
@_source(
    "--model",
    "model_name",
    default=models.BUNDLED,
    metavar="bundled|FOLDER|configmap:NAMESPACE/NAME",
    help="What forecasts; taken in anew when it changes, refused when it is damaged.",
)
@settings_of("reached", SERVER_OPTIONS, Reached)
@settings_of("asked", PROMETHEUS_OPTIONS, Asked)
@settings_of("settings", USAGE_OPTIONS, make_usage)
@settings_of("access", ACCESS_OPTIONS, make_access)
@settings_of("replicas", LEASE_OPTIONS, Replicas)
@config_option(group=OPERATION)
@_operation("--address", default=":8942", help="Where /healthz, /readyz, /metrics and /progress are.")
@settings_of("writing", TIMING_OPTIONS, dict)
@settings_of("logs", LOG_OPTIONS, dict)
@settings_of("recording", RECORD_OPTIONS, Recording)
@_operation("--check", is_flag=True, help="Check options and model, compile what is compiled, and end.")
def command(
    whose: Scope,
    auto: bool,
    rounds: Rounds,
    rails: RailOptions,
    band: BandOptions,
    limits: SharedLimits,
    told: ProgressSettings,
    model_name: str,
    reached: Reached,
    asked: Asked,
    access: Access,
    settings: UsageSettings,
    replicas: Replicas,
    address: str,
    writing: dict[str, float],
    logs: dict[str, str],
    recording: Recording,
    check: bool,
) -> None:
    """Set the requests of pods for the phase that comes next, as a recommender of the Vertical Pod Autoscaler.

    A VPA is ours when it says `recommenders: [{name: phasewise}]`; all others are left alone.

    \b
      phasewise recommender                          inside the cluster
      phasewise recommender --publish observe        look on, change nothing
      phasewise recommender --config settings.yaml   options from a file: `interval: 10s`

    An option is taken from the command line, else from the environment (PHASEWISE_RECOMMENDER_INTERVAL=10s), else from
    the file of --config, else it is its default. Flags of the default recommender are understood; what has no
    counterpart here is refused, with what to write instead.

    It runs until it is told to stop (SIGTERM, Ctrl-C); then it finishes the round, leaves values behind that are safe
    while nobody watches, and gives the lease back, within ten seconds.
    """
    set_up_logging(**logs)
    telemetry = Telemetry(CollectorRegistry())
    if check:
        source = model_source(model_name, lambda: reached.connect(telemetry.api_request))
        click.echo(checked(ModelWatch(source, telemetry.model), rounds))
        return
    server = reached.connect(telemetry.api_request)
    watched = ModelWatch(model_source(model_name, lambda: server), telemetry.model)
    log.info("%s", checked(watched, rounds))
    election = replicas.election(server)
    leads = (lambda: election.is_leader) if election else lambda: True
    usage, prior, ended = asked.sources(server, whose.namespace, access, settings, rounds.step_s)
    progress, pushed = sources_of(told, server, (asked.url, access), leads)
    scope = replace(whose, shard=replicas.shard)
    view = ClusterView(server, scope, usage, observe_only=rounds.observe_only, leads=leads)
    recorder = recording.recorder()
    make = partial(
        make_recommender, view, watched, rounds, Options(rails, band), limits, progress, prior, reached.qps, recorder
    )
    keeper = None
    if auto and not rounds.observe_only:
        apart = server.with_rate_limit(TokenBucket(AUTO_QPS, AUTO_BURST))
        keeper = AutoVpaController(apart, AutoView(server, view, scope), scope.recommender, telemetry.registry, leads)
    again = max(SAVE_STATE_UP_TO, CHECKPOINTS_SHARE * reached.qps * rounds.interval_s)
    timing = Timing(rounds.interval_s, checkpoints_per_round=again, **writing)
    service = Service(view, make, telemetry, timing, watched, leads, keeper)
    checks = {"/healthz": lambda: service.healthy, "/readyz": lambda: service.ready}
    endpoints = serve(address, telemetry.registry, checks, {"/progress": pushed.answer} if pushed else {})
    run_until_told(service, ended, endpoints, election)


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
        profiles_per_round=max(SAVE_STATE_UP_TO, PROFILES_SHARE * qps * rounds.interval_s),
        resizes_waiting=rounds.resizes_waiting,
        observe_only=rounds.observe_only,
        recorder=recorder,
    )


def checked(models: ModelWatch, rounds: Rounds) -> str:
    """Load the model, and all that is compiled; returns words on it."""
    model = models.load_first().model
    warm_up(model, rounds.step_s, rounds.cycle_samples)
    return f"{model.origin}: {model.detector.n_phases} phases; options are sound, all is compiled"


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


def give_back(election: LeaderElection) -> None:
    """Give the lease back if the server answers; else it runs out by itself, and nobody waits for that here."""
    giving = threading.Thread(target=election.stop, name="give back the lease", daemon=True)
    giving.start()
    giving.join(LEASE_GIVEN_BACK_WITHIN_S)
