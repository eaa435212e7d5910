"""The Prometheus of the cluster: usage under the names of real clusters, from trusted targets only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_cluster.cluster import Cluster
from local_cluster.identities import Authority
from local_cluster.observing import Prometheus
from local_cluster.observing.exporter import exporter
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import Usage, cpu_seconds, demand_at, drive_usage
from local_cluster.waiting import wait_until

WATCHED_S = 8.0
TOLERANCE = 0.05
MOVED_S = 0.005
"""How far Prometheus moves the time of a sample (2 ms, to compress it better), plus the clocks' resolution."""
WORKLOADS = ("gru-torch", "cnn-jax", "forest-sklearn")


@dataclass(frozen=True)
class Jobs:
    """Pods `<workload>` that use what was recorded of that workload, in a namespace of their own."""

    namespace: str
    usage: Mapping[str, Usage]
    start_s: float


Scraped = Mapping[str, np.ndarray]
"""By pod, float64 (n, 3): unix time of a scrape, its duration in seconds, and the value."""


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, prometheus: Prometheus, simulated_nodes: SimulatedNodes) -> Iterator[Jobs]:
    del prometheus  # it must run first: without scrapes, usage is not counted in small steps
    start_s = time.time() + 1.0
    played = {name: Usage.recorded(name, time_factor=5.0, start_s=start_s, repeat=True) for name in WORKLOADS}
    created = Jobs(cluster.namespace("jobs"), played, start_s)
    for name, usage in played.items():
        drive_usage(cluster, created.namespace, name, usage)
        cluster.core.create_namespaced_pod(created.namespace, _pod(name, simulated_nodes.selector))
    yield created
    cluster.core.delete_namespace(created.namespace)


def test_a_recorded_series_is_read_back_within_five_percent(prometheus: Prometheus, jobs: Jobs) -> None:
    selector = f'{{namespace="{jobs.namespace}", container="training", job="kubelet"}}'

    def scraped_each_second() -> tuple[Scraped, Scraped] | None:
        now_s = time.time()
        names = ("container_memory_working_set_bytes", "container_cpu_usage_seconds_total")
        memory, cpu = (_scraped(prometheus, name + selector, now_s) for name in names)
        complete = memory.keys() == cpu.keys() == jobs.usage.keys()
        if not complete or not all(_in_step(one, jobs.usage[name], jobs.start_s) for name, one in cpu.items()):
            return None
        return memory, cpu

    memory, cpu = wait_until(scraped_each_second, f"{WATCHED_S:g} s scraped each second", timeout_s=90.0, every_s=0.25)
    for name, usage in jobs.usage.items():
        for at_s, took_s, bytes_ in memory[name]:
            answered = at_s - jobs.start_s + np.linspace(-MOVED_S, took_s + MOVED_S, 5)
            used = [demand_at(usage, answered_s)[1] for answered_s in answered]
            assert min(used) * (1 - TOLERANCE) <= bytes_ <= max(used) * (1 + TOLERANCE), f"{name} at {at_s}: {used}"
        (first_s, first_took_s, first), (last_s, last_took_s, last) = cpu[name][0], cpu[name][-1]
        at_least_s = _used_s(usage, jobs.start_s, first_s + first_took_s, last_s)
        at_most_s = _used_s(usage, jobs.start_s, first_s, last_s + last_took_s)
        assert at_least_s * (1 - TOLERANCE) <= last - first <= at_most_s * (1 + TOLERANCE), name


def test_container_series_have_the_labels_of_cadvisor_and_of_the_kubelet_job(
    prometheus: Prometheus, jobs: Jobs, simulated_nodes: SimulatedNodes
) -> None:
    query = f'container_cpu_usage_seconds_total{{namespace="{jobs.namespace}", pod="cnn-jax"}}'
    (series,) = prometheus.wait_for(query, "the job's CPU")
    labels = series["labels"]
    assert labels.pop("node") in simulated_nodes.names
    assert labels.pop("id").startswith("/kubepods")
    assert labels.pop("instance").startswith("127.0.0.1:")
    assert labels == {
        "__name__": "container_cpu_usage_seconds_total",
        "job": "kubelet",
        "metrics_path": "/metrics/cadvisor",
        "endpoint": "https-metrics",
        "namespace": jobs.namespace,
        "pod": "cnn-jax",
        "container": "training",
        "image": "training",
        "cpu": "total",
    }


def test_a_target_is_scraped_only_when_its_certificate_verifies(
    cluster: Cluster, prometheus: Prometheus, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path)
    with exporter(cluster.authority, "exporter") as ours, exporter(foreign, "exporter") as theirs:
        prometheus.scrape("exporters", f"{ours.url}/metrics", f"{theirs.url}/metrics")
        prometheus.wait_for('up{job="exporters"} == 1', "our exporter")
        prometheus.wait_for('up{job="exporters"} == 0', "the foreign one to be down")
        assert _why_down(prometheus, f"{theirs.url}/metrics") == "x509: certificate signed by unknown authority"
        assert ours.asked and not theirs.asked
        assert [one["value"] for one in prometheus.query("exported_answer")] == [42.0]
        prometheus.scrape("exporters")


def _pod(name: str, selector: dict[str, str]) -> dict[str, Any]:
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    container = {"name": "training", "image": "training", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"nodeSelector": selector, "containers": [container]}}


def _scraped(prometheus: Prometheus, selector: str, now_s: float) -> Scraped:
    """Samples scraped in the last seconds; their time is that of the request."""

    def samples(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = prometheus.get("query", query=f"{query}[{WATCHED_S:.0f}s]", time=now_s)["result"]
        return found

    durations = 'scrape_duration_seconds{job="kubelet"}'
    took_s = {series["metric"]["node"]: dict(series["values"]) for series in samples(durations)}
    return {
        series["metric"]["pod"]: np.array(
            [(at_s, took_s[series["metric"]["node"]][at_s], value) for at_s, value in series["values"]],
            dtype=np.float64,
        )
        for series in samples(selector)
    }


def _in_step(scraped: np.ndarray, usage: Usage, start_s: float) -> bool:
    """Whether it was scraped about each second, which a busy machine may not manage.

    A simulated kubelet counts when scraped: the mean of the last second, for all the time since the last scrape.
    Early and late scrapes must cancel out.
    """
    at_s, answered_s = scraped[:, 0], scraped[:, 0] + scraped[:, 1]
    between_s = np.diff(answered_s)
    if len(at_s) < WATCHED_S - 1 or at_s[0] <= start_s + 1.0 or between_s.max() > 1.3:
        return False
    means = [_used_s(usage, start_s, moment_s - 1.0, moment_s) for moment_s in answered_s[1:]]
    used_s = _used_s(usage, start_s, answered_s[0], answered_s[-1])
    return bool(abs(np.dot(between_s, means) - used_s) <= 0.5 * TOLERANCE * used_s)


def _used_s(usage: Usage, start_s: float, from_s: float, to_s: float) -> float:
    return cpu_seconds(usage, to_s - start_s) - cpu_seconds(usage, from_s - start_s)


def _why_down(prometheus: Prometheus, url: str) -> str:
    (error,) = (one["lastError"] for one in prometheus.get("targets")["activeTargets"] if one["scrapeUrl"] == url)
    return str(error).rsplit("certificate: ", maxsplit=1)[-1]
