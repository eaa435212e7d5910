"""On a real node without room for all, pods are raised to what is free, and none is evicted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recommender.cluster.objects.quantities import parse_quantity
from tests.rig.autoscaling import create_vpa
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.real_node.node import RealNode, start_real_node
from tests.rig.recommender import install, start_recommender
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_ours, pods_of, roll_out

NODE_CORES, NODE_BYTES = 0.6, 256 * 2**20
IDLE_CORES, BUSY_CORES, REPLICAS = 0.3, 0.1, 2


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
def test_pods_that_need_more_than_is_free_on_their_node_share_it_without_an_eviction(
    cluster: Cluster, namespace: str, small_node: RealNode, ours: Server
) -> None:
    """A sleeping pod requests half of the node; two busy pods would use all of it."""
    idle = small_node.pod("idle", cpu=f"{IDLE_CORES * 1000:.0f}m", restart="Always")
    roll_out(cluster, namespace, "idle", idle["spec"])
    busy = small_node.pod("busy", "while :; do :; done", cpu=f"{BUSY_CORES * 1000:.0f}m", restart="Always")
    uids = {pod.metadata.uid for pod in roll_out(cluster, namespace, "busy", busy["spec"], replicas=REPLICAS)}
    create_vpa(cluster, namespace, "busy")

    def requested_cores() -> dict[str, float]:
        return {
            pod.metadata.uid: parse_quantity(pod.status.container_statuses[0].resources.requests["cpu"])
            for pod in pods_of(cluster, namespace, "busy")
        }

    wait_until(lambda: min(requested_cores().values()) > BUSY_CORES, "both requests to be raised", timeout_s=180)
    assert requested_cores().keys() == uids, "a pod was evicted"
    assert sum(requested_cores().values()) <= NODE_CORES - IDLE_CORES
