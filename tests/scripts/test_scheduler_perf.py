"""Kubernetes' own benchmark of the scheduler: configuration, results, and a tiny run."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from rich.console import Console

from local_cluster.installing import configuration, documents
from local_cluster.waiting import wait_until
from scheduler_bench import output
from scheduler_bench.perf import (
    DURATION,
    PERF_KINDS,
    THROUGHPUT,
    Perf,
    PerfFailed,
    cases,
    read_items,
    run_in_a_group,
    scheduler_configuration,
)
from tests.scripts.benches import invoke


def item(case: str, metric: str, **data: float) -> dict[str, Any]:
    return {"labels": {"Name": f"BenchmarkPerfScheduling/{case}/500Nodes", "Metric": metric}, "data": data, "unit": ""}


def test_without_an_extender_the_scheduler_is_as_shipped_and_with_one_that_of_our_manifests() -> None:
    for kind in ("none", "unbatched"):
        assert scheduler_configuration(kind, 80).keys() == {"apiVersion", "kind"}
    ours, stub = (scheduler_configuration(kind, 8888) for kind in ("ours", "stub"))
    installed = configuration(documents())
    assert ours["profiles"][0] == installed["profiles"][0] | {"schedulerName": "default-scheduler"}
    assert ours["extenders"][0] == installed["extenders"][0] | {"urlPrefix": "http://127.0.0.1:8888"}
    assert stub["extenders"][0]["urlPrefix"] == "http://127.0.0.1:8888/scores"


def test_equal_pods_are_batched_but_where_that_is_what_is_measured(tmp_path: Path) -> None:
    for batched in (True, False):
        basic, mixed = cases(tmp_path, 5, 100, batched=batched)
        assert {each["featureGates"]["OpportunisticBatching"] for each in (basic, mixed)} == {batched}
        for each in (basic, mixed):
            *before, measured = each["workloadTemplate"]
            assert measured["collectMetrics"]
            assert {step["count"] for step in before if step["opcode"] == "createPods"} == {2}
        assert len(mixed["workloadTemplate"]) - len(basic["workloadTemplate"]) == 5, (
            "a namespace, and pods of four kinds"
        )
        assert yaml.safe_load(yaml.safe_dump([basic, mixed])) == [basic, mixed]


def test_throughput_and_percentiles_are_read_of_each_case() -> None:
    told = [
        item("SchedulingBasic", THROUGHPUT, Average=300.0, Perc50=301.0),
        item("SchedulingBasic", DURATION, Perc50=1.0, Perc90=2.0, Perc95=2.5, Perc99=3.0),
    ]
    assert read_items("ours", told) == [Perf("ours", "SchedulingBasic", 300.0, 1.0, 2.0, 3.0)]
    with pytest.raises(PerfFailed, match="SchedulingBasic took less than a second"):
        read_items("ours", told[1:])


def test_medians_over_the_rounds_are_shown_by_case_and_kind() -> None:
    told = Console(width=150, record=True, file=io.StringIO())
    perf = [
        Perf(kind, "SchedulingBasic", 100.0 * number, 1.0, 2.0, number) for kind in PERF_KINDS for number in (1, 2, 3)
    ]
    output.show(told, {"date": "today", "machine": "this", "nodes": 5, "pods": 20}, [], [], [], perf)
    text = told.export_text()
    assert "scheduler_perf, 5 nodes, 20 pods" in text
    assert all(output.PERF_TITLES[kind] in text for kind in PERF_KINDS)
    assert text.count("100 200 300") == len(PERF_KINDS)


def test_who_is_interrupted_leaves_nothing_of_the_benchmark_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark starts servers of its own; here a shell that starts another process."""
    started = tmp_path / "started"
    wait = subprocess.Popen.wait

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        wait_until(lambda: started.exists() and started.read_text().strip(), "the process below to be started")
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_a_group(["sh", "-c", f"sleep 600 & echo $! > {started}; wait"], tmp_path, {})
    below = int(started.read_text())
    wait_until(lambda: not psutil.pid_exists(below) or psutil.Process(below).status() == "zombie", "it to be ended")


def test_more_pods_than_its_nodes_have_room_for_are_refused_since_the_benchmark_would_wait_for_them_for_ever() -> None:
    done = invoke("bench_scheduler", "--only", "perf", "--nodes", 20, "--pods", 1500, "--rounds", 1)
    assert done.exit_code == 2
    assert "--pods" in done.output


@pytest.mark.cluster
def test_a_tiny_run_goes_through_with_every_kind() -> None:
    done = invoke("bench_scheduler", "--only", "perf", "--nodes", 40, "--pods", 1200, "--rounds", 1)
    assert done.exit_code == 0, done.output
    for kind in PERF_KINDS:
        assert done.stdout.count(output.PERF_TITLES[kind]) >= 1
