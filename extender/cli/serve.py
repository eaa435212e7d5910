"""`phasewise extender serve`: the HTTP service for kube-scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from extender.cli.options import FILE, scoring_options
from extender.settings import Settings
from extender.web.app import App, BodyLimits
from extender.web.server import Server
from extender.web.service import Service
from recommender import __version__
from recommender.base.errors import Misuse
from recommender.base.listening import is_loopback
from recommender.cli.common import DURATION
from recommender.cli.connection import connection_options
from recommender.cli.grouped import GroupedCommand
from recommender.cli.logs import with_log_options
from recommender.cluster.access.connection import Api

log = logging.getLogger(__name__)


@click.command("serve", cls=GroupedCommand, environment="PHASEWISE_EXTENDER")
@click.option("--address", default="127.0.0.1:8943", help="Where to listen, host:port.")
@click.option("--tls-certificate", type=FILE, help="Serve https with this certificate (PEM).  [default: plain http]")
@click.option("--tls-key", type=FILE, help="Its key (PEM).  [default: in the certificate's file]")
@click.option("--client-authority", type=FILE, help="Accept only clients with a certificate of this authority (PEM).")
@click.option("--max-body", "max_body_mib", type=click.IntRange(1, 1024), default=16, help="Largest body, MiB.")
@click.option("--request-timeout", "request_s", type=DURATION, default="5s", help="Time limit to receive a request.")
@click.option("--leader-elect", is_flag=True, help="Answer only while holding a Lease: for standby replicas.")
@click.option("--lease-namespace", default="kube-system", help="Namespace of the Lease and of the reservations.")
@click.option(
    "--filter-to-best",
    is_flag=True,
    help="Pass only the best node in /filter, unless soft constraints may matter more: one call per pod, not two. For "
    "a scheduler without other extenders whose own scorers cannot outvote this one, as in the manifests.",
)
@with_log_options
@connection_options
@scoring_options
def command(
    address: str,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_authority: Path | None,
    max_body_mib: int,
    request_s: float,
    leader_elect: bool,
    lease_namespace: str,
    filter_to_best: bool,
    connect: Callable[..., Api],
    settings: Settings,
) -> None:
    """Serve /filter, /prioritize and /preempt for a kube-scheduler, and /explain/NAMESPACE/POD for people.

    Also serves /healthz, /readyz and /metrics. Options may also be set in the environment:
    PHASEWISE_EXTENDER_ADDRESS=127.0.0.1:8943.
    """
    if client_authority is not None and tls_certificate is None:
        raise Misuse("--client-authority needs --tls-certificate: without TLS there are no client certificates.")
    if client_authority is None and not is_loopback(address):
        log.warning("%s can be reached from outside without authentication: see --client-authority", address)
    api = connect(user_agent=f"phasewise-extender/{__version__}")
    limits = BodyLimits(max_body_mib << 20, request_s)
    settings = replace(settings, filter_to_best=filter_to_best)

    def build() -> App:
        return Service(api, settings, limits, lease_namespace if leader_elect else "", lease_namespace).app

    Server(build, address, tls_certificate, tls_key, client_authority, request_s).run()
