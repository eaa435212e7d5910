"""Find the Prometheus of a cluster, and reach it: by its name in a pod, by a port-forward of kubectl elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recommender.base.errors import Misuse, PhasewiseError
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.paths import path_of

SELECTORS = (
    "app.kubernetes.io/name=prometheus",
    "app=kube-prometheus-stack-prometheus",
    "app=prometheus,component=server",
    "app=prometheus-server",
    "app=prometheus",
    "operated-prometheus=true",
    "app.kubernetes.io/name=vmsingle",
    "app.kubernetes.io/name=victoria-metrics-single",
    "app.kubernetes.io/name=vmselect",
    "app.kubernetes.io/name=thanos-query",
)
"""Labels of the Services of common installations; the first that has one is taken."""

PORT_NAMES = ("web", "http-web", "http", "http-query")
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_GIVE_URL = "Name it: --prometheus URL."


@dataclass(frozen=True, slots=True)
class Found:
    """The Service of a Prometheus, and others that could have been meant."""

    namespace: str
    name: str
    port: int
    others: Sequence[str] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


def find_prometheus(api: Api) -> Found:
    """The first Service with the labels of a Prometheus; Misuse if there is none."""
    for selector in SELECTORS:
        listed = api.get(path_of(("v1", "services")), {"labelSelector": selector}).get("items") or []
        services = sorted((found for one in listed if (found := _service(one)) is not None), key=lambda one: one.title)
        if services:
            first, *others = services
            return Found(first.namespace, first.name, first.port, [other.title for other in others])
    raise Misuse(f"no Service of the cluster at {api.server} has the labels of a Prometheus. {_GIVE_URL}")


def _service(document: dict[str, Any]) -> Found | None:
    """A Service that has a port for queries."""
    ports = (document.get("spec") or {}).get("ports") or []
    named = [port for name in PORT_NAMES for port in ports if port.get("name") == name]
    port = next(iter([*named, *ports]), None)
    metadata = document["metadata"]
    return None if port is None else Found(metadata["namespace"], metadata["name"], int(port["port"]))


@contextmanager
def reached_prometheus(kubeconfig: Path | None, context: str | None) -> Iterator[tuple[str, Found]]:
    """The URL of the cluster's Prometheus during the block, and its Service."""
    try:
        api = connect(kubeconfig, context, user_agent="phasewise-recommend")
        found = find_prometheus(api)
    except Misuse:
        raise
    except PhasewiseError as error:
        raise Misuse(
            f"no file, no --prometheus, and no cluster to look for one: {error} Give one of them: `phasewise recommend "
            "usage.csv`, `--prometheus URL`, or `bundled` for the recordings that ship with Phasewise."
        ) from error
    if os.environ.get("KUBERNETES_SERVICE_HOST") and kubeconfig is None and "KUBECONFIG" not in os.environ:
        yield f"http://{found.name}.{found.namespace}.svc:{found.port}", found
        return
    with _forwarded(found, kubeconfig, context) as port:
        yield f"http://127.0.0.1:{port}", found


@contextmanager
def _forwarded(found: Found, kubeconfig: Path | None, context: str | None) -> Iterator[int]:
    """A local port that kubectl forwards to a Service during the block."""
    options = [
        *(["--kubeconfig", str(kubeconfig)] if kubeconfig else []),
        *(["--context", context] if context else []),
    ]
    command = ["kubectl", *options, "--namespace", found.namespace, "port-forward"]
    command += ["--address", "127.0.0.1", f"service/{found.name}", f":{found.port}"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
    except OSError as error:
        raise Misuse(f"kubectl, which would forward a port to {found.title}, is missing. {_GIVE_URL}") from error
    with process:  # closes its pipes, and waits
        try:
            line = process.stdout.readline() if process.stdout else ""  # kubectl gives up by itself
            if (port := _FORWARDING.search(line)) is None:
                _, said = process.communicate(timeout=10)
                why = " ".join(said.split())[:300]
                raise Misuse(f"kubectl could not forward a port to {found.title}: {why} {_GIVE_URL}")
            yield int(port[1])
        finally:
            process.terminate()
