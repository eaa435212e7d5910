"""Exports and queries from a real Prometheus that is filled with recorded runs of a day and a month of samples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recommender.base.records import CPU, MEMORY, UsageSeries
from recommender.sources.files import open_source
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_faults import AccessRefused, QueryRefused, QueryTooLarge, Unavailable
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery
from tests.fakes.command_line import CommandResult
from tests.rig import observing
from tests.rig.cluster import Cluster
from tests.rig.observing import HistorySeries, Prometheus, history

Phasewise = Callable[..., CommandResult]

STEP_S = 15
RUNS = 6
DAY_S = 26 * 3600
NAMESPACE = "last-week"


@pytest.fixture(scope="module")
def end_s() -> int:
    return int(time.time()) // 60 * 60


@pytest.fixture(scope="module")
def runs() -> list[UsageSeries]:
    """Recorded runs with a step of 15 s instead of 1 s; every other one lasts a third of the time."""
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        recorded = [run for run, _ in zip(source, range(RUNS), strict=False)]
    spans_s = [DAY_S if at % 2 == 0 else DAY_S / 3 for at in range(RUNS)]
    return [
        observing.repeated(replace(run, step_s=float(STEP_S)), span_s)
        for run, span_s in zip(recorded, spans_s, strict=True)
    ]


def month(end_s: int) -> list[HistorySeries]:
    """One container that was sampled each minute for 30 days, with a counter that is reset twice a day."""
    times_s = end_s - 60.0 * np.arange(30 * 1440)[::-1]
    names = {"namespace": "month", "pod": "server-0", "container": "main", "id": "/a", "job": "kubelet"}
    since_s = (times_s - times_s[0]) % 43_200
    return [
        HistorySeries(history.CPU_SECONDS, names | {"cpu": "total"}, times_s, 0.5 * since_s),
        HistorySeries(history.WORKING_SET, names, times_s, 1e8 + since_s),
    ]


def facts_of_runs(end_s: int) -> list[HistorySeries]:
    """As from kube-state-metrics in the last hour: job-0 was OOM-killed once and then completed, job-1 still runs."""
    times_s = end_s - 60.0 * np.arange(60)[::-1]

    def constant(name: str, value: float, **labels: str) -> HistorySeries:
        return HistorySeries(name, {"job": "kube-state-metrics", **labels}, times_s, np.full(len(times_s), value))

    pods = [{"namespace": NAMESPACE, "pod": f"job-{at}", "uid": str(at)} for at in range(2)]
    ended = {**pods[0], "container": "training"}
    owner = {"owner_kind": "Job", "owner_name": "night-17", "owner_is_controller": "true"}
    return [
        *(constant("kube_pod_start_time", end_s - 7200.0, **pod) for pod in pods),
        *(constant("kube_pod_owner", 1.0, **pod, **owner) for pod in pods),
        constant("kube_pod_completion_time", float(end_s), **pods[0]),
        constant("kube_pod_annotations", 1.0, annotation_phasewise_dev_input_size="1.2e6", **pods[0]),
        constant("kube_pod_container_status_terminated_reason", 1.0, reason="Completed", **ended),
        constant("kube_pod_container_status_last_terminated_reason", 1.0, reason="OOMKilled", **ended),
        constant("kube_pod_container_status_last_terminated_timestamp", end_s - 600.0, **ended),
        constant("kube_pod_container_resource_limits", 2.0**31, resource="memory", unit="byte", **ended),
        constant("kube_pod_container_resource_requests", 4.0, resource="nvidia_com_gpu", unit="integer", **ended),
        constant("kube_node_status_allocatable", 16.0, node="node-0", resource="cpu", unit="core"),
    ]


@pytest.fixture(scope="module")
def filled(cluster: Cluster, runs: list[UsageSeries], end_s: int) -> Iterator[Prometheus]:
    """The runs, one of them scraped by two jobs, a month, and a run with other labels; TLS and basic authentication."""
    series = month(end_s) + facts_of_runs(end_s)
    for at, run in enumerate(runs):
        lines = observing.container_history(
            run, namespace=NAMESPACE, pod=f"job-{at}", container="training", end_s=end_s, node=f"node-{at}"
        )
        series += lines
        if at == 0:
            series += [replace(line, labels={**line.labels, "job": "other"}) for line in lines]
    renamed = {"namespace": "kube_ns", "pod": "pod_name", "container": "container_name"}
    for line in observing.container_history(runs[1], namespace="old", pod="job-0", container="training", end_s=end_s):
        labels = {renamed.get(name, name): value for name, value in line.labels.items()}
        series.append(replace(line, labels=labels | {"cluster": "b"}))
    started = observing.start_prometheus(
        cluster,
        scrape_interval_s=60,
        history=observing.history_blocks(cluster.folder / "usage-history", series, cluster.binaries),
        name="prometheus-to-export",
        access=observing.BasicAuth(),
        tls=True,
    )
    yield started
    started.server.stop()


@pytest.fixture
def access(filled: Prometheus, tmp_path: Path) -> Access:
    assert filled.access is not None
    (tmp_path / "password").write_text(filled.access.password + "\n")
    return Access(user=filled.access.user, password_file=tmp_path / "password", ca_file=filled.authority)


@pytest.fixture
def client(filled: Prometheus, access: Access) -> Iterator[PrometheusClient]:
    with PrometheusClient(filled.url, access) as opened:
        yield opened


def options(filled: Prometheus, access: Access, end_s: int, output: Path, *arguments: str) -> list[str]:
    auth = ["--user", str(access.user), "--password-file", str(access.password_file), "--ca-file", str(access.ca_file)]
    span = ["--since", f"{DAY_S}s", "--until", str(end_s)]
    return ["export", "--prometheus", filled.url, *auth, *span, "-o", str(output), *arguments]


def assert_same_usage(one: UsageSeries, run: UsageSeries) -> None:
    """A rate over two scrapes is the counter's growth between them.

    The first rate of a series is not: Prometheus assumes that the counter began shortly before.
    """
    usage = run.usage[-len(one) :]
    assert len(run) - len(one) <= 1  # the first sample of a counter has no rate
    np.testing.assert_array_equal(one.usage[:, MEMORY], usage[:, MEMORY])
    np.testing.assert_allclose(one.usage[1:, CPU], usage[1:, CPU], rtol=1e-6, atol=1e-9)


def assert_as_recorded(file: Path, runs: list[UsageSeries]) -> None:
    with open_source([file]) as source:
        found = {one.container: one for one in source}
    assert list(found) == [f"{NAMESPACE}/job-{at}/training" for at in range(RUNS)]
    for at, run in enumerate(runs):
        one = found[f"{NAMESPACE}/job-{at}/training"]
        assert one.node == f"node-{at}"
        assert_same_usage(one, run)
        assert one.requests is not None and run.requests is not None
        np.testing.assert_array_equal(one.requests, run.requests[-len(one) :])


def test_an_export_has_the_recorded_usage(
    phasewise: Phasewise, filled: Prometheus, access: Access, runs: list[UsageSeries], end_s: int, tmp_path: Path
) -> None:
    only = ["--namespace", NAMESPACE, "--rate-window", "30s"]
    for name in ("day.parquet", "day.csv.gz"):
        ended = phasewise(*options(filled, access, end_s, tmp_path / name, *only, "--staleness", "14s"))
        assert ended.code == 0, ended.err
        assert ended.err.count("scraped more than once (by two jobs?): 1 container;") == 1
        assert_as_recorded(tmp_path / name, runs)


def test_an_export_has_the_facts_about_runs(
    phasewise: Phasewise, filled: Prometheus, access: Access, end_s: int, tmp_path: Path
) -> None:
    file = tmp_path / "hour.parquet"
    ended = phasewise(*options(filled, access, end_s, file, "--namespace", NAMESPACE, "--since", "1h"))
    assert ended.code == 0, ended.err
    with open_source([file]) as source:
        first, second, *_ = source
    assert (first.workload, second.workload) == ("night", "night")
    assert (first.facts.started_s, second.facts.started_s) == (end_s - 7200, end_s - 7200)
    assert (first.facts.finished_s, first.facts.exit_code, first.facts.oom_killed_s) == (end_s, 0, end_s - 600)
    assert (first.facts.input_size, math.isnan(second.facts.input_size)) == (1.2e6, True)
    assert (first.facts.devices, math.isnan(second.facts.devices)) == (4.0, True)
    assert (first.facts.limits[MEMORY], first.facts.allocatable[CPU]) == (2.0**31, 16)
    assert (first.facts.ended, second.facts.ended) == (True, False)


def test_a_month_is_exported_across_counter_resets(
    phasewise: Phasewise, filled: Prometheus, access: Access, end_s: int, tmp_path: Path
) -> None:
    file = tmp_path / "month.csv.gz"
    ended = phasewise(*options(filled, access, end_s, file, "--since", "30d", "--step", "60s", "--namespace", "month"))
    assert ended.code == 0, ended.err
    assert "no requests: " in ended.err
    rows = pd.read_csv(file)
    assert len(rows) >= 30 * 1440 - 2
    assert (np.diff(rows["timestamp"]) == 60).all()
    usual = rows["cpu_cores"].sub(0.5).abs() < 1e-6
    assert usual.mean() > 0.98  # a reset hides at most the usage since the previous scrape
    assert rows["cpu_cores"].between(0, 0.5 + 1e-6).all()


def test_current_usage_omits_ended_containers(client: PrometheusClient, runs: list[UsageSeries], end_s: int) -> None:
    usage = UsageQuery(client, UsageSettings(namespaces=(NAMESPACE,)))
    now_s = end_s - 10
    found = usage.current_usage(now_s)
    assert sorted(name.pod for name in found) == [f"job-{at}" for at in range(RUNS)]
    one = found[(NAMESPACE, "job-0", "training")]  # type: ignore[index]
    assert now_s - STEP_S <= one.timestamp_s <= now_s
    assert one.memory_bytes == runs[0].usage[-2, MEMORY]
    assert usage.current_usage(end_s + 30).keys() == found.keys()
    assert usage.current_usage(end_s + 90) == {}  # Prometheus itself would carry them on for five minutes


def test_limits_and_refusals_of_prometheus_are_recognised(
    client: PrometheusClient, filled: Prometheus, access: Access, end_s: int, tmp_path: Path
) -> None:
    with pytest.raises(QueryRefused, match="parse error"):
        client.instant("sum(", end_s)
    with pytest.raises(QueryTooLarge, match="maximum resolution"):
        client._query("query_range", {"query": "1", "start": "0", "end": "12000", "step": "1"})
    assert len(client.range("vector(1)", 0, 12_000, 1)) == 12_001
    (tmp_path / "wrong").write_text("guessed")
    wrong = replace(access, password_file=tmp_path / "wrong")
    with PrometheusClient(filled.url, wrong) as other, pytest.raises(AccessRefused, match="does not accept user"):
        other.instant("1", end_s)
    with PrometheusClient(filled.url) as other, pytest.raises(Unavailable, match="--ca-file"):
        other.instant("1", end_s)
