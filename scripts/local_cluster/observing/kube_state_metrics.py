"""The real kube-state-metrics: the objects of the API as series (`kube_pod_*` and the like)."""

from __future__ import annotations

import json
from pathlib import Path

from local_cluster.processes import Server
from local_cluster.rig import LOOPBACK, Rig

_NAMESPACE, _NAME = "kube-system", "kube-state-metrics"


def start_kube_state_metrics(rig: Rig) -> Server:
    """Start it with its upstream roles; every Prometheus of the cluster scrapes it, whichever started first."""
    manifests = rig.binaries.manifests("kube-state-metrics", "examples/standard")
    rig.apply(*(manifests / f"{part}.yaml" for part in ("cluster-role", "cluster-role-binding")))
    port = rig.ports.free()
    web = rig.folder / "kube-state-metrics-web.yaml"
    certificate, key = rig.authority.folder / "serving.crt", rig.authority.folder / "serving.key"
    web.write_text(json.dumps({"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}}))
    command: list[str | Path] = [
        rig.binaries["kube-state-metrics"],
        f"--kubeconfig={rig.service_account(_NAMESPACE, _NAME)}",
        f"--host={LOOPBACK}",
        f"--port={port}",
        f"--telemetry-host={LOOPBACK}",
        f"--telemetry-port={rig.ports.free()}",
        f"--tls-config={web}",
    ]
    server = rig.start("kube-state-metrics", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/livez"))
    write_targets(targets_file(rig), [{"targets": [f"{LOOPBACK}:{port}"]}])
    return server


def kube_state_metrics_url(rig: Rig) -> str:
    address = json.loads(targets_file(rig).read_text())[0]["targets"][0]
    return f"https://{address}/metrics"


def targets_file(rig: Rig) -> Path:
    return rig.folder / "targets" / "kube-state-metrics.json"


def write_targets(file: Path, groups: list[dict[str, object]]) -> None:
    """Write a file of targets atomically, since Prometheus watches it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(groups))
    aside.rename(file)
