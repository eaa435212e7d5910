"""The kwok server of a cluster: one process simulates the kubelets of all simulated nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from local_cluster.control_plane import POD_RANGE, serving_certificate
from local_cluster.processes import Server
from local_cluster.rig import LOOPBACK, Rig
from local_cluster.simulated.endings import ending_stages
from local_cluster.waiting import wait_until

HERE = Path(__file__).parent
SIMULATED_LABEL = "phasewise.dev/simulated"
METRICS_PATH = "/metrics/nodes/{node}/metrics/resource"
"""Path of the metrics that a real kubelet serves at `/metrics/resource` and `/metrics/cadvisor`."""

KINDS = ("Stage", "Metric", "ResourceUsage", "ClusterResourceUsage")
"""Custom kinds in use; each further one costs kwok work at the change of any other."""
LEASE_S = 100
"""Lease duration, in which kwok renews a lease four times: rare enough for 500 nodes, and well within the 50 s after
which a node is NotReady."""


def kwok_server(rig: Rig) -> Server:
    return rig.servers.get("kwok") or _start(rig)


def kwok_port(rig: Rig) -> int:
    """TLS port of kwok, as the kubelet of every simulated node."""
    return int((rig.folder / "kwok" / "port").read_text())


def metrics_url(rig: Rig, node: str) -> str:
    return f"https://{LOOPBACK}:{kwok_port(rig)}{METRICS_PATH.format(node=node)}"


def _start(rig: Rig) -> Server:
    folder = rig.folder / "kwok"
    folder.mkdir()
    port = rig.ports.free()
    (folder / "port").write_text(str(port))
    _apply_resources(rig)
    empty = folder / "config.yaml"
    empty.write_text("")  # otherwise it would read one from the home folder
    command = [
        rig.binaries["kwok"],
        f"--kubeconfig={rig.kubeconfig('kwok')}",
        f"--config={empty}",
        f"--manage-nodes-with-label-selector={SIMULATED_LABEL}=true",
        f"--node-ip={LOOPBACK}",
        f"--node-port={port}",
        f"--server-address={LOOPBACK}:{port}",
        f"--node-lease-duration-seconds={LEASE_S}",
        f"--cidr={POD_RANGE}",
        f"--enable-crds={','.join(KINDS)}",
        *serving_certificate(rig),
    ]
    return rig.start("kwok", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/healthz"))


def _apply_resources(rig: Rig) -> None:
    """Apply custom resources, the role of kwok's manifests for its certificate, stages and metrics."""
    upstream = rig.binaries.manifests("kwok", "kustomize")
    kinds = (upstream / "crd" / "bases" / f"kwok.x-k8s.io_{kind.lower()}s.yaml" for kind in KINDS)
    rig.apply(*kinds, upstream / "rbac" / "role.yaml", _binding(), _flow_schema(upstream))
    wait_until(lambda: _established(rig), "kwok's custom resources to be served", every_s=0.05, timeout_s=60)
    node_stages = ("fast/node-initialize.yaml", "heartbeat-with-lease/node-heartbeat-with-lease.yaml")
    stages = (*(upstream / "stage" / "node" / stage for stage in node_stages), HERE / "stages", *ending_stages())
    rig.apply(*stages, HERE / "metrics.yaml", HERE / "usage-from-annotations.yaml")


def _established(rig: Rig) -> bool:
    crds = rig.custom.list_cluster_custom_object("apiextensions.k8s.io", "v1", "customresourcedefinitions")["items"]
    ours = [crd for crd in crds if crd["spec"]["group"] == "kwok.x-k8s.io"]
    return len(ours) == len(KINDS) and all(
        any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in crd["status"]["conditions"]
        )
        for crd in ours
    )


def _flow_schema(upstream: Path) -> dict[str, Any]:
    """kwok's flow schema for our identity: in the queue of ordinary users, 500 nodes would miss heartbeats."""
    schema: dict[str, Any] = yaml.safe_load((upstream / "rbac" / "flow_schema.yaml").read_text())
    for rule in schema["spec"]["rules"]:
        rule["subjects"] = [{"kind": "User", "user": {"name": "kwok"}}]
    return schema


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kwok-controller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kwok-controller"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "kwok"}],
    }
