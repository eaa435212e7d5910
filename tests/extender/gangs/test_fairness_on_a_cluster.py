"""Tenants who share a real control plane: neither gangs that can never be bound nor a stream of pods stops the gangs of
others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extender.gangs.running import all_reserved, bound, events, finish, gang, gated, pods
from tests.rig.cluster import Cluster
from tests.rig.moving import start_controller
from tests.rig.processes import Server
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, template
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

NEAR_NOBODY = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
NOWHERE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR_NOBODY]}}
"""An affinity that no node meets, and that only the scheduler checks."""


@pytest.fixture(scope="module")
def controller(cluster: Cluster, account: Path) -> Iterator[Server]:
    """It keeps capacity for a gang that has waited for five seconds."""
    server = start_controller(cluster, account, "--keep-after", "5s")
    yield server
    server.stop()


@pytest.mark.parametrize("spec", [{"affinity": NOWHERE}, {"schedulerName": "nobody"}], ids=["affinity", "scheduler"])
def test_twenty_gangs_that_are_never_bound_do_not_hold_up_a_gang_of_another_namespace(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server, spec: Json
) -> None:
    crowd = cluster.namespace("crowd")
    controller.pause()
    names = [gang(cluster, crowd, five, f"never-{number}", 1, cpu="10m", **spec)[0] for number in range(20)]
    mine = gang(cluster, namespace, five, "mine", 4, cpu="2")
    controller.resume()
    wait_until(lambda: bound(cluster, namespace, "mine") == 4, "the gang of four to be bound", timeout_s=20)
    wait_until(lambda: gated(cluster, crowd) == 0, "the others to be admitted", timeout_s=60)
    assert bound(cluster, crowd) == 0
    finish(cluster, crowd, names)
    finish(cluster, namespace, mine)


def test_a_large_gang_beside_a_stream_of_pods_is_bound_and_a_small_one_does_not_wait_for_it(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server, extender: Json
) -> None:
    """Three nodes of ten cores must be empty but for one core each, while there are always more pods of four cores."""
    stream, other = cluster.namespace("stream"), cluster.namespace("other")
    pod, made = template(five.selector, requests={"cpu": "4", "memory": "1Gi"}, **extender), 0

    def add(count: int) -> None:
        nonlocal made
        for _ in range(count):
            create(cluster, stream, f"s-{made:04}", pod)
            made += 1

    add(14)
    wait_until(lambda: bound(cluster, stream) == 10, "the nodes to be full", timeout_s=60)
    large = gang(cluster, namespace, five, "large", 3, cpu="9", **extender)
    wait_until(lambda: bool(events(cluster, namespace, large[0])), "the large gang to wait")
    gang(cluster, other, five, "small", 2, cpu="500m", **extender)
    wait_until(lambda: bound(cluster, other) == 2, "the small gang to be bound", timeout_s=30)
    assert bound(cluster, namespace) == 0

    def flows_until_bound() -> bool:
        """The oldest running pod of the stream ends, and another is created."""
        running = [each["metadata"]["name"] for each in pods(cluster, stream) if each["spec"].get("nodeName")]
        finish(cluster, stream, sorted(running)[:1])
        add(1)
        return bound(cluster, namespace, "large") == 3

    wait_until(lambda: all_reserved(cluster, namespace, "large"), "capacity to be kept", timeout_s=30)
    wait_until(flows_until_bound, "the large gang to be bound", timeout_s=90, every_s=0.5)
    for each in (stream, other, namespace):
        finish(cluster, each, [pod["metadata"]["name"] for pod in pods(cluster, each)])
