"""`phasewise webhook`: sets the gate and scheduler of gang pods."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from extender.web.app import COUNTED_TOGETHER, App, BodyLimits, Telemetry
from extender.web.server import Server
from extender.webhook.certificates import CertificateKeeper
from extender.webhook.reviewing import handlers
from recommender import __version__
from recommender.cli.connection import connection_options
from recommender.cli.grouped import GroupedCommand
from recommender.cli.logs import with_log_options
from recommender.cluster.access.connection import Api

LIMITS = BodyLimits(largest_bytes=4 << 20, total_bytes=8 << 20)
"""The API server accepts pods of at most 3 MiB."""

CONNECTIONS = 500  # of a worker; API servers keep a few

WORKERS = 2 if COUNTED_TOGETHER else 1
"""Reviews need no state: while one worker parses a large body, or is replaced, the other answers."""


@click.command("webhook", cls=GroupedCommand, environment="PHASEWISE_WEBHOOK")
@click.option("--address", default="127.0.0.1:8945", help="Where to listen (https), host:port.")
@click.option(
    "--name",
    "names",
    multiple=True,
    default=("phasewise-webhook.kube-system.svc",),
    help="Host name or address by which the API server reaches it; repeatable.",
)
@click.option("--namespace", default="kube-system", help="Namespace of the Secret with the certificate.")
@click.option("--secret", default="phasewise-webhook", help="Name of that Secret, which must exist.")
@click.option("--configuration", default="phasewise-webhook", help="The MutatingWebhookConfiguration to update.")
@click.option("--scheduler-name", "scheduler", default="phasewise", help="Replaces the default; empty: no change.")
@with_log_options
@connection_options
def command(
    address: str,
    names: tuple[str, ...],
    namespace: str,
    secret: str,
    configuration: str,
    scheduler: str,
    connect: Callable[..., Api],
) -> None:
    """Add the scheduling gate to the pods of gangs, in namespaces labelled phasewise.dev/gangs=enabled.

    It manages its own certificate: created, shared by its replicas in a Secret, trusted by the webhook configuration,
    and renewed a month before it expires. It has two workers if the environment names a folder for their counters
    (PROMETHEUS_MULTIPROC_DIR), else one.
    """
    with tempfile.TemporaryDirectory(prefix="phasewise-webhook-") as folder:
        file = Path(folder) / "serving.pem"

        def keeper() -> CertificateKeeper:
            api = connect(user_agent=f"phasewise-webhook/{__version__}")
            return CertificateKeeper(api, namespace, secret, names, configuration, file)

        def build() -> App:
            app = App(Telemetry("webhook"), handlers(scheduler), lambda: "", LIMITS)
            app.parts = (keeper().loop,)
            return app

        keeper().ensure()
        Server(build, address, file, max_connections=CONNECTIONS, workers=WORKERS).run()
