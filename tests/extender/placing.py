"""Jobs with a history on a real cluster, and what came of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import requests
from kubernetes.client.exceptions import ApiException

from local_cluster.cluster import Cluster
from local_cluster.recording_extender import Json
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import template
from local_cluster.waiting import wait_until

EARLY, LATE = [12.0] * 12 + [1.0] * 12, [1.0] * 12 + [12.0] * 12
"""Cores in the coming hour, in cells of 150 s: two jobs of one kind need 24 of a node's 16 at once, an early and a late
one never more than 13."""


def job(nodes: SimulatedNodes, workload: str = "", **more: Any) -> Json:
    labels = {"phasewise.dev/workload": workload} if workload else {}
    needs = {"cpu": "1", "memory": "1Gi"}
    return template(nodes.selector, requests=needs, labels=labels, schedulerName="phasewise", **more)


def profile(
    cluster: Cluster, namespace: str, workload: str, cores: list[float], memory_bytes: list[float] | None = None
) -> None:
    """The profile that the recommender would have written of a class; of memory 1 GiB unless told otherwise."""
    memory_bytes = memory_bytes or [2.0**30] * len(cores)
    demand = {"stepSeconds": 150, "runs": 3, "cpuCores": cores, "memoryBytes": memory_bytes}
    body = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "PhaseProfile",
        "metadata": {"name": f"class.{workload}"},
        "spec": {"class": True},
    }
    with contextlib.suppress(ApiException):  # it may be there already; anything else keeps its status from being set
        cluster.custom.create_namespaced_custom_object("phasewise.dev", "v1alpha1", namespace, "phaseprofiles", body)
    set_status(cluster, namespace, workload, {"containers": [{"name": "main", "demand": demand}]})


def set_status(cluster: Cluster, namespace: str, workload: str, status: Json) -> None:
    """Set these parts of the status of a class's profile."""
    where = ("phasewise.dev", "v1alpha1", namespace, "phaseprofiles", f"class.{workload}")
    cluster.custom.patch_namespaced_custom_object_status(*where, {"status": status})


def judged_by_history(url: str, namespace: str, workload: str) -> bool:
    """Whether a pod of this class, asked about out of turn, is judged by what was learned of it."""
    labels = {"phasewise.dev/workload": workload}
    pod = {"metadata": {"name": "probe", "namespace": namespace, "uid": f"probe-{workload}", "labels": labels}}
    asked = {"Pod": {**pod, "spec": {"containers": [{"name": "main"}]}}, "NodeNames": []}
    requests.post(f"{url}/filter", json=asked, timeout=5).raise_for_status()
    return bool(explained(url, namespace, "probe")["demandFrom"] == "history")


def placed(cluster: Cluster, namespace: str, count: int, prefix: str = "") -> dict[str, str]:
    """Wait until so many pods (whose names begin so) are bound; pod -> node."""

    def look() -> dict[str, str]:
        answer = cluster.core.list_namespaced_pod(namespace, _preload_content=False)
        pods = [(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in json.loads(answer.data)["items"]]
        found = {name: node for name, node in pods if node and name.startswith(prefix)}
        return found if len(found) == count else {}

    return wait_until(look, f"{count} pods to be bound", timeout_s=90)


def tries_until_bound(cluster: Cluster, namespace: str, pod: str) -> int:
    """Have a pod tried again and again, as `phasewise controller` has it; how often until it was bound."""
    tries = 0

    def let_in() -> bool:
        nonlocal tries
        tries += 1
        words = {"metadata": {"annotations": {"retry.phasewise.dev/at": str(tries)}}}
        return bool(cluster.core.patch_namespaced_pod(pod, namespace, words).spec.node_name)

    wait_until(let_in, f"{pod} to be let in", timeout_s=90)
    return tries


def explained(url: str, namespace: str, pod: str) -> dict[str, Any]:
    answer = requests.get(f"{url}/explain/{namespace}/{pod}", timeout=5)
    answer.raise_for_status()
    told: dict[str, Any] = answer.json()
    return told


def number(url: str, metric: str) -> float:
    lines = requests.get(f"{url}/metrics", timeout=5).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(metric))


def together(where: Mapping[str, str], kind: str) -> int:
    """The most pods of a kind on one node."""
    nodes = [node for pod, node in where.items() if pod.startswith(kind)]
    return max(nodes.count(node) for node in nodes)
