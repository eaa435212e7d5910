"""metrics.k8s.io: true usage, for authorized users only, from kubelets with a trusted certificate only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rig.cluster import Cluster
from tests.rig.identities import Authority
from tests.rig.observing import Measured, Prometheus, measured, wait_for_metrics
from tests.rig.observing.prometheus import exporter
from tests.rig.played_http import Played
from tests.rig.real_node.node import RealNode, what_is_missing
from tests.rig.rig import LOOPBACK
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, cpu_seconds, demand_at, drive_usage
from tests.rig.waiting import wait_until

WORKLOADS = ("gru-torch", "cnn-jax", "forest-sklearn")
TOLERANCE = 0.05
ROUNDED_S = np.linspace(0.0, 1.5, 16)
"""The API truncates the time of a request to seconds; a busy machine answers a little later."""


@dataclass(frozen=True)
class Watched:
    """What metrics-server scrapes, started together, since each needs two of its rounds.

    Attributes
    ----------
    usage
        Usage of the pods `<workload>` on simulated nodes, from `start_s` on.
    real_node
        Runs pod `busy`, which reaches its limit of 200m; None on a machine that cannot have a real node.
    impostor
        The server of node `impostor`, with a certificate that the cluster does not trust.
    """

    namespace: str
    usage: Mapping[str, Usage]
    start_s: float
    real_node: RealNode | None
    impostor: Played


@pytest.fixture(scope="module")
def watched(
    cluster: Cluster,
    prometheus: Prometheus,
    simulated_nodes: SimulatedNodes,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    del prometheus  # simulated kubelets count exactly only if scraped each second
    real_node = None if what_is_missing() else request.getfixturevalue("real_node")
    start_s = time.time()
    usage = {name: Usage.recorded(name, time_factor=2.0, start_s=start_s) for name in WORKLOADS}
    namespace = cluster.namespace("watched")
    for name, played in usage.items():
        drive_usage(cluster, namespace, name, played)
        cluster.core.create_namespaced_pod(namespace, _pod(name, simulated_nodes.selector))
    if real_node:
        busy = real_node.pod("busy", "while true; do :; done", limits={"cpu": "200m", "memory": "32Mi"})
        cluster.core.create_namespaced_pod(namespace, busy)
    # What metrics-server finds running in its first round has values after the second one, else after the third.
    wait_until(lambda: _all_run(cluster, namespace), "all pods to run", timeout_s=90.0)
    with _impostor(cluster, tmp_path_factory.mktemp("foreign")) as impostor:
        cluster.metrics_server()
        yield Watched(namespace, usage, start_s, real_node, impostor)
    cluster.core.delete_namespace(namespace)


@pytest.fixture(scope="module")
def pod_metrics(cluster: Cluster, watched: Watched) -> dict[str, Measured]:
    """Metrics of each simulated pod, once their windows begin after the start of the series."""

    def within_the_series() -> dict[str, Measured] | None:
        found = {pod: measured(cluster, watched.namespace, pod)["training"] for pod in watched.usage}
        return found if all(one.end_s - one.window_s > watched.start_s + 1.0 for one in found.values()) else None

    return wait_until(within_the_series, "metrics of all pods", timeout_s=90.0, every_s=0.25) or {}


@pytest.mark.usefixtures("pod_metrics")
def test_a_recorded_series_is_read_back_within_five_percent(cluster: Cluster, watched: Watched) -> None:
    def agreed() -> bool:
        for name, usage in watched.usage.items():
            one = measured(cluster, watched.namespace, name)["training"]
            ends_s = one.end_s - watched.start_s + ROUNDED_S
            cores = [
                (cpu_seconds(usage, end_s) - cpu_seconds(usage, end_s - one.window_s)) / one.window_s
                for end_s in ends_s
            ]
            bytes_ = [demand_at(usage, end_s)[1] for end_s in ends_s]
            assert _between(one.cpu_cores, cores), f"{name}: {one}, expected {cores}"
            assert _between(one.memory_bytes, bytes_), f"{name}: {one}, expected {bytes_}"
        return True

    # On a busy machine not always the first round: a kubelet that was scraped late reports other values.
    wait_until(agreed, "a round of metrics-server that agrees with the series", timeout_s=60.0, every_s=1.0)


def test_a_busy_real_container_is_reported_within_its_limits(cluster: Cluster, watched: Watched) -> None:
    if watched.real_node is None:
        pytest.skip(f"no real node on this machine: {what_is_missing()}")
    busy = wait_for_metrics(cluster, watched.namespace, "busy")["main"]
    assert 0.02 < busy.cpu_cores < 0.25  # less than its 0.2 only on a busy machine
    assert 0 < busy.memory_bytes < 32 * 2**20


def test_a_kubelet_with_a_foreign_certificate_is_refused_and_gets_no_request(
    cluster: Cluster, watched: Watched, prometheus: Prometheus
) -> None:
    log = cluster.servers["metrics-server"].log

    def refused() -> bool:
        lines = [line for line in log.read_text().splitlines() if 'node="impostor"' in line]
        return any("x509: certificate signed by unknown authority" in line for line in lines)

    wait_until(refused, "metrics-server to refuse the impostor's certificate", timeout_s=60.0)
    down = prometheus.wait_for('up{job="kubelet", node="impostor"} == 0', "Prometheus to find the impostor down")
    assert {one["labels"]["metrics_path"] for one in down} <= {"/metrics/cadvisor", "/metrics/resource"}
    assert watched.impostor.asked == []


def _all_run(cluster: Cluster, namespace: str) -> bool:
    return all(pod.status.phase == "Running" for pod in cluster.core.list_namespaced_pod(namespace).items)


def _between(value: float, expected: list[float]) -> bool:
    return min(expected) * (1 - TOLERANCE) <= value <= max(expected) * (1 + TOLERANCE)


@contextlib.contextmanager
def _impostor(cluster: Cluster, folder: Path) -> Iterator[Played]:
    """A node whose kubelet has a certificate of another authority than the cluster's."""
    with exporter(Authority(folder), "impostor") as answering:
        cluster.core.create_node(
            {
                "metadata": {"name": "impostor"},
                "spec": {"unschedulable": True},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": answering.port}},
                    # metrics-server logs failures of Ready nodes only; this one stays Ready for 50 s
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        try:
            yield answering
        finally:
            cluster.core.delete_node("impostor")


def _pod(name: str, selector: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "training", "image": "training"}
    return {"metadata": {"name": name}, "spec": {"nodeSelector": selector, "containers": [container]}}
