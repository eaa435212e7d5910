"""`phasewise recommender`: the live VPA recommender."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from recommender import __version__
from recommender import model as models
from recommender.cli.common import DURATION
from recommender.cli.prometheus import access_options, usage_options
from recommender.cluster.connection import Api, connect
from recommender.cluster.lease import Candidate, LeaderElection
from recommender.errors import Misuse
from recommender.live.cluster_view import ClusterView, Scope, Usage, metrics_api_usage
from recommender.live.fleet import Fleet, Sample
from recommender.live.health import serve
from recommender.live.recommend import Options
from recommender.live.round import Recommender
from recommender.live.service import Service
from recommender.live.telemetry import Telemetry
from recommender.live.view import Place
from recommender.policies.constraints import SharedLimits
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery

LEASE = "phasewise-recommender"
ENVIRONMENT = "PHASEWISE_RECOMMENDER"


@click.command(name="recommender", context_settings={"auto_envvar_prefix": ENVIRONMENT, "show_default": True})
@click.option("--name", default="phasewise", help="VPAs that name this in spec.recommenders are ours.")
@click.option("--only-namespace", help="The only namespace to look at.  [default: all]")
@click.option("--ignore-namespace", "ignored", multiple=True, help="Leave the VPAs of this one alone. Repeatable.")
@click.option("--interval", "interval_s", type=DURATION, default="15s", help="Time between rounds.")
@click.option("--step", "step_s", type=DURATION, default="15s", help="Grid of samples; no finer than the source.")
@click.option("--cycle", "cycle_s", type=DURATION, default="10m", help="How long a forecast holds.")
@click.option("--model", "model_name", default=models.BUNDLED, help="A model folder, or `bundled`.")
@click.option("--prometheus", "prometheus_url", help="Take usage from this Prometheus.  [default: metrics.k8s.io]")
@click.option(
    "--publish", type=click.Choice(["vpa", "observe"]), default="vpa", help="`observe` computes and writes nothing."
)
@click.option("--leader-elect", is_flag=True, help="Act only while holding a Lease: for more than one replica.")
@click.option("--lease-namespace", default="kube-system", help="Where that Lease lies.")
@click.option("--address", default=":8942", help="Where /healthz, /readyz and /metrics are.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
@access_options
@usage_options
def command(
    name: str,
    only_namespace: str | None,
    ignored: tuple[str, ...],
    interval_s: float,
    step_s: float,
    cycle_s: float,
    model_name: str,
    prometheus_url: str | None,
    publish: str,
    leader_elect: bool,
    lease_namespace: str,
    address: str,
    kubeconfig: Path | None,
    context: str | None,
    access: Access,
    settings: UsageSettings,
) -> None:
    """Set the requests of pods for the phase that comes next, as a recommender of the Vertical Pod Autoscaler.

    A VPA is ours when it says `recommenders: [{name: phasewise}]`; all others are left alone. Every option may stand in
    the environment: PHASEWISE_RECOMMENDER_INTERVAL=5s.

    It runs until it is told to stop (SIGTERM, Ctrl-C); then it finishes the round, leaves values behind that are safe
    while nobody watches, and gives the lease back.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if cycle_s < step_s:
        raise Misuse(f"--cycle {cycle_s:g}s is shorter than --step {step_s:g}s. A forecast holds for several samples.")
    model = models.load(model_name)
    api = connect(kubeconfig, context, user_agent=f"phasewise-recommender/{__version__}")
    usage = metrics_api_usage(api, only_namespace)
    if prometheus_url:
        usage = prometheus_usage(UsageQuery(PrometheusClient(prometheus_url, access), settings))
    scope = Scope(name, only_namespace, frozenset(ignored))
    view = ClusterView(api, scope, usage, observe_only=publish == "observe")
    recommender = Recommender(
        view,
        lambda welcome: Fleet(model, step_s, round(cycle_s / step_s), welcome),
        Options(),
        SharedLimits(),
        clock=time.time,
        stopwatch=time.monotonic,
    )
    telemetry = Telemetry(CollectorRegistry())
    telemetry.model(model.origin, str(model.facts.get("data_hash", "")))
    election = _election(api, lease_namespace) if leader_elect else None
    service = Service(view, recommender, telemetry, interval_s, (lambda: election.leads) if election else lambda: True)
    endpoints = serve(
        address, telemetry.registry, {"/healthz": lambda: service.healthy, "/readyz": lambda: service.ready}
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        service.run()
    finally:
        if election:
            election.stop()
        endpoints.shutdown()


def prometheus_usage(query: UsageQuery) -> Usage:
    """The latest sample of every container that a Prometheus knows."""

    def usage(now_s: float) -> Iterable[tuple[Place, Sample]]:
        for place, used in query.current_usage(now_s).items():
            yield Place(*place), Sample(used.timestamp_s, used.cpu_cores, used.memory_bytes)

    return usage


def _election(api: Api, namespace: str) -> LeaderElection:
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    log = logging.getLogger(__name__)
    candidate = Candidate(api, namespace, LEASE, identity)
    return LeaderElection(
        candidate, on_won=lambda: log.info("leading"), on_lost=lambda: log.warning("no longer leading")
    ).start()
