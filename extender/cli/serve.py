"""`phasewise extender serve`: the service that a kube-scheduler calls."""

from __future__ import annotations

import gc
import logging
from ipaddress import ip_address
from pathlib import Path

import click
from flask import Flask

from extender.cli.options import judging_options
from extender.placing.rehearsal import rehearse
from extender.settings import Settings
from extender.web.body import BodyLimits
from extender.web.service import Service, ServiceOptions
from extender.web.serving import Server, Serving
from recommender import __version__
from recommender.cli.common import DURATION
from recommender.cluster.access.connection import Api, connect
from recommender.errors import Misuse

log = logging.getLogger(__name__)
PEM = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(name="serve", context_settings={"auto_envvar_prefix": "PHASEWISE_EXTENDER", "show_default": True})
@click.option("--address", default="127.0.0.1:8943", help="Where to listen, host:port.")
@click.option("--tls-certificate", type=PEM, help="Speak https with this certificate (PEM).  [default: plain http]")
@click.option("--tls-key", type=PEM, help="Its key (PEM).  [default: in the certificate's file]")
@click.option("--client-authority", type=PEM, help="Let in only clients with a certificate of this authority (PEM).")
@click.option("--threads", type=click.IntRange(1, 64), default=8, help="Calls answered at a time.")
@click.option("--max-body", "max_body_mib", type=click.IntRange(1, 1024), default=16, help="Largest body, MiB.")
@click.option("--body-timeout", "body_s", type=DURATION, default="2s", help="Longest time for a body to come.")
@click.option("--leader-elect", is_flag=True, help="Answer only while holding a Lease: for a standby replica.")
@click.option("--lease-namespace", default="kube-system", help="Where that Lease lies.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
@judging_options
def command(
    address: str,
    tls_certificate: Path | None,
    tls_key: Path | None,
    client_authority: Path | None,
    threads: int,
    max_body_mib: int,
    body_s: float,
    leader_elect: bool,
    lease_namespace: str,
    kubeconfig: Path | None,
    context: str | None,
    settings: Settings,
) -> None:
    """Answer a kube-scheduler over HTTP: /filter, /prioritize, /preempt; and people: /explain/NAMESPACE/POD.

    /healthz, /readyz and /metrics are there too. Every option may stand in the environment:
    PHASEWISE_EXTENDER_ADDRESS=127.0.0.1:8943.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if client_authority is not None and tls_certificate is None:
        raise Misuse("--client-authority needs --tls-certificate: without TLS no client shows a certificate.")
    _check(address)
    if client_authority is None and not _loopback(address):
        log.warning("%s can be reached from outside, and whoever can may ask: see --client-authority", address)
    options = ServiceOptions(settings, BodyLimits(max_body_mib << 20, body_s), lease_namespace if leader_elect else "")
    services: list[Service] = []

    def api() -> Api:
        return connect(kubeconfig, context, user_agent=f"phasewise-extender/{__version__}")

    api()  # what is wrong with the kubeconfig is said here in words, not in the worker by a traceback

    def start() -> Flask:
        services.append(Service(api(), options).start())
        return services[0].app

    def stop() -> None:
        for service in services:
            service.stop()

    rehearse()
    gc.collect()
    gc.freeze()  # else the worker's first look for garbage would make copies of all that it shares with us
    Server(Serving(address, tls_certificate, tls_key, client_authority, threads), start, stop).run()


def _check(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise Misuse(f"--address {address}: give host:port, as in 127.0.0.1:8943.")


def _loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
