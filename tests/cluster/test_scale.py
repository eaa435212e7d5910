"""How large a simulated cluster can be on a small machine: the times are printed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
from kubernetes import client

from local_cluster.cluster import Cluster
from local_cluster.simulated.pods import template
from local_cluster.waiting import wait_until

NODES, PODS = 500, 2000
PATIENCE_S = 600.0


@pytest.fixture
def bare(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster of its own, thrown away as a whole: what others have started would look at every node and every pod."""
    made = Cluster(f"{cluster.folder.name}-scale", cluster.binaries)
    try:
        yield made.up(node_grace_s=900.0)  # where cores are short, 500 nodes cannot all tell each minute that they live
    finally:
        made.down(logs_to=cluster.folder / "logs" / "scale")


def test_500_nodes_and_2000_pods_start(
    bare: Cluster, capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    apps = client.AppsV1Api(bare.client())
    namespace = bare.namespace()
    began_s = time.monotonic()
    nodes = bare.start_nodes(NODES, cpu="8", memory="32Gi")
    nodes_s = time.monotonic() - began_s

    spec = {"replicas": PODS, "selector": {"matchLabels": {"app": "simulated"}}, "template": template(nodes.selector)}
    began_s = time.monotonic()
    apps.create_namespaced_deployment(namespace, {"metadata": {"name": "workers"}, "spec": spec})
    wait_until(
        lambda: apps.read_namespaced_deployment("workers", namespace).status.ready_replicas == PODS,
        f"{PODS} pods to be ready",
        timeout_s=PATIENCE_S,
        every_s=0.5,
    )
    pods_s = time.monotonic() - began_s
    memory_mib = {name: server.resident_bytes >> 20 for name, server in bare.servers.items()}

    held = ", ".join(f"{name} {mib}" for name, mib in memory_mib.items())
    told = f"{NODES} nodes ready in {nodes_s:.1f} s, {PODS} pods in {pods_s:.1f} s"
    record_property("scale", told)
    with capsys.disabled():
        sys.stdout.write(f"\n{told}; memory in MiB: {held}\n")
