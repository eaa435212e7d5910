"""The past of a real Prometheus: recorded hours of pods that are gone, and simulated pods as they are scraped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import as_file, files

import numpy as np
import pytest

from recommender.records import CPU, MEMORY, UsageSeries
from recommender.sources.files import open_source
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import Owner, PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery
from tests.cluster import observing
from tests.cluster.cluster import Cluster
from tests.cluster.observing import HistorySeries, Prometheus
from tests.cluster.simulated.nodes import SimulatedNodes
from tests.cluster.simulated.usage import Usage, drive_usage
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources, roll_out

HOUR_S = 3600
STEP_S = 15.0
NAMESPACE = "history"
LONG_S, SHORT_S = 6 * HOUR_S, 120
"""How long the two pods of the history ran: the second for two minutes in the middle of an hour."""


@pytest.fixture(scope="module")
def end_s() -> int:
    return int(time.time()) // HOUR_S * HOUR_S


@pytest.fixture(scope="module")
def run() -> UsageSeries:
    """A recorded run over and over, a sample each quarter of a minute."""
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        recorded = next(iter(source))
    every = round(STEP_S)
    thinned = UsageSeries("run", recorded.timestamps[::every], STEP_S, np.nan_to_num(recorded.usage[::every], nan=0.1))
    return observing.repeated(thinned, LONG_S)


@pytest.fixture(scope="module")
def filled(cluster: Cluster, run: UsageSeries, end_s: int) -> Iterator[Prometheus]:
    """A Prometheus that remembers `web-1-a`, a pod of Deployment web, and `night-1-b`, one of CronJob night."""
    short = UsageSeries("short", run.timestamps[: SHORT_S // 15], STEP_S, run.usage[: SHORT_S // 15])
    series = [
        *observing.container_history(run, namespace=NAMESPACE, pod="web-1-a", container="main", end_s=end_s),
        *observing.container_history(
            short, namespace=NAMESPACE, pod="night-1-b", container="main", end_s=end_s - 2.5 * HOUR_S
        ),
    ]
    moments = np.array([end_s - 3.0 * HOUR_S, end_s - 2.0 * HOUR_S])
    for metric, labels in (
        ("kube_pod_owner", {"pod": "web-1-a", "owner_kind": "ReplicaSet", "owner_name": "web-1"}),
        ("kube_replicaset_owner", {"replicaset": "web-1", "owner_kind": "Deployment", "owner_name": "web"}),
        ("kube_pod_owner", {"pod": "night-1-b", "owner_kind": "Job", "owner_name": "night-1"}),
        ("kube_job_owner", {"job_name": "night-1", "owner_kind": "CronJob", "owner_name": "night"}),
    ):
        names = labels | {"namespace": NAMESPACE, "owner_is_controller": "true"}
        series.append(HistorySeries(metric, names, moments, np.ones(2)))
    started = observing.start_prometheus(
        cluster,
        targets={},
        scrape_interval_s=60,
        history=observing.history_blocks(cluster.folder / "past", series, cluster.binaries),
        name="prometheus-with-a-past",
    )
    yield started
    started.server.stop()


def test_stretches_hold_means_and_peaks_and_owners_tell_whose_they_were(
    filled: Prometheus, run: UsageSeries, end_s: int
) -> None:
    with PrometheusClient(filled.url, Access()) as client:
        past = PrometheusPast(client, UsageSettings())
        blocks = list(past.stretches([NAMESPACE], end_s - 8 * HOUR_S, end_s, HOUR_S))
        owners = past.owners([NAMESPACE], end_s - 8 * HOUR_S, end_s)
    rows = {
        (block.containers[at].pod, int(when)): used
        for block in blocks
        for at, when, used in zip(block.owner, block.timestamps, block.usage, strict=True)
    }
    per_hour = round(HOUR_S / STEP_S)
    hours = run.usage[-5 * per_hour :].reshape(5, per_hour, 2)
    for ago, used in zip(range(4, -1, -1), hours, strict=True):
        mean, peak = rows["web-1-a", end_s - ago * HOUR_S]
        assert mean == pytest.approx(used[:, CPU].mean(), rel=0.02)
        assert peak == used[:, MEMORY].max()
    (mean, peak) = rows["night-1-b", end_s - 2 * HOUR_S]
    assert mean == pytest.approx(run.usage[1 : SHORT_S // 15, CPU].mean(), rel=0.25)  # not a thirtieth of it
    assert peak == run.usage[: SHORT_S // 15, MEMORY].max()
    assert sum(pod == "night-1-b" for pod, _ in rows) == 1
    assert list(owners.chain(NAMESPACE, "web-1-a"))[-1] == Owner("Deployment", "web")
    assert list(owners.chain(NAMESPACE, "night-1-b"))[-1] == Owner("CronJob", "night")


def test_what_is_scraped_of_simulated_nodes_is_read_back_now_and_over_time(
    cluster: Cluster, prometheus: Prometheus, simulated_nodes: SimulatedNodes, namespace: str
) -> None:
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "1", "memory": "1Gi"}))
    pod = roll_out(cluster, namespace, "steady", spec)[0].metadata.name
    drive_usage(cluster, namespace, pod, Usage(0.4, 2.0**28))
    with PrometheusClient(prometheus.url, Access()) as client:
        usage = UsageQuery(client, UsageSettings(namespaces=(namespace,)))

        def told() -> object:
            return [
                sample
                for name, sample in usage.current_usage(time.time()).items()
                if name.pod == pod and abs(sample.cpu_cores - 0.4) < 0.02 and sample.memory_bytes == 2.0**28
            ]

        (sample,) = wait_until(told, "the pod's usage", timeout_s=120, every_s=1.0)  # type: ignore[misc]
        assert time.time() - sample.timestamp_s < 15.0
        past = PrometheusPast(client, UsageSettings())
        now_s = int(time.time())
        owners = wait_until(
            lambda: (found := past.owners([namespace], now_s - 600, time.time())).pods and found,
            "kube-state-metrics to tell the owner",
            timeout_s=60,
        )
        assert list(owners.chain(namespace, pod))[-1] == Owner("Deployment", "steady")
        blocks = list(past.samples([namespace], now_s - 10, now_s, 1.0))
    memory = np.concatenate([block.usage[:, MEMORY] for block in blocks])
    assert len(memory) and memory[-1] == 2.0**28
