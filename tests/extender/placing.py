"""Jobs and profiles on a real cluster, and how the jobs were placed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import requests
from kubernetes.client.exceptions import ApiException

from tests.rig.cluster import Cluster
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import template
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

EARLY, LATE = [12.0] * 12 + [1.0] * 12, [1.0] * 12 + [12.0] * 12
"""Cores in the coming hour, in cells of 150 s. Two jobs of the same kind need 24 of a node's 16 cores at once, an early
and a late one at most 13."""


def job(nodes: SimulatedNodes, workload: str = "", **spec: Any) -> Json:
    labels = {"phasewise.dev/workload": workload} if workload else {}
    amounts = {"cpu": "1", "memory": "1Gi"}
    return template(nodes.selector, requests=amounts, labels=labels, schedulerName="phasewise", **spec)


def put_profile(
    cluster: Cluster, namespace: str, workload: str, cores: list[float], memory_bytes: list[float] | None = None
) -> None:
    """Write the profile of a class as the recommender would, by default with 1 GiB of memory."""
    memory_bytes = memory_bytes or [2.0**30] * len(cores)
    demand = {"stepSeconds": 150, "runs": 3, "cpuCores": cores, "memoryBytes": memory_bytes}
    body = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "PhaseProfile",
        "metadata": {"name": f"class.{workload}"},
        "spec": {"class": True},
    }
    with contextlib.suppress(ApiException):  # it may exist; if it does not, setting its status fails
        cluster.custom.create_namespaced_custom_object("phasewise.dev", "v1alpha1", namespace, "phaseprofiles", body)
    set_status(cluster, namespace, workload, {"containers": [{"name": "main", "demand": demand}]})


def set_status(cluster: Cluster, namespace: str, workload: str, status: Json) -> None:
    """Set parts of the status of a class's profile."""
    profile = ("phasewise.dev", "v1alpha1", namespace, "phaseprofiles", f"class.{workload}")
    cluster.custom.patch_namespaced_custom_object_status(*profile, {"status": status})


def has_history(url: str, namespace: str, workload: str) -> bool:
    """Whether the extender judges pods of this class by history, found out by a call about a probe."""
    labels = {"phasewise.dev/workload": workload}
    pod = {"metadata": {"name": "probe", "namespace": namespace, "uid": f"probe-{workload}", "labels": labels}}
    args = {"Pod": {**pod, "spec": {"containers": [{"name": "main"}]}}, "NodeNames": []}
    requests.post(f"{url}/filter", json=args, timeout=5).raise_for_status()
    return bool(explain(url, namespace, "probe")["demandFrom"] == "history")


def wait_bound(cluster: Cluster, namespace: str, count: int, prefix: str = "") -> dict[str, str]:
    """Wait until so many pods (with this prefix) are bound; pod -> node."""

    def bound() -> dict[str, str]:
        answer = cluster.core.list_namespaced_pod(namespace, _preload_content=False)
        pods = [(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in json.loads(answer.data)["items"]]
        nodes = {name: node for name, node in pods if node and name.startswith(prefix)}
        return nodes if len(nodes) == count else {}

    return wait_until(bound, f"{count} pods to be bound", timeout_s=90)


def tries_until_bound(cluster: Cluster, namespace: str, pod: str) -> int:
    """Let the scheduler retry a pod, as `phasewise controller` does, until it is bound; the number of retries."""
    tries = 0

    def bound_after_retry() -> bool:
        nonlocal tries
        tries += 1
        retry = {"metadata": {"annotations": {"retry.phasewise.dev/at": str(tries)}}}
        return bool(cluster.core.patch_namespaced_pod(pod, namespace, retry).spec.node_name)

    wait_until(bound_after_retry, f"{pod} to be bound", timeout_s=90)
    return tries


def explain(url: str, namespace: str, pod: str) -> dict[str, Any]:
    answer = requests.get(f"{url}/explain/{namespace}/{pod}", timeout=5)
    answer.raise_for_status()
    decision: dict[str, Any] = answer.json()
    return decision


def metric(url: str, name: str) -> float:
    lines = requests.get(f"{url}/metrics", timeout=5).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def max_per_node(node_of: Mapping[str, str], prefix: str) -> int:
    """The most pods with this prefix on one node."""
    nodes = [node for pod, node in node_of.items() if pod.startswith(prefix)]
    return max(nodes.count(node) for node in nodes)
