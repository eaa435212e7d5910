"""The recommender as a process with `--prometheus --history`: what was before its start decides its first round."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recommender.cluster.quantities import parse_quantity
from recommender.records import UsageSeries
from tests.cluster import observing
from tests.cluster.cluster import Cluster
from tests.cluster.observing import HistorySeries, Prometheus
from tests.cluster.processes import Server
from tests.cluster.simulated.nodes import SimulatedNodes
from tests.cluster.vpa_objects import create_vpa
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources, roll_out
from tests.recommender.live.process import install, metric, start_recommender

HOUR_S = 3600
STEP_S = 15.0
HOURS = 8
CORES, BYTES = 0.5, 512 * 2**20
TARGET = {"cpu": 0.587, "memory": 628694953}
"""What the default recommender makes of half a core and 512 MiB that are constant: its 90th percentile plus 15 %."""


@pytest.fixture
def prometheus(cluster: Cluster, namespace: str) -> Iterator[Prometheus]:
    """It remembers eight hours of a pod of Deployment `steady` that is gone, and scrapes nothing any more."""
    end_s = int(time.time()) // HOUR_S * HOUR_S
    times = np.arange(0, HOURS * HOUR_S, round(STEP_S), dtype=np.int64)
    usage = np.tile([CORES, float(BYTES)], (len(times), 1))
    run = UsageSeries("run", times, STEP_S, usage)
    series = [*observing.container_history(run, namespace=namespace, pod="steady-1-a", container="main", end_s=end_s)]
    moments = np.array([end_s - HOURS * HOUR_S, end_s], dtype=float)
    for name, labels in (
        ("kube_pod_owner", {"pod": "steady-1-a", "owner_kind": "ReplicaSet", "owner_name": "steady-1"}),
        ("kube_replicaset_owner", {"replicaset": "steady-1", "owner_kind": "Deployment", "owner_name": "steady"}),
    ):
        whose = labels | {"namespace": namespace, "owner_is_controller": "true"}
        series.append(HistorySeries(name, whose, moments, np.ones(2)))
    blocks = observing.history_blocks(cluster.folder / "before", series, cluster.binaries)
    started = observing.start_prometheus(
        cluster, targets={}, scrape_interval_s=60, history=blocks, name="prometheus-of-before"
    )
    yield started
    started.server.stop()


@pytest.fixture
def account(vpa: Cluster) -> Path:
    return install(vpa)


@pytest.fixture
def ours(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, account: Path, prometheus: Prometheus
) -> Iterator[Server]:
    """Started when workload and VPA are there."""
    roll_out(
        cluster, namespace, "steady", pod_spec(simulated_nodes.selector, resources({"cpu": "100m", "memory": "64Mi"}))
    )
    create_vpa(cluster, namespace, "steady", update_mode="Off")
    server = start_recommender(
        cluster, account, "--prometheus", prometheus.url, "--history", f"{HOURS + 1}h", "--interval", "10m"
    )
    yield server
    server.stop()


def test_the_first_targets_come_from_the_past_of_pods_that_are_gone(
    cluster: Cluster, namespace: str, ours: Server
) -> None:
    def recommended() -> dict[str, dict[str, str]]:
        status = json.loads(cluster.kubectl("get", "vpa", "steady", "-n", namespace, "-o", "json")).get("status", {})
        entries = status.get("recommendation", {}).get("containerRecommendations", [])
        return {entry["containerName"]: entry["target"] for entry in entries}

    told = wait_until(recommended, "a target", timeout_s=60)
    assert told.keys() == {"main"}
    found = {name: parse_quantity(amount) for name, amount in told["main"].items()}
    assert found == pytest.approx(TARGET, rel=0.06)  # a bucket's width: a rate is not the same at every moment
    wait_until(lambda: metric(ours, "phasewise_rounds_total") == 1, "the first round to end", timeout_s=30)
    assert metric(ours, "phasewise_samples_total") == 0, "nothing is scraped: all it knows is the past"
    assert "histor" in ours.log.read_text()
