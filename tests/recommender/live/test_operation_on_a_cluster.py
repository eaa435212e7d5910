"""The recommender as operators run it: several replicas, shards, an API server that hangs, VPAs that come later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from recommender.live.shards import shard_of
from tests.cluster.cluster import Cluster
from tests.cluster.processes import Server
from tests.cluster.simulated.nodes import SimulatedNodes
from tests.cluster.simulated.usage import Usage, drive_usage
from tests.cluster.vpa_objects import create_vpa
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources, roll_out
from tests.recommender.live.process import NAME, address_of, install, metric, start_recommender

Start = Callable[..., Server]


@pytest.fixture(scope="module")
def account(vpa: Cluster, metrics_server: Cluster) -> Path:
    """The kubeconfig of the service account that the manifests give the recommender."""
    return install(metrics_server)


@pytest.fixture
def start(cluster: Cluster, account: Path) -> Iterator[Start]:
    """Start a recommender with more options. It is ended with the test."""
    started: list[Server] = []

    def started_with(*options: str, name: str = NAME) -> Server:
        started.append(start_recommender(cluster, account, "--log-format", "json", *options, name=name))
        return started[-1]

    yield started_with
    for server in started:
        server.stop()


def status_of(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    return json.loads(cluster.kubectl("get", "vpa", name, "-n", namespace, "-o", "json")).get("status", {})


def a_workload(cluster: Cluster, nodes: SimulatedNodes, namespace: str, name: str, **vpa: Any) -> None:
    pod = roll_out(cluster, namespace, name, pod_spec(nodes.selector, resources({"cpu": "2", "memory": "8Gi"})))[0]
    drive_usage(cluster, namespace, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))
    create_vpa(cluster, namespace, name, update_mode="Off", **vpa)


def test_a_vpa_that_is_given_to_us_later_keeps_the_history_of_who_had_it_before(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    """Its checkpoint is read when it comes, not at the start only; what stands there is not written over."""
    a_workload(cluster, simulated_nodes, namespace, "moved", recommender="default")
    known = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": "moved-main", "namespace": namespace},
        "spec": {"vpaObjectName": "moved", "containerName": "main"},
        "status": {
            "version": "v3",
            "firstSampleStart": "2026-01-01T00:00:00Z",
            "lastSampleStart": "2026-01-02T00:00:00Z",
            "lastUpdateTime": "2026-01-02T00:00:00Z",
            "totalSamplesCount": 5000,
            "cpuHistogram": {
                "referenceTimestamp": "2026-01-02T00:00:00Z",
                "bucketWeights": {"25": 10000},
                "totalWeight": 500.0,
            },
            "memoryHistogram": {
                "referenceTimestamp": "2026-01-02T00:00:00Z",
                "bucketWeights": {"26": 10000},
                "totalWeight": 2.0,
            },
        },
    }
    cluster.apply(known)
    server = start("--checkpoint-interval", "1s")
    wait_until(lambda: metric(server, "phasewise_rounds_total") > 1, "rounds without it", timeout_s=60)
    ours = [{"op": "add", "path": "/spec/recommenders", "value": [{"name": "phasewise"}]}]
    cluster.kubectl("patch", "vpa", "moved", "-n", namespace, "--type=json", "-p", json.dumps(ours))

    def samples() -> int:
        raw = cluster.kubectl("get", "vpacheckpoint", "moved-main", "-n", namespace, "-o", "json")
        return int(json.loads(raw)["status"]["totalSamplesCount"])

    wait_until(lambda: samples() != 5000, "our first checkpoint of it", timeout_s=120)
    assert samples() > 5000
    assert metric(server, "phasewise_checkpoint_writes_total", outcome="written") >= 1
    assert metric(server, "phasewise_api_requests_total", verb="PATCH", code="200") >= 1


def test_of_two_replicas_one_acts_and_the_other_takes_over_at_once(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    a_workload(cluster, simulated_nodes, namespace, "watched")
    first = start("--leader-elect", name=f"{NAME}-a")
    wait_until(lambda: metric(first, "phasewise_leader") == 1, "the first to lead", timeout_s=30)
    wait_until(lambda: status_of(cluster, namespace, "watched"), "a word on the VPA", timeout_s=120)
    second = start("--leader-elect", name=f"{NAME}-b")
    assert metric(second, "phasewise_rounds_total") == 0
    assert requests.get(f"http://{address_of(second)}/healthz", timeout=2).status_code == 200
    began_s = time.monotonic()
    first.stop()
    assert time.monotonic() - began_s < 10.0
    wait_until(lambda: metric(second, "phasewise_rounds_total") >= 1, "the second's rounds", timeout_s=10)
    assert metric(second, "phasewise_leader") == 1


def test_shards_share_the_cluster_and_each_vpa_has_one_of_them(
    cluster: Cluster, simulated_nodes: SimulatedNodes, start: Start
) -> None:
    names: dict[int, str] = {}
    while names.keys() != {0, 1}:
        made = cluster.namespace("sharded")
        names.setdefault(shard_of(made, 2), made)
    for name in names.values():
        create_vpa(cluster, name, "alone")  # of a Deployment that does not exist: whoever owns it says so
    lease = ["--lease-namespace", names[0], "--kubeconfig", str(cluster.kubeconfig("admin"))]
    first = start("--shard", "0/2", "--leader-elect", *lease, name=f"{NAME}-a")
    wait_until(lambda: status_of(cluster, names[0], "alone"), "a word of the first shard", timeout_s=60)
    wait_until(lambda: metric(first, "phasewise_rounds_total") > 2, "some rounds", timeout_s=30)
    assert status_of(cluster, names[1], "alone") == {}
    start("--shard", "1/2", "--leader-elect", *lease, name=f"{NAME}-b")
    wait_until(lambda: status_of(cluster, names[1], "alone"), "a word of the second shard", timeout_s=60)
    leases = json.loads(cluster.kubectl("get", "lease", "-n", names[0], "-o", "json"))["items"]
    held = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in leases}
    assert held.keys() == {f"{NAME}-0-of-2", f"{NAME}-1-of-2"}
    assert all(held.values())
    for name in names.values():
        cluster.core.delete_namespace(name)


def test_told_to_stop_while_the_api_server_hangs_it_ends_within_ten_seconds(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    a_workload(cluster, simulated_nodes, namespace, "stuck")
    server = start("--leader-elect")
    wait_until(lambda: metric(server, "phasewise_rounds_total") > 1, "rounds", timeout_s=60)
    api_server = cluster.servers["kube-apiserver"]
    api_server.pause()  # it takes connections and answers nothing
    try:
        wait_until(
            lambda: requests.get(f"http://{address_of(server)}/healthz", timeout=2).status_code in (200, 503),
            "a probe to be answered meanwhile",
            timeout_s=10,
        )
        time.sleep(2.0)  # in the middle of a request
        began_s = time.monotonic()
        server.stop()
        assert time.monotonic() - began_s < 10.0
    finally:
        api_server.resume()
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    assert any("stopped after" in line["message"] for line in lines)
