"""`phasewise recommender`: the live VPA recommender."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from recommender import __version__
from recommender import model as models
from recommender.cli.common import DURATION, STEP
from recommender.cli.grouped import GroupedCommand, config_option
from recommender.cli.live_options import (
    BAND_OPTIONS,
    LIMIT_OPTIONS,
    OPERATION,
    RAIL_OPTIONS,
    TIMING_OPTIONS,
    grouped,
    make_limits,
    make_rails,
    settings_of,
)
from recommender.cli.live_prometheus import LivePrometheus
from recommender.cli.logs import LOG_OPTIONS, set_up_logging
from recommender.cli.progress_options import PROGRESS_OPTIONS, ProgressSettings, make_progress, sources_of
from recommender.cli.prometheus import access_options, usage_options
from recommender.cli.replicas import LEASE_OPTIONS, Replicas, elect, give_back, make_replicas
from recommender.cluster.connection import Api, connect
from recommender.cluster.rate import TokenBucket
from recommender.errors import Misuse
from recommender.live.auto_keeper import AutoKeeper
from recommender.live.auto_view import AutoView
from recommender.live.band import BandOptions
from recommender.live.cluster_view import ClusterView
from recommender.live.fleet import Fleet
from recommender.live.health import serve
from recommender.live.lead_time import LeadTime
from recommender.live.member import Instance, Member, Newcomer
from recommender.live.model_source import ModelWatch, model_source
from recommender.live.rails import RailOptions
from recommender.live.recommend import Options
from recommender.live.round import Recommender
from recommender.live.scope import Scope
from recommender.live.service import Service, Timing
from recommender.live.telemetry import Telemetry
from recommender.live.usage import metrics_api_usage
from recommender.live.warm_up import warm_up
from recommender.policies.constraints import SharedLimits
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import UsageSettings

ENVIRONMENT = "PHASEWISE_RECOMMENDER"

Welcome = Callable[[Instance], Newcomer]
Resume = Callable[[Fleet, Member, int], None]

AUTO_QPS, AUTO_BURST = 50.0, 200
"""For the VPAs that we make: a thousand new jobs must not hold up the statuses either."""

_whose, _how, _source, _operation = (
    grouped(group) for group in ("Which VPAs", "Rounds and forecasts", "Cluster and model", OPERATION)
)


@click.command(
    name="recommender",
    cls=GroupedCommand,
    environment=ENVIRONMENT,
    others="Prometheus (with --prometheus)",
    context_settings={"show_default": True},
)
@_whose("--name", "--recommender-name", "name", default="phasewise", help="VPAs that say this name are ours.")
@_whose("--only-namespace", "--vpa-object-namespace", "only_namespace", help="The only one to look at.  [default: all]")
@_whose(
    "--ignore-namespace",
    "--ignored-vpa-object-namespaces",
    "ignored",
    multiple=True,
    help="Leave the VPAs of this one (or of a comma list) alone. Repeatable.",
)
@_whose("--auto/--no-auto", default=True, help="Make VPAs for jobs and workloads labelled phasewise.dev/auto=true.")
@_how("--interval", "--recommender-interval", "interval_s", type=DURATION, default="15s", help="Time between rounds.")
@_how("--step", "step_s", type=DURATION, default="15s", help="Grid of samples; no finer than the source.")
@_how("--cycle", "cycle_s", type=DURATION, default="10m", help="How long a forecast holds.")
@_how(
    "--lead-time",
    "lead_time_s",
    type=DURATION,
    show_default="measured from past resizes",
    help="How long before a phase its target is published.",
)
@_how(
    "--memory-horizon",
    "memory_horizon_s",
    type=DURATION,
    show_default="the rest of the run",
    help="Memory does not fall below what is expected within so long.",
)
@_how(
    "--profile-ttl",
    "class_ttl_s",
    type=DURATION,
    default="30d",
    help="What was learned of a workload class is forgotten when nothing of it ran for so long.",
)
@_how(
    "--publish",
    type=click.Choice(["vpa", "observe"]),
    default="vpa",
    help="`observe` computes and shows everything, and writes PhaseProfiles only.",
)
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
@_source("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@_source("--context", help="Context of the kubeconfig.  [default: its current one]")
@_source("--kube-api-qps", "qps", default=50.0, type=click.FloatRange(1), help="Requests a second to the API server.")
@_source("--kube-api-burst", "burst", default=100, type=click.IntRange(1), help="Requests at once after a pause.")
@_source("--prometheus", "prometheus_url", help="Take usage from this Prometheus.  [default: metrics.k8s.io]")
@_source(
    "--history",
    "--history-length",
    "history_s",
    type=STEP,
    default="8d",
    metavar="DURATION|none",
    help="So much of the past is asked of the Prometheus at the start; without it, checkpoints are what is known.",
)
@_source(
    "--history-resolution", "resolution_s", type=DURATION, default="1h", help="What one value of that past stands for."
)
@usage_options
@access_options
@settings_of("replicas", LEASE_OPTIONS, make_replicas)
@config_option(group=OPERATION)
@_operation("--address", default=":8942", help="Where /healthz, /readyz, /metrics and /progress are.")
@settings_of("writing", TIMING_OPTIONS, dict)
@LOG_OPTIONS[0]
@LOG_OPTIONS[1]
@_operation("--check", is_flag=True, help="Check options and model, compile what is compiled, and end.")
def command(
    name: str,
    only_namespace: str | None,
    ignored: tuple[str, ...],
    auto: bool,
    interval_s: float,
    step_s: float,
    cycle_s: float,
    lead_time_s: float | None,
    memory_horizon_s: float | None,
    class_ttl_s: float,
    publish: str,
    rails: RailOptions,
    band: BandOptions,
    limits: SharedLimits,
    told: ProgressSettings,
    model_name: str,
    kubeconfig: Path | None,
    context: str | None,
    qps: float,
    burst: int,
    prometheus_url: str | None,
    history_s: float,
    resolution_s: float,
    access: Access,
    settings: UsageSettings,
    replicas: Replicas,
    address: str,
    writing: dict[str, float],
    log_format: str,
    log_level: str,
    check: bool,
) -> None:
    """Set the requests of pods for the phase that comes next, as a recommender of the Vertical Pod Autoscaler.

    A VPA is ours when it says `recommenders: [{name: phasewise}]`; all others are left alone.

    \b
      phasewise recommender                          inside the cluster
      phasewise recommender --publish observe        look on, change nothing
      phasewise recommender --config settings.yaml   options from a file: `interval: 10s`

    An option is taken from the command line, else from the environment (PHASEWISE_RECOMMENDER_INTERVAL=10s), else from
    the file of --config, else it is its default. Names of the default recommender's flags are understood.

    It runs until it is told to stop (SIGTERM, Ctrl-C); then it finishes the round, leaves values behind that are safe
    while nobody watches, and gives the lease back, within ten seconds.
    """
    set_up_logging(log_format, log_level)
    if cycle_s < step_s:
        raise Misuse(f"--cycle {cycle_s:g}s is shorter than --step {step_s:g}s. A forecast holds for several samples.")
    cycle_samples = round(cycle_s / step_s)
    telemetry = Telemetry(CollectorRegistry())

    def api() -> Api:
        agent = f"phasewise-recommender/{__version__}"
        return connect(kubeconfig, context, qps=qps, burst=burst, user_agent=agent, observe=telemetry.api_request)

    if check:
        model = ModelWatch(model_source(model_name, api), telemetry.model).first().model
        warm_up(model, step_s, cycle_samples)
        click.echo(f"{model.origin}: {model.detector.n_phases} phases; options are sound, all is compiled")
        return
    server = api()
    model_watch = ModelWatch(model_source(model_name, lambda: server), telemetry.model)
    model_watch.first()
    election = elect(server, replicas) if replicas.elect else None
    leads = (lambda: election.leads) if election else lambda: True
    usage, prior, ended = metrics_api_usage(server, only_namespace), None, threading.Event()
    if prometheus_url:
        asked = LivePrometheus.of(prometheus_url, access, settings, only_namespace)
        prior = asked.prior(history_s, resolution_s, step_s, ended)
        usage = asked.usage(prior)
    hidden = frozenset(part.strip() for text in ignored for part in text.split(",") if part.strip())
    scope = Scope(name, only_namespace, hidden, replicas.shard)
    progress, pushed = sources_of(told, server, (prometheus_url, access), leads)
    view = ClusterView(server, scope, usage, observe_only=publish == "observe", leads=leads)

    def fleet(welcome: Welcome, resume: Resume) -> Fleet:
        made = Fleet(model_watch.in_use.model, step_s, cycle_samples, welcome, resume)
        made.memory_ahead_s = memory_horizon_s or math.inf
        return made

    def recommender() -> Recommender:
        if prior is not None:
            prior.load(view)
        return Recommender(
            view,
            fleet,
            Options(rails, band),
            limits,
            clock=time.time,
            stopwatch=time.monotonic,
            lead_time=LeadTime(lead_time_s, step_s),
            class_ttl_s=class_ttl_s,
            progress=progress,
        )

    keeper = None
    if auto and publish == "vpa":
        apart = server.apart(TokenBucket(AUTO_QPS, AUTO_BURST))
        keeper = AutoKeeper(apart, AutoView(server, view, scope), name, telemetry.registry, leads)
    service = Service(view, recommender, telemetry, Timing(interval_s, **writing), model_watch, leads, keeper)
    checks = {"/healthz": lambda: service.healthy, "/readyz": lambda: service.ready}
    endpoints = serve(address, telemetry.registry, checks, {"/progress": pushed.answer} if pushed else {})

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
