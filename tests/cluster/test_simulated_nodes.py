"""Simulated nodes under the real control plane."""

from __future__ import annotations

import json

import pytest
import requests

from tests.rig.cluster import Cluster
from tests.rig.rig import KubectlFailed
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, read, template
from tests.rig.waiting import wait_until


def condition(pod: dict[str, object], kind: str) -> dict[str, str]:
    conditions = pod["status"].get("conditions", ())  # type: ignore[attr-defined]
    return next((one for one in conditions if one["type"] == kind), {})


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
