"""The recommender as operators run it: several replicas, shards, an API server that hangs, VPAs that come later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from kubernetes import client

from local_cluster.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS
from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.processes import Server
from local_cluster.recommender import NAME, address_of, install, metric, start_recommender
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import Usage, drive_usage
from local_cluster.vpa_objects import OURS, create_vpa
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, resources, roll_out
from recommender.live.view.scope import shard_of
from tests.recommender.live.written import samples_of, status_of

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
    """A replica that leads, as it is alone."""
    server = start_recommender(cluster, account, *REPLICA, name=f"{NAME}-a")
    wait_until(lambda: metric(server, "phasewise_leader") == 1, "the first to lead", timeout_s=30)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def second(cluster: Cluster, account: Path, first: Server) -> Iterator[Server]:
    """One that came when the first one led already."""
    server = start_recommender(cluster, account, *REPLICA, name=f"{NAME}-b")
    yield server
    server.stop()


def test_it_is_ready_once_all_is_compiled(first: Server) -> None:
    lines = [json.loads(line) for line in first.log.read_text().splitlines() if line.startswith("{")]
    assert lines[0]["message"] == "bundled: 12 phases; options are valid, kernels are compiled"


def test_a_vpa_that_is_given_to_us_later_keeps_the_history_of_who_had_it_before(
    cluster: Cluster, team: str, first: Server
) -> None:
    """Its checkpoint is read when it comes, not at the start only; what stands there is not written over."""
    known = {
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
    cluster.apply(known)
    wait_until(lambda: metric(first, "phasewise_rounds_total") > 1, "rounds without it", timeout_s=60)
    ours = {"spec": {"recommenders": [{"name": OURS}]}}
    cluster.custom.patch_namespaced_custom_object(API_GROUP, API_VERSION, team, AUTOSCALERS, "moved", ours)
    wait_until(lambda: samples_of(cluster, team, "moved-main") != 5000, "our first checkpoint of it", timeout_s=120)
    assert samples_of(cluster, team, "moved-main") > 5000
    assert metric(first, "phasewise_checkpoint_writes_total", outcome="written") >= 1
    assert metric(first, "phasewise_api_requests_total", verb="PATCH", code="200") >= 1


def test_of_two_replicas_one_acts_and_the_other_takes_over_at_once(
    cluster: Cluster, team: str, first: Server, second: Server
) -> None:
    wait_until(lambda: status_of(cluster, team, "watched"), "a word on the VPA", timeout_s=120)
    assert metric(second, "phasewise_rounds_total") == 0
    assert requests.get(f"http://{address_of(second)}/healthz", timeout=2).status_code == 200
    began_s = time.monotonic()
    first.stop()
    assert time.monotonic() - began_s < 10.0
    wait_until(lambda: metric(second, "phasewise_rounds_total") >= 1, "the second's rounds", timeout_s=10)
    assert metric(second, "phasewise_leader") == 1


def test_told_to_stop_while_the_api_server_hangs_it_ends_within_ten_seconds(
    cluster: Cluster, first: Server, second: Server
) -> None:
    first.stop()  # the second one leads
    wait_until(lambda: metric(second, "phasewise_rounds_total") > 1, "rounds", timeout_s=60)
    api_server = cluster.servers["kube-apiserver"]
    api_server.pause()  # it takes connections and answers nothing
    try:
        wait_until(
            lambda: requests.get(f"http://{address_of(second)}/healthz", timeout=2).status_code in (200, 503),
            "a probe to be answered meanwhile",
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
    """Start a recommender for a shard. It is ended with the test."""
    started: list[Server] = []

    def started_with(which: str, *options: str) -> Server:
        name = f"{NAME}-{which.replace('/', '-of-')}"
        started.append(start_recommender(cluster, account, "--shard", which, *options, name=name))
        return started[-1]

    yield started_with
    for server in started:
        server.stop()


def test_shards_share_the_cluster_and_each_vpa_has_one_of_them(cluster: Cluster, shard: Callable[..., Server]) -> None:
    names: dict[int, str] = {}
    while names.keys() != {0, 1}:
        made = cluster.namespace("sharded")
        names.setdefault(shard_of(made, 2), made)
    for name in names.values():
        create_vpa(cluster, name, "alone")  # of a Deployment that does not exist: whoever owns it says so
    lease = ["--leader-elect", "--lease-namespace", names[0], "--kubeconfig", str(cluster.kubeconfig("admin"))]
    first = shard("0/2", *lease)
    wait_until(lambda: status_of(cluster, names[0], "alone"), "a word of the first shard", timeout_s=60)
    wait_until(lambda: metric(first, "phasewise_rounds_total") > 2, "some rounds", timeout_s=30)
    assert status_of(cluster, names[1], "alone") == {}
    shard("1/2", *lease)
    wait_until(lambda: status_of(cluster, names[1], "alone"), "a word of the second shard", timeout_s=60)
    leases = client.CoordinationV1Api(cluster.client()).list_namespaced_lease(names[0]).items
    held = {lease.metadata.name: lease.spec.holder_identity for lease in leases}
    assert held.keys() == {f"{NAME}-0-of-2", f"{NAME}-1-of-2"}
    assert all(held.values())
    for name in names.values():
        clear_namespace(cluster, name)
