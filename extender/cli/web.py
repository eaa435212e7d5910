"""`phasewise web`: read-only pages on the cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from extender.cli.options import FILE
from extender.dashboard.pages import Access, AccessCheck, dashboard
from extender.dashboard.watching import ClusterWatch
from extender.web.app import App, Telemetry
from extender.web.server import Server
from recommender import __version__
from recommender.base.errors import Misuse
from recommender.base.listening import is_loopback
from recommender.cli.common import DURATION, say
from recommender.cli.connection import connection_options
from recommender.cli.grouped import GroupedCommand
from recommender.cli.logs import with_log_options
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket

REVIEW_QPS, REVIEW_BURST = 20.0, 40
"""Rate limit of asking about tokens (two requests for each), separate so that invalid ones do not delay the watches."""


@click.command("web", cls=GroupedCommand, environment="PHASEWISE_WEB")
@click.option("--address", default="127.0.0.1:8946", help="Where to listen, host:port.")
@click.option(
    "--access",
    type=click.Choice(["local", "token", "proxy"]),
    default="local",
    help="local: anybody on this machine may read. token: holders of a bearer token that may list PhaseProfiles in all "
    "namespaces. proxy: anybody who can reach it, for use behind an authenticating proxy.",
)
@click.option("--tls-certificate", type=FILE, help="Serve https with this certificate (PEM).  [default: plain http]")
@click.option("--tls-key", type=FILE, help="Its key (PEM).  [default: in the certificate's file]")
@click.option("--name", default="phasewise", help="The recommender whose VPAs are shown.")
@click.option("--period", "period_s", type=DURATION, default="15s", help="Time between updates of the pages.")
@with_log_options
@connection_options
def command(
    address: str,
    access: Access,
    tls_certificate: Path | None,
    tls_key: Path | None,
    name: str,
    period_s: float,
    connect: Callable[..., Api],
) -> None:
    """Show which jobs need attention, and for each its last hour, its forecast, and why it has its resources.

    \b
      phasewise web                                             http://127.0.0.1:8946, with your own rights
      phasewise web --address :8946 --access token              in a cluster: each reader with a token

    Nothing is written. Programs get the same as JSON at the same paths. The last hour only covers the time since this
    process started. Options may also be set in the environment: PHASEWISE_WEB_PERIOD=30s.
    """
    if access == "local" and not is_loopback(address):
        raise Misuse(
            f"--address {address} can be reached from outside, and --access local does not authenticate. "
            "Give --access token, or --access proxy behind an authenticating proxy."
        )
    api = connect(user_agent=f"phasewise-web/{__version__}")

    def build() -> App:
        watching, telemetry = ClusterWatch(api, name, period_s), Telemetry("web")
        telemetry.watch(
            ("watches_failing", "Watches without contact.", lambda: watching.watches.failing),
            ("jobs", "VPAs shown.", lambda: len(watching.seen.jobs)),
        )
        check = AccessCheck(api.with_rate_limit(TokenBucket(REVIEW_QPS, REVIEW_BURST))) if access == "token" else None
        app = dashboard(watching, telemetry, check, local=access == "local")
        app.parts = (watching.watches, watching.loop)
        return app

    server = Server(build, address, tls_certificate, tls_key)
    scheme = "https" if tls_certificate else "http"
    say(f"on {scheme}://{address.rpartition(':')[0]}:{server.port}/ until Ctrl-C")
    server.run()
