"""`phasewise webhook`: sets gate and scheduler of the pods of gangs."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

import click
from flask import Flask

from extender.web.serving import Server, Serving
from extender.webhook.certificate_keeper import CertificateKeeper, Kept
from extender.webhook.reviewing import create_webhook
from recommender import __version__
from recommender.cluster.access.connection import Api, connect


@click.command(name="webhook", context_settings={"auto_envvar_prefix": "PHASEWISE_WEBHOOK", "show_default": True})
@click.option("--address", default="127.0.0.1:8945", help="Where to listen (https), host:port.")
@click.option(
    "--name",
    "names",
    multiple=True,
    default=("phasewise-webhook.kube-system.svc",),
    help="Host name or address by which the API server reaches it; may be given several times.",
)
@click.option("--namespace", default="kube-system", help="Where the secret with the certificate lies.")
@click.option("--secret", default="phasewise-webhook", help="Its name; it is made when it is not there.")
@click.option("--configuration", default="phasewise-webhook", help="The MutatingWebhookConfiguration that trusts it.")
@click.option("--scheduler-name", "scheduler", default="phasewise", help="Put in place of the default; empty keeps it.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
def command(
    address: str,
    names: tuple[str, ...],
    namespace: str,
    secret: str,
    configuration: str,
    scheduler: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Have the pods of gangs wait at the gate, in namespaces labelled phasewise.dev/gangs=enabled.

    Its certificate is its own: made, shared by its replicas in a secret, trusted by the webhook's configuration, and
    renewed a month before it expires.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)

    def api() -> Api:
        return connect(kubeconfig, context, user_agent=f"phasewise-webhook/{__version__}")

    with tempfile.TemporaryDirectory(prefix="phasewise-webhook-") as folder:
        kept = Kept(namespace, secret, names, configuration, Path(folder) / "serving.pem")
        CertificateKeeper(api(), kept, time.time).hold()
        keepers: list[CertificateKeeper] = []

        def start() -> Flask:
            keepers.append(CertificateKeeper(api(), kept, time.time).start())
            return create_webhook(scheduler)

        def stop() -> None:
            for keeper in keepers:
                keeper.stop()

        Server(Serving(address, kept.file), start, stop).run()
