"""`phasewise recommender`: the live VPA recommender."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import replace
from http.server import ThreadingHTTPServer

import click
from prometheus_client import CollectorRegistry

from recommender.cli.common import shows
from recommender.cli.grouped import config_option, grouped, settings_from, settings_of
from recommender.cli.live_options import (
    AUTO_OPTION,
    BAND_OPTIONS,
    LIMIT_OPTIONS,
    OPERATION,
    RAIL_OPTIONS,
    SCOPE_OPTIONS,
    TIMING_OPTIONS,
    ApiServer,
    PrometheusOptions,
    Recording,
    Replicas,
    Rounds,
    make_limits,
    make_rails,
    make_scope,
)
from recommender.cli.logs import with_log_options
from recommender.cli.progress_options import GROWTH_OPTIONS, ProgressSettings, make_sources
from recommender.cli.prometheus import ACCESS_OPTIONS, USAGE_OPTIONS, make_access, make_usage
from recommender.cli.upstream_flags import UpstreamCommand
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import LeaderElection
from recommender.engine.fleet import Fleet
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import BandOptions, Options, RailOptions
from recommender.engine.warm_up import warm_up
from recommender.learning import model as models
from recommender.live.auto.controller import AutoVpaController
from recommender.live.auto.view import AutoView
from recommender.live.health import serve
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.outside.model_source import ModelWatch, model_source
from recommender.live.round import Recommender
from recommender.live.service import Service, Timing
from recommender.live.telemetry import Telemetry
from recommender.live.view.scope import Scope
from recommender.live.writing.profile import SAVE_STATE_UP_TO
from recommender.policies.constraints import SharedLimits
from recommender.progress.growth import GrowthOptions
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import UsageSettings

log = logging.getLogger(__name__)

ENVIRONMENT = "PHASEWISE_RECOMMENDER"

LEASE_RELEASE_TIMEOUT_S = 0.8
"""Together with `service.EXIT_DEADLINE_S` less than ten seconds."""

AUTO_QPS, AUTO_BURST = 50.0, 200
"""Separate rate limit for VPAs that we create and their lookups, so that a thousand new jobs do not delay statuses."""

PROFILES_SHARE = 0.1
"""Share of a round's API requests for PhaseProfiles. With three thousand VPAs each is written once per cycle of forty
rounds, as often as the state must be saved."""

CHECKPOINTS_SHARE = 0.2
"""The same for rewritten checkpoints. With six thousand VPAs each is written once in forty rounds, ten minutes, the
long-run interval of a checkpoint."""

_source, _operation = grouped("Cluster and model"), grouped(OPERATION)


@shows(
    "--only-namespace", "--auto", "--publish", "--interval", "--record", "--model", "--prometheus", "--leader-elect",
    "--config", "--log-level",
)  # fmt: skip
@click.command(
    name="recommender",
    cls=UpstreamCommand,
    environment=ENVIRONMENT,
    others="Prometheus (with --prometheus)",
)
@settings_of("scope", SCOPE_OPTIONS, make_scope)
@AUTO_OPTION
@settings_from("rounds", Rounds)
@settings_of("rails", RAIL_OPTIONS, make_rails)
@settings_of("band", BAND_OPTIONS, BandOptions)
@settings_of("limits", LIMIT_OPTIONS, make_limits)
@settings_of("growth", GROWTH_OPTIONS, GrowthOptions)
@settings_from("progress", ProgressSettings)
@_source(
    "--model model_name",
    str,
    "Model of the forecasts; loaded again when it changes, refused if damaged.",
    default=models.BUNDLED,
    metavar="bundled|FOLDER|configmap:NAMESPACE/NAME",
)
@settings_from("api_server", ApiServer)
@settings_from("prometheus", PrometheusOptions)
@settings_of("usage", USAGE_OPTIONS, make_usage)
@settings_of("access", ACCESS_OPTIONS, make_access)
@settings_from("replicas", Replicas)
@config_option(group=OPERATION)
@_operation("--address", str, "Listen address of /healthz, /readyz, /metrics and /progress.", default=":8942")
@settings_of("checkpoints", TIMING_OPTIONS, dict)
@with_log_options
@settings_from("recording", Recording)
@_operation("--check", bool, "Check options and model, compile the kernels, and exit.")
@click.pass_obj
def command(
    notes: list[str],
    scope: Scope,
    auto: bool,
    rounds: Rounds,
    rails: RailOptions,
    band: BandOptions,
    limits: SharedLimits,
    growth: GrowthOptions,
    progress: ProgressSettings,
    model_name: str,
    api_server: ApiServer,
    prometheus: PrometheusOptions,
    access: Access,
    usage: UsageSettings,
    replicas: Replicas,
    address: str,
    checkpoints: dict[str, float],
    recording: Recording,
    check: bool,
) -> None:
    """Run the live recommender: it sets the CPU and memory requests of pods before each phase.

    It handles the VPAs with `recommenders: [{name: phasewise}]` in their spec and no others.

    \b
      phasewise recommender                          inside the cluster
      phasewise recommender --publish observe        observe only, change nothing
      phasewise recommender --config settings.yaml   options from a file: `interval: 10s`

    Options are read from the command line, then the environment (PHASEWISE_RECOMMENDER_INTERVAL=10s), then the file of
    --config. Flags of the default recommender are accepted; those without a counterpart are refused with advice what to
    write instead.

    On SIGTERM or Ctrl-C it breaks off the round, publishes values that are safe without a running recommender, and
    releases the lease, within ten seconds.
    """
    for note in notes:
        log.info("%s", note)
    telemetry = Telemetry(CollectorRegistry(), shards=replicas.shard.number)
    if check:
        source = model_source(model_name, lambda: api_server.connect(telemetry.api_request))
        click.echo(load_and_compile(ModelWatch(source, telemetry.model), rounds))
        return
    api = api_server.connect(telemetry.api_request)
    models = ModelWatch(model_source(model_name, lambda: api), telemetry.model)
    log.info("%s", load_and_compile(models, rounds))
    election = replicas.election(api)
    leads = (lambda: election.is_leader) if election else lambda: True
    usage_source, prior, stopped = prometheus.sources(api, scope.namespace, access, usage, rounds.step_s)
    progress_sources, pushed = make_sources(progress, growth, api, (prometheus.url, access), leads)
    scope = replace(scope, shard=replicas.shard)
    view = ClusterView(api, scope, usage_source, observe_only=rounds.observe_only, leads=leads)
    recorder = recording.recorder()

    def make_recommender() -> Recommender:
        """The recommender with fresh state, each time this process becomes the leader."""
        if prior is not None:
            prior.load(view)
        return Recommender(
            view,
            Fleet(models.in_use.model, rounds.step_s, rounds.cycle_samples),
            Options(rails, band),
            limits,
            clock=time.time,
            stopwatch=time.monotonic,
            lead_time=LeadTime(rounds.lead_time_s, rounds.step_s),
            class_ttl_s=rounds.class_ttl_s,
            progress=progress_sources,
            writers=rounds.workers,
            profiles_per_round=max(SAVE_STATE_UP_TO, PROFILES_SHARE * api_server.qps * rounds.interval_s),
            resizes_waiting=rounds.resizes_waiting,
            observe_only=rounds.observe_only,
            recorder=recorder,
        )

    auto_vpas = None
    if auto and not rounds.observe_only:
        auto_api = api.with_rate_limit(TokenBucket(AUTO_QPS, AUTO_BURST))
        auto_vpas = AutoVpaController(
            auto_api, AutoView(auto_api, view, scope), scope.recommender, telemetry.registry, leads
        )
    checkpoints_per_round = max(SAVE_STATE_UP_TO, CHECKPOINTS_SHARE * api_server.qps * rounds.interval_s)
    timing = Timing(rounds.interval_s, checkpoints_per_round=checkpoints_per_round, **checkpoints)
    service = Service(view, make_recommender, telemetry, timing, models, leads, auto_vpas)
    checks = {"/healthz": lambda: service.healthy, "/readyz": lambda: service.ready}
    endpoints = serve(address, telemetry.registry, checks, {"/progress": pushed.answer} if pushed else {})
    run_until_stopped(service, stopped, endpoints, election)


def load_and_compile(models: ModelWatch, rounds: Rounds) -> str:
    """Load the model and compile the kernels; returns a message for the log."""
    model = models.load_first().model
    warm_up(model, rounds.step_s, rounds.cycle_samples)
    return f"{model.origin}: {model.detector.n_phases} phases; options are valid, kernels are compiled"


def run_until_stopped(
    service: Service, stopped: threading.Event, endpoints: ThreadingHTTPServer, election: LeaderElection | None
) -> None:
    """Run until SIGTERM or Ctrl-C; then release the lease and close the endpoints."""

    def stop(*_: object) -> None:
        stopped.set()
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        service.run()
    finally:
        if election:
            release_lease(election)
        endpoints.shutdown()


def release_lease(election: LeaderElection) -> None:
    """Release the lease if the API server answers in time; otherwise it expires by itself."""
    releasing = threading.Thread(target=election.stop, name="release the lease", daemon=True)
    releasing.start()
    releasing.join(LEASE_RELEASE_TIMEOUT_S)
