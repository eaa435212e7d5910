"""On a real node that has not enough for all, pods are raised to what there is, and none is evicted for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local_cluster.clearing import clear_ours
from local_cluster.cluster import Cluster
from local_cluster.processes import Server
from local_cluster.real_node.node import RealNode, start_real_node
from local_cluster.recommender import install, start_recommender
from local_cluster.vpa_objects import create_vpa
from local_cluster.waiting import wait_until
from local_cluster.workloads import pods_of, roll_out
from recommender.cluster.objects.quantities import parse_quantity

NODE_CORES, NODE_BYTES = 0.6, 256 * 2**20
TAKEN_CORES, HAS_CORES, REPLICAS = 0.3, 0.1, 2


@pytest.fixture
def small_node(cluster: Cluster, real_node: RealNode) -> Iterator[RealNode]:
    node = start_real_node(cluster, "real-full", cpu_cores=NODE_CORES, memory_bytes=NODE_BYTES)
    yield node
    node.stop()


@pytest.fixture
def ours(cluster: Cluster, vpa: Cluster, metrics_server: Cluster) -> Iterator[Server]:
    clear_ours(cluster)
    server = start_recommender(cluster, install(cluster), "--interval", "5s", "--cycle", "1m", name="node-room")
    yield server
    server.stop()


@pytest.mark.timeout(420)
def test_pods_that_want_more_than_their_node_has_left_share_it_and_none_is_evicted(
    cluster: Cluster, namespace: str, small_node: RealNode, ours: Server
) -> None:
    """Half of the node is taken by one that sleeps; two compute without end, and would have all of it."""
    idle = small_node.pod("idle", cpu=f"{TAKEN_CORES * 1000:.0f}m", restart="Always")
    roll_out(cluster, namespace, "idle", idle["spec"])
    busy = small_node.pod("busy", "while :; do :; done", cpu=f"{HAS_CORES * 1000:.0f}m", restart="Always")
    begun = {pod.metadata.uid for pod in roll_out(cluster, namespace, "busy", busy["spec"], replicas=REPLICAS)}
    create_vpa(cluster, namespace, "busy")

    def had() -> dict[str, float]:
        return {
            pod.metadata.uid: parse_quantity(pod.status.container_statuses[0].resources.requests["cpu"])
            for pod in pods_of(cluster, namespace, "busy")
        }

    wait_until(lambda: min(had().values()) > HAS_CORES, "both to be raised", timeout_s=180)
    assert had().keys() == begun, "one was evicted"
    assert sum(had().values()) <= NODE_CORES - TAKEN_CORES
