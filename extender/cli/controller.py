"""`phasewise controller`: lets gangs of pods in together."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
from pathlib import Path

import click
from prometheus_client import CollectorRegistry, Gauge

from extender.gangs.controller import Controller, Manners
from extender.gangs.decide import Patience
from extender.gangs.waking import Waker
from recommender import __version__
from recommender.cli.common import DURATION
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import Candidate, LeaderElection
from recommender.live.health import serve

log = logging.getLogger(__name__)

LEASE = "phasewise-controller"


@click.command(name="controller", context_settings={"auto_envvar_prefix": "PHASEWISE_CONTROLLER", "show_default": True})
@click.option("--address", default="127.0.0.1:8944", help="Where /healthz, /readyz and /metrics answer, host:port.")
@click.option("--leader-elect", is_flag=True, help="Act only while holding a Lease: for a standby replica.")
@click.option("--lease-namespace", default="kube-system", help="Where that Lease lies.")
@click.option(
    "--bind-within", "bind_within_s", type=DURATION, default="5m", help="After so long an unbound gang holds no others."
)
@click.option(
    "--period", "period_s", type=DURATION, default="5s", help="Longest time between two looks at the cluster."
)
@click.option(
    "--retry-after",
    "retry_s",
    type=DURATION,
    default="30s",
    help="A pod that the extender refused every node is tried again after so long; 0: when the scheduler likes.",
)
@click.option("--qps", type=click.FloatRange(0, min_open=True), default=50.0, help="Requests a second.")
@click.option("--burst", type=click.IntRange(1), default=100, help="Requests at once after a pause.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
def command(
    address: str,
    leader_elect: bool,
    lease_namespace: str,
    bind_within_s: float,
    period_s: float,
    retry_s: float,
    qps: float,
    burst: int,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Let gangs in: pods with the scheduling gate phasewise.dev/gang go to the scheduler all together, or not at all.

    A gang is named by the label phasewise.dev/gang and its size by phasewise.dev/gang-size; the groups of JobSet,
    Kubeflow, Volcano, Coscheduling, Kueue and plain Jobs are known by their own labels. Events on the pods say why a
    gang waits. Pods that the extender refused every node are tried again now and then. Every option may stand in the
    environment: PHASEWISE_CONTROLLER_QPS=20.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    agent = f"phasewise-controller/{__version__}"
    api = connect(kubeconfig, context, qps=qps, burst=burst, user_agent=agent)
    election = _election(api, lease_namespace) if leader_elect else None
    manners = Manners(period_s=period_s, patience=Patience(bind_within_s))

    def leads() -> bool:
        return election is None or election.leads

    controller = Controller(api, leads, manners)
    waker = Waker(api, leads, retry_s) if retry_s else None
    probes = {"/healthz": lambda: True, "/readyz": lambda: not controller.not_ready()}
    server = serve(address, _metrics(controller, waker), probes)
    parts = [part for part in (election, controller, waker) if part is not None]
    for part in parts:
        part.start()
    ended.wait()
    for part in reversed(parts):
        part.stop()
    server.shutdown()


def _metrics(controller: Controller, waker: Waker | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    for name, words, value in (
        ("gangs_admitted", "Gangs let in since the start.", lambda: controller.admitted),
        ("gangs_waiting", "Gangs at the gate.", lambda: controller.waiting),
        ("pods_woken", "Times a refused pod was tried again.", lambda: waker.woken if waker else 0),
        ("watches_failing", "Watches without contact.", lambda: controller.failing + (waker.failing if waker else 0)),
    ):
        Gauge(f"phasewise_controller_{name}", words, registry=registry).set_function(value)
    return registry


def _election(api: Api, namespace: str) -> LeaderElection:
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    candidate = Candidate(api.apart(TokenBucket(5, 10)), namespace, LEASE, identity)
    return LeaderElection(
        candidate, on_won=lambda: log.info("leading"), on_lost=lambda: log.warning("no longer leading")
    )
