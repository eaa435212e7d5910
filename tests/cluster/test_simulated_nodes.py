"""Simulated nodes under the real control plane."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
import requests
from kubernetes import client

from local_cluster.cluster import Cluster
from local_cluster.rig import KubectlFailed
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import create, read, template
from local_cluster.waiting import wait_until


@pytest.fixture(scope="module")
def hundred_nodes(cluster: Cluster) -> Iterator[SimulatedNodes]:
    nodes = cluster.start_nodes(100, cpu="4", memory="16Gi")
    yield nodes
    nodes.remove()


def condition(pod: dict[str, object], kind: str) -> dict[str, str]:
    conditions = pod["status"].get("conditions", ())  # type: ignore[attr-defined]
    return next((one for one in conditions if one["type"] == kind), {})


def test_a_deployment_on_a_hundred_nodes_runs(cluster: Cluster, namespace: str, hundred_nodes: SimulatedNodes) -> None:
    apps = client.AppsV1Api(cluster.client())
    spec = {
        "replicas": 200,
        "selector": {"matchLabels": {"app": "simulated"}},
        "template": template(hundred_nodes.selector),
    }
    apps.create_namespaced_deployment(namespace, {"metadata": {"name": "workers"}, "spec": spec})
    wait_until(
        lambda: apps.read_namespaced_deployment("workers", namespace).status.ready_replicas == 200,
        "200 replicas to be ready",
        timeout_s=180,
        every_s=0.3,
    )
    used = Counter(node for _, node in _placed(cluster, namespace))
    assert set(used) <= set(hundred_nodes.names)
    assert len(used) > 90, "the scheduler spreads a deployment over the nodes"


def test_an_extended_resource_is_allocated_until_none_is_left(cluster: Cluster, namespace: str) -> None:
    nodes = cluster.start_nodes(1, extended={"nvidia.com/gpu": "4"})
    gpus = {"cpu": "1", "nvidia.com/gpu": "2"}
    for name in ("first", "second"):
        create(cluster, namespace, name, template(nodes.selector, requests=gpus, limits={"nvidia.com/gpu": "2"}))
        wait_until(lambda name=name: _runs(cluster, namespace, name), f"{name} to run", timeout_s=60)
    create(cluster, namespace, "third", template(nodes.selector, requests=gpus, limits={"nvidia.com/gpu": "2"}))

    def refused() -> dict[str, str]:
        scheduled = condition(read(cluster, namespace, "third"), "PodScheduled")
        return scheduled if scheduled.get("reason") == "Unschedulable" else {}

    assert (
        "Insufficient nvidia.com/gpu"
        in wait_until(refused, "the third pod to be unschedulable", timeout_s=60)["message"]
    )
    cluster.core.delete_namespaced_pod("first", namespace)
    wait_until(lambda: _runs(cluster, namespace, "third"), "the third pod to get the first one's GPUs", timeout_s=60)


def test_a_taint_keeps_away_pods_that_do_not_tolerate_it(cluster: Cluster, namespace: str) -> None:
    nodes = cluster.start_nodes(1, taints=[{"key": "accelerator", "value": "true", "effect": "NoSchedule"}])
    create(cluster, namespace, "intolerant", template(nodes.selector))
    create(
        cluster,
        namespace,
        "tolerant",
        template(nodes.selector, tolerations=[{"key": "accelerator", "operator": "Exists"}]),
    )
    wait_until(lambda: _runs(cluster, namespace, "tolerant"), "the tolerant pod to run", timeout_s=60)
    wait_until(
        lambda: (
            "untolerated taint" in condition(read(cluster, namespace, "intolerant"), "PodScheduled").get("message", "")
        ),
        "the other one to be refused for the taint",
        timeout_s=60,
    )


def test_a_scheduling_gate_holds_a_pod_until_it_is_removed(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    gated = template(simulated_nodes.selector, schedulingGates=[{"name": "phasewise.dev/wait"}])
    create(cluster, namespace, "gated", gated)
    create(cluster, namespace, "free", template(simulated_nodes.selector))
    wait_until(lambda: _runs(cluster, namespace, "free"), "a pod without a gate to run", timeout_s=60)
    held = read(cluster, namespace, "gated")
    assert condition(held, "PodScheduled")["reason"] == "SchedulingGated"
    assert "nodeName" not in held["spec"]
    released = [{"op": "remove", "path": "/spec/schedulingGates"}]
    cluster.core.patch_namespaced_pod("gated", namespace, released, _content_type="application/json-patch+json")
    wait_until(lambda: _runs(cluster, namespace, "gated"), "the released pod to run", timeout_s=60)


def test_removing_nodes_removes_their_pods(cluster: Cluster, namespace: str) -> None:
    nodes = cluster.start_nodes(2)
    create(cluster, namespace, "doomed", template(nodes.selector))
    wait_until(lambda: _runs(cluster, namespace, "doomed"), "the pod to run", timeout_s=60)
    assert nodes.pods() == [(namespace, "doomed")]
    nodes.remove()
    assert not nodes.pods()
    assert not {node.metadata.name for node in cluster.core.list_node().items} & set(nodes.names)


def test_nodes_that_are_not_simulated_are_left_alone(cluster: Cluster, simulated_nodes: SimulatedNodes) -> None:
    cluster.core.create_node({"metadata": {"name": "foreign"}})
    try:
        later = cluster.start_nodes(1)
        assert "Ready" in cluster.kubectl("get", "node", later.names[0])
        assert not cluster.core.read_node("foreign").status.conditions
    finally:
        cluster.core.delete_node("foreign")


def test_a_nodes_metrics_verify_only_with_our_authority(cluster: Cluster, simulated_nodes: SimulatedNodes) -> None:
    url = simulated_nodes.metrics_url(simulated_nodes.names[0])
    answer = requests.get(url, verify=str(cluster.authority.file), timeout=10)
    assert answer.status_code == 200
    assert "node_cpu_usage_seconds_total" in answer.text
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(url, verify=True, timeout=10)


def test_the_user_behind_simulated_nodes_may_not_read_secrets(
    cluster: Cluster, simulated_nodes: SimulatedNodes
) -> None:
    assert json.loads(cluster.kubectl("get", "nodes", "--output=json", identity="kwok"))["items"]
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("get", "secrets", "--all-namespaces", identity="kwok")


def _runs(cluster: Cluster, namespace: str, name: str) -> bool:
    return condition(read(cluster, namespace, name), "Ready").get("status") == "True"


def _placed(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    return [(pod.metadata.name, pod.spec.node_name) for pod in cluster.core.list_namespaced_pod(namespace).items]
