"""Benchmarks use the cluster of the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.rig.cluster import Cluster

KEPT = ("kwok", "metrics-server", "vpa-admission-controller")
"""Servers that the cluster starts on first use, and keeps."""


@pytest.fixture
def borrowed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster for a benchmark that uses it as its own; its former state is restored afterwards."""
    from tests.rig.workloads import clear_namespace  # noqa: PLC0415

    before = {name: server for name, server in cluster.servers.items() if server.running}
    nodes, namespaces = _names(cluster.core.list_node), _names(cluster.core.list_namespace)
    yield cluster
    for namespace in _names(cluster.core.list_namespace) - namespaces:
        clear_namespace(cluster, namespace)
    for name in cluster.real_nodes.keys() - nodes:
        cluster.remove_real_node(name)
    for name in reversed([name for name in cluster.servers if name not in (*before, *KEPT)]):
        cluster.dismiss(name)
    for name in _names(cluster.core.list_node) - nodes:
        cluster.core.delete_node(name)
    for name, server in before.items():
        if cluster.servers[name] is not server:  # the benchmark has replaced it
            cluster.servers[name].stop()
    cluster.servers |= before
    ended = [server for server in cluster.servers.values() if not server.running]
    for server in ended:
        server.start()
    for server in ended:
        server.wait_ready()


def _names(listed: Callable[[], Any]) -> set[str]:
    return {item.metadata.name for item in listed().items}
