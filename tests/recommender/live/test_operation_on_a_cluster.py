"""The recommender as operators run it: several replicas, shards, a hanging API server, VPAs that are handed over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from kubernetes import client

from recommender.live.view.scope import shard_of
from tests.recommender.live.written import samples_of, status_of
from tests.rig.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS, OURS, create_vpa
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.recommender import NAME, address_of, install, metric, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, pod_spec, resources, roll_out

REPLICA = ("--leader-elect", "--checkpoint-interval", "1s", "--log-format", "json")


@pytest.fixture(scope="module")
def team(vpa: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A namespace with two workloads: the VPA of `watched` is ours, that of `moved` the default recommender's."""
    name = vpa.namespace("team")
    for workload, recommender in (("watched", OURS), ("moved", None)):
        spec = pod_spec(simulated_nodes.selector, resources({"cpu": "2", "memory": "8Gi"}))
        (pod,) = roll_out(vpa, name, workload, spec)
        drive_usage(vpa, name, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))
        create_vpa(vpa, name, workload, update_mode="Off", recommender=recommender)
    yield name
    clear_namespace(vpa, name)


@pytest.fixture(scope="module")
def account(vpa: Cluster, metrics_server: Cluster) -> Path:
    """The kubeconfig of the service account that the manifests give the recommender."""
    return install(vpa)


@pytest.fixture(scope="module")
def first(cluster: Cluster, account: Path, team: str) -> Iterator[Server]:
    """A replica that leads because it is alone."""
    server = start_recommender(cluster, account, *REPLICA, name=f"{NAME}-a")
    wait_until(lambda: metric(server, "phasewise_leader") == 1, "the first replica to lead", timeout_s=30)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def second(cluster: Cluster, account: Path, first: Server) -> Iterator[Server]:
    """A replica that starts while the first one leads."""
    server = start_recommender(cluster, account, *REPLICA, name=f"{NAME}-b")
    yield server
    server.stop()


def test_the_first_log_line_says_that_the_kernels_are_compiled(first: Server) -> None:
    lines = [json.loads(line) for line in first.log.read_text().splitlines() if line.startswith("{")]
    assert lines[0]["message"] == "bundled: 12 phases; options are valid, kernels are compiled"


def test_a_vpa_handed_over_by_another_recommender_keeps_its_history(cluster: Cluster, team: str, first: Server) -> None:
    """Its checkpoint is read when the VPA appears, not only at the start, and is not overwritten."""
    checkpoint = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": "moved-main", "namespace": team},
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
    cluster.apply(checkpoint)
    wait_until(lambda: metric(first, "phasewise_rounds_total") > 1, "rounds without the VPA", timeout_s=60)
    ours = {"spec": {"recommenders": [{"name": OURS}]}}
    cluster.custom.patch_namespaced_custom_object(API_GROUP, API_VERSION, team, AUTOSCALERS, "moved", ours)
    wait_until(lambda: samples_of(cluster, team, "moved-main") != 5000, "our first checkpoint", timeout_s=120)
    assert samples_of(cluster, team, "moved-main") > 5000
    assert metric(first, "phasewise_checkpoint_writes_total", outcome="written") >= 1
    assert metric(first, "phasewise_api_requests_total", verb="PATCH", code="200") >= 1


def test_one_of_two_replicas_acts_and_the_other_takes_over_at_once(
    cluster: Cluster, team: str, first: Server, second: Server
) -> None:
    wait_until(lambda: status_of(cluster, team, "watched"), "a status of the VPA", timeout_s=120)
    assert metric(second, "phasewise_rounds_total") == 0
    assert requests.get(f"http://{address_of(second)}/healthz", timeout=2).status_code == 200
    began_s = time.monotonic()
    first.stop()
    assert time.monotonic() - began_s < 10.0
    wait_until(lambda: metric(second, "phasewise_rounds_total") >= 1, "rounds of the second replica", timeout_s=10)
    assert metric(second, "phasewise_leader") == 1


def test_it_stops_within_ten_seconds_while_the_api_server_hangs(
    cluster: Cluster, first: Server, second: Server
) -> None:
    first.stop()  # the second one leads
    wait_until(lambda: metric(second, "phasewise_rounds_total") > 1, "rounds", timeout_s=60)
    api_server = cluster.servers["kube-apiserver"]
    api_server.pause()  # it accepts connections and answers nothing
    try:
        wait_until(
            lambda: requests.get(f"http://{address_of(second)}/healthz", timeout=2).status_code in (200, 503),
            "an answer to a probe",
            timeout_s=10,
        )
        time.sleep(2.0)  # in the middle of a request
        began_s = time.monotonic()
        second.stop()
        assert time.monotonic() - began_s < 10.0
    finally:
        api_server.resume()
    lines = [json.loads(line) for line in second.log.read_text().splitlines() if line.startswith("{")]
    assert any("stopped after" in line["message"] for line in lines)


@pytest.fixture
def shard(cluster: Cluster, account: Path) -> Iterator[Callable[..., Server]]:
    """Starts a recommender for a shard; it is stopped after the test."""
    started: list[Server] = []

    def start(index: str, *options: str) -> Server:
        name = f"{NAME}-{index.replace('/', '-of-')}"
        started.append(start_recommender(cluster, account, "--shard", index, *options, name=name))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_two_shards_serve_the_vpas_of_their_own_namespaces(cluster: Cluster, shard: Callable[..., Server]) -> None:
    names: dict[int, str] = {}
    while names.keys() != {0, 1}:
        created = cluster.namespace("sharded")
        names.setdefault(shard_of(created, 2), created)
    for name in names.values():
        create_vpa(cluster, name, "alone")  # its Deployment does not exist, which its shard reports
    lease = ["--leader-elect", "--lease-namespace", names[0], "--kubeconfig", str(cluster.kubeconfig("admin"))]
    first = shard("0/2", *lease)
    wait_until(lambda: status_of(cluster, names[0], "alone"), "a status from the first shard", timeout_s=60)
    wait_until(lambda: metric(first, "phasewise_rounds_total") > 2, "some rounds", timeout_s=30)
    assert status_of(cluster, names[1], "alone") == {}
    shard("1/2", *lease)
    wait_until(lambda: status_of(cluster, names[1], "alone"), "a status from the second shard", timeout_s=60)
    leases = client.CoordinationV1Api(cluster.client()).list_namespaced_lease(names[0]).items
    held = {lease.metadata.name: lease.spec.holder_identity for lease in leases}
    assert held.keys() == {f"{NAME}-0-of-2", f"{NAME}-1-of-2"}
    assert all(held.values())
    for name in names.values():
        clear_namespace(cluster, name)
