"""The real metrics-server behind metrics.k8s.io, and its measurements of pods."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import durationpy
import yaml
from kubernetes.utils.quantity import parse_quantity

from tests.rig.control_plane import delegated
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.waiting import wait_until

RESOLUTION_S = 10
"""Its scrape interval, the shortest that it accepts."""

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_NAMESPACE, _NAME = "kube-system", "metrics-server"


@dataclass(frozen=True)
class Measured:
    """One container in metrics.k8s.io.

    `cpu_cores`: Mean over the `window_s` seconds before `end_s`.
    `memory_bytes`: Working set at `end_s`.
    `end_s`: Unix time in whole seconds.
    """

    cpu_cores: float
    memory_bytes: float
    end_s: float
    window_s: float


def start_metrics_server(rig: Rig) -> Server:
    """Start it, and wait until metrics.k8s.io is served; values follow after two scrapes (`wait_for_metrics`).

    Kubelets, including simulated ones, need a certificate of the cluster's authority for the address in their node's
    status. It authenticates to them and to the API server with its service account's token.
    """
    rig.apply(rig.binaries.manifests("metrics-server", "manifests/base/rbac.yaml"))
    kubeconfig = rig.service_account(_NAMESPACE, _NAME)
    port = rig.ports.free()
    command: list[str | Path] = [
        rig.binaries["metrics-server"],
        f"--kubeconfig={kubeconfig}",
        *delegated(rig, kubeconfig, port),
        f"--metric-resolution={RESOLUTION_S}s",
        "--kubelet-request-timeout=5s",  # must be shorter than the resolution
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        f"--kubelet-certificate-authority={rig.authority.file}",
    ]
    server = rig.start("metrics-server", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/livez"), wait=False)
    server.wait_ready()
    register(rig, port)
    return server


def register(rig: Rig, port: int) -> None:
    """Serve metrics.k8s.io from a port of this machine, with the certificate of the cluster's servers.

    Its Service leads the API server to this machine: there are no pods, and endpoints may not be on loopback.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    file = rig.binaries.manifests("metrics-server", "manifests/base") / "apiservice.yaml"
    registration: dict[str, Any] = yaml.safe_load(file.read_text())
    del registration["spec"]["insecureSkipTLSVerify"]
    registration["spec"]["caBundle"] = base64.b64encode(rig.authority.pem).decode()
    registration["spec"]["service"]["port"] = port
    rig.apply(service, registration)

    def available() -> bool:
        made: Any = rig.custom.get_cluster_custom_object(
            "apiregistration.k8s.io", "v1", "apiservices", f"{VERSION}.{GROUP}"
        )
        conditions = made.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Available" and condition["status"] == "True" for condition in conditions)

    wait_until(available, "metrics.k8s.io to be served", timeout_s=60.0)


def measured(rig: Rig, namespace: str, pod: str) -> dict[str, Measured]:
    """Present values of metrics.k8s.io by container; ApiException if it does not know the pod (404) or has none yet."""
    metrics: Any = rig.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, "pods", pod)
    end_s = datetime.fromisoformat(metrics["timestamp"]).timestamp()
    window_s = durationpy.from_str(metrics["window"]).total_seconds()
    return {
        container["name"]: Measured(
            float(parse_quantity(container["usage"]["cpu"])),
            float(parse_quantity(container["usage"]["memory"])),
            end_s,
            window_s,
        )
        for container in metrics["containers"]
    }


def wait_for_metrics(rig: Rig, namespace: str, pod: str) -> dict[str, Measured]:
    """Wait until metrics.k8s.io has values of a pod: two scrapes after its start, 10 to 20 s."""
    return wait_until(
        lambda: measured(rig, namespace, pod),
        f"metrics.k8s.io to know pod {namespace}/{pod}",
        timeout_s=90.0,
        every_s=0.25,
    )
