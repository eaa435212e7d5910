"""Creates gangs on a real control plane, and reads their pods, events and reservations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from extender.pods.reservations import CONFIG_MAP, read_reservations
from tests.rig.cluster import Cluster
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, template
from tests.rig.workloads import Json

GATE = "phasewise.dev/gang"
RESERVED_NODE = "phasewise.dev/gang-node"


def gang(
    cluster: Cluster, namespace: str, nodes: SimulatedNodes, name: str, size: int, cpu: str = "5", **spec: Any
) -> list[str]:
    """Create all its pods at once; their names."""
    labels = {"phasewise.dev/gang": name, "phasewise.dev/gang-size": str(size)}
    needs = {"cpu": cpu, "memory": "1Gi"}
    pod = template(nodes.selector, requests=needs, labels=labels, schedulingGates=[{"name": GATE}], **spec)
    return [create(cluster, namespace, f"{name}-{number}", pod) for number in range(size)]


def pods(cluster: Cluster, namespace: str, prefix: str = "") -> list[Json]:
    answer = cluster.core.list_namespaced_pod(namespace, _preload_content=False)
    items = json.loads(answer.data)["items"]
    return [pod for pod in items if pod["metadata"]["name"].startswith(prefix)]


def bound(cluster: Cluster, namespace: str, prefix: str = "") -> int:
    return sum(1 for pod in pods(cluster, namespace, prefix) if pod["spec"].get("nodeName"))


def gated(cluster: Cluster, namespace: str, prefix: str = "") -> int:
    return sum(1 for pod in pods(cluster, namespace, prefix) if pod["spec"].get("schedulingGates"))


def events(cluster: Cluster, namespace: str, pod: str) -> list[str]:
    """The events on a pod, as `reason: message`."""
    answer = cluster.core.list_namespaced_event(
        namespace, field_selector=f"involvedObject.name={pod}", _preload_content=False
    )
    events = json.loads(answer.data)["items"]
    return [f"{event['reason']}: {event['message']}" for event in events if event["reason"].startswith("Gang")]


def finish(cluster: Cluster, namespace: str, names: list[str]) -> None:
    for name in names:
        cluster.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def reserved(cluster: Cluster) -> Mapping[str, str]:
    """Pod UID -> node, as written by the controller."""
    answer = cluster.core.read_namespaced_config_map(CONFIG_MAP, "kube-system", _preload_content=False)
    return {uid: node for each in read_reservations(json.loads(answer.data)) for uid, node in each.nodes.items()}


def all_reserved(cluster: Cluster, namespace: str, prefix: str) -> bool:
    """Whether a node is reserved for each of these pods."""
    return {pod["metadata"]["uid"] for pod in pods(cluster, namespace, prefix)} <= reserved(cluster).keys()
