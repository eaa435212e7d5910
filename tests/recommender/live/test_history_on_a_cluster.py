"""History in a real Prometheus: read back, used for the targets of the first round, and trained on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from recommender.base.records import CPU, MEMORY, UsageSeries
from recommender.cluster.objects.quantities import parse_quantity
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import Owner, PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery
from tests.fakes.command_line import CommandResult
from tests.recommender.live.past import HOUR_S, STEP_S, constant_usage, owned_by, recordings
from tests.rig import observing
from tests.rig.autoscaling import create_vpa, recommendation
from tests.rig.cluster import Cluster
from tests.rig.observing import HistorySeries, Prometheus
from tests.rig.recommender import MANIFESTS, install, metric, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, pod_spec, resources, roll_out

DELETED, LAB = "history", "lab"
LONG_S, SHORT_S = 6 * HOUR_S, 120
"""For how long the two pods of the namespace `history` ran; the second in the middle of an hour."""

RUNS, RUN_S = 4, HOUR_S
"""Of the training jobs of the lab."""

HOURS, CORES, BYTES = 8, 0.5, 512 * 2**20
"""For how long, and how much, the workload of a present namespace used."""

TARGET = {"cpu": 0.587, "memory": 628694953}
"""What the default recommender recommends for that: its 90th percentile plus 15 %."""

TRAINING = MANIFESTS / "recommender" / "training.yaml"
URL, DATA = "http://prometheus.monitoring.svc:9090", "/data"
"""The Prometheus and the folder of the training's containers."""

MODEL = "configmap:kube-system/phasewise-model"


class Scraped(NamedTuple):
    """A pod that a Prometheus scrapes every second."""

    prometheus: Prometheus
    namespace: str
    pod: str


class Past(NamedTuple):
    """A Prometheus that has the history of deleted pods, and scrapes nothing during these tests.

    Attributes
    ----------
    run
        Usage until `end_s` of `web-1-a`, a pod of Deployment `web` in the namespace `history`. `night-1-b`, a pod of
        CronJob `night`, had the first two minutes of it.
    team
        A namespace in which a pod of Deployment `steady` ran. The Deployment has another pod now, and a VPA.
    """

    prometheus: Prometheus
    run: UsageSeries
    end_s: int
    team: str


@pytest.fixture(scope="module")
def scraped(cluster: Cluster, prometheus: Prometheus, simulated_nodes: SimulatedNodes) -> Iterator[Scraped]:
    """Started before the other fixtures: a minute passes until the scrape interval is known."""
    name = cluster.namespace("scraped")
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "1", "memory": "1Gi"}))
    pod = roll_out(cluster, name, "steady", spec)[0].metadata.name
    drive_usage(cluster, name, pod, Usage(0.4, 2.0**28))
    yield Scraped(prometheus, name, pod)
    clear_namespace(cluster, name)


@pytest.fixture(scope="module")
def past(cluster: Cluster, vpa: Cluster, simulated_nodes: SimulatedNodes, scraped: Scraped) -> Iterator[Past]:
    end_s = int(time.time()) // HOUR_S * HOUR_S
    team = cluster.namespace("steady")
    roll_out(cluster, team, "steady", pod_spec(simulated_nodes.selector, resources({"cpu": "100m", "memory": "64Mi"})))
    create_vpa(cluster, team, "steady", update_mode="Off")
    jobs = list(islice(recordings(), RUNS))
    run = observing.repeated(jobs[0], LONG_S)
    series = [*history(run, end_s), *steady_history(team, end_s)]
    for number, job in enumerate(jobs):
        series += container_history(LAB, f"job-{number}", observing.repeated(job, RUN_S), int(time.time()) - 600)
    started = observing.start_prometheus(
        cluster,
        scrape_interval_s=HOUR_S,
        history=observing.history_blocks(cluster.folder / "past", series, cluster.binaries),
        name="prometheus-with-a-past",
    )
    yield Past(started, run, end_s, team)
    started.server.stop()
    clear_namespace(cluster, team)


def history(run: UsageSeries, end_s: float) -> Iterator[HistorySeries]:
    """The history of the two pods of the namespace `history`."""
    short = UsageSeries("short", run.timestamps[: SHORT_S // 15], STEP_S, run.usage[: SHORT_S // 15])
    yield from container_history(DELETED, "web-1-a", run, end_s)
    yield from owned_by("Deployment", "web", DELETED, "web-1-a", end_s)
    yield from container_history(DELETED, "night-1-b", short, end_s - 2.5 * HOUR_S)
    yield from owned_by("CronJob", "night", DELETED, "night-1-b", end_s)


def steady_history(namespace: str, end_s: float) -> Iterator[HistorySeries]:
    """The history of the deleted pod."""
    yield from container_history(namespace, "steady-1-a", constant_usage(HOURS, CORES, BYTES), end_s)
    yield from owned_by("Deployment", "steady", namespace, "steady-1-a", end_s)


def container_history(namespace: str, pod: str, run: UsageSeries, end_s: float) -> list[HistorySeries]:
    return observing.container_history(run, namespace=namespace, pod=pod, container="main", end_s=end_s)


def test_stretches_hold_means_and_peaks_and_owners_are_found(past: Past) -> None:
    with PrometheusClient(past.prometheus.url, Access()) as client:
        prometheus_past = PrometheusPast(client, UsageSettings())
        blocks = list(prometheus_past.stretches([DELETED], past.end_s - 8 * HOUR_S, past.end_s, HOUR_S))
        owners = prometheus_past.owners([DELETED], past.end_s - 8 * HOUR_S, past.end_s)
    rows = {
        (block.containers[at].pod, int(when)): used
        for block in blocks
        for at, when, used in zip(block.owner, block.timestamps, block.usage, strict=True)
    }
    per_hour = round(HOUR_S / STEP_S)
    hours = past.run.usage[-5 * per_hour :].reshape(5, per_hour, 2)
    for ago, used in zip(range(4, -1, -1), hours, strict=True):
        mean, peak = rows["web-1-a", past.end_s - ago * HOUR_S]
        assert mean == pytest.approx(used[:, CPU].mean(), rel=0.02)
        assert peak == used[:, MEMORY].max()
    (mean, peak) = rows["night-1-b", past.end_s - 2 * HOUR_S]
    assert mean == pytest.approx(past.run.usage[1 : SHORT_S // 15, CPU].mean(), rel=0.25)  # not over the hour
    assert peak == past.run.usage[: SHORT_S // 15, MEMORY].max()
    assert sum(pod == "night-1-b" for pod, _ in rows) == 1
    assert list(owners.chain(DELETED, "web-1-a"))[-1] == Owner("Deployment", "web")
    assert list(owners.chain(DELETED, "night-1-b"))[-1] == Owner("CronJob", "night")


def test_the_first_targets_come_from_the_history_of_deleted_pods(cluster: Cluster, past: Past) -> None:
    options = ("--prometheus", past.prometheus.url, "--history", f"{HOURS + 1}h", "--interval", "10m")
    ours = start_recommender(cluster, install(cluster), *options)
    try:
        target = wait_until(lambda: recommendation(cluster, past.team, "steady"), "a target", timeout_s=60)["target"]
        found = {name: parse_quantity(amount) for name, amount in target.items()}
        assert found == pytest.approx(TARGET, rel=0.08)  # a bucket's width: a rate differs from moment to moment
        wait_until(lambda: metric(ours, "phasewise_rounds_total") == 1, "the first round to end", timeout_s=30)
        assert metric(ours, "phasewise_samples_total") == 0, "nothing is scraped: there is only history"
        assert "containers of VPAs from Prometheus" in ours.log.read_text()
    finally:
        ours.stop()


def containers() -> Iterator[list[str]]:
    """The arguments of our containers in the training CronJob, in the order in which they run."""
    (job,) = (found for found in yaml.safe_load_all(TRAINING.read_text()) if found["kind"] == "CronJob")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        if "args" in container:
            yield [str(argument) for argument in container["args"]]


def test_history_in_prometheus_becomes_the_model_of_a_running_recommender(
    cluster: Cluster,
    past: Past,
    tmp_path: Path,
    phasewise: Callable[..., CommandResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs the containers of the manifests' CronJob in turn, with the rights of its account."""
    account = install(cluster)
    cluster.apply(TRAINING)
    monkeypatch.setenv("KUBECONFIG", str(cluster.service_account("kube-system", "phasewise-trainer")))
    ours = start_recommender(cluster, account, "--model", MODEL, name="of-a-trained-model")
    try:
        assert metric(ours, "phasewise_model_info", origin="bundled") == 1.0
        for arguments in containers():
            ended = phasewise(
                *(each.replace(URL, past.prometheus.url).replace(DATA, str(tmp_path)) for each in arguments)
            )
            assert ended.code == 0, f"{arguments}: {ended.err}"
        wait_until(lambda: metric(ours, "phasewise_model_info", origin=MODEL) == 1.0, "the new model", timeout_s=30)
        assert metric(ours, "phasewise_model_refused") == 0.0
    finally:
        ours.stop()


def test_usage_scraped_from_simulated_nodes_is_read_back_as_current_and_as_history(scraped: Scraped) -> None:
    with PrometheusClient(scraped.prometheus.url, Access()) as client:
        usage = UsageQuery(client, UsageSettings(namespaces=(scraped.namespace,)))

        def current_usage() -> object:
            return [
                sample
                for name, sample in usage.current_usage(time.time()).items()
                if name.pod == scraped.pod and abs(sample.cpu_cores - 0.4) < 0.02 and sample.memory_bytes == 2.0**28
            ]

        (sample,) = wait_until(current_usage, "the pod's usage", timeout_s=120, every_s=1.0)  # type: ignore[misc]
        assert time.time() - sample.timestamp_s < 15.0
        prometheus_past = PrometheusPast(client, UsageSettings())
        now_s = int(time.time())
        owners = wait_until(
            lambda: (found := prometheus_past.owners([scraped.namespace], now_s - 600, time.time())).pods and found,
            "kube-state-metrics to report the owner",
            timeout_s=60,
        )
        assert list(owners.chain(scraped.namespace, scraped.pod))[-1] == Owner("Deployment", "steady")
        blocks = list(prometheus_past.samples([scraped.namespace], now_s - 10, now_s, 1.0))
    memory = np.concatenate([block.usage[:, MEMORY] for block in blocks])
    assert len(memory) and memory[-1] == 2.0**28
