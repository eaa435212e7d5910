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

from benchmarks.scheduler import output
from benchmarks.scheduler.perf import (
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
from tests.benchmarks.benches import invoke
from tests.rig.installing import configuration, documents
from tests.rig.waiting import wait_until


def item(case: str, metric: str, **data: float) -> dict[str, Any]:
    return {"labels": {"Name": f"BenchmarkPerfScheduling/{case}/500Nodes", "Metric": metric}, "data": data, "unit": ""}


def test_the_configuration_is_the_default_without_an_extender_and_that_of_the_manifests_with_one() -> None:
    for kind in ("none", "unbatched"):
        assert scheduler_configuration(kind, 80).keys() == {"apiVersion", "kind"}
    ours, stub = (scheduler_configuration(kind, 8888) for kind in ("ours", "stub"))
    installed = configuration(documents())
    assert ours["profiles"][0] == installed["profiles"][0] | {"schedulerName": "default-scheduler"}
    assert ours["extenders"][0] == installed["extenders"][0] | {"urlPrefix": "http://127.0.0.1:8888"}
    assert stub["extenders"][0]["urlPrefix"] == "http://127.0.0.1:8888/scores"


def test_opportunistic_batching_can_be_switched_off(tmp_path: Path) -> None:
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


def test_throughput_and_percentiles_are_read_for_each_case() -> None:
    items = [
        item("SchedulingBasic", THROUGHPUT, Average=300.0, Perc50=301.0),
        item("SchedulingBasic", DURATION, Perc50=1.0, Perc90=2.0, Perc95=2.5, Perc99=3.0),
    ]
    assert read_items("ours", items) == [Perf("ours", "SchedulingBasic", 300.0, 1.0, 2.0, 3.0)]
    with pytest.raises(PerfFailed, match="SchedulingBasic took less than a second"):
        read_items("ours", items[1:])


def test_medians_over_the_rounds_are_shown_by_case_and_kind() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    perf = [
        Perf(kind, "SchedulingBasic", 100.0 * number, 1.0, 2.0, number) for kind in PERF_KINDS for number in (1, 2, 3)
    ]
    output.show(console, {"date": "today", "machine": "this", "nodes": 5, "pods": 20}, [], [], [], perf)
    text = console.export_text()
    assert "scheduler_perf, 5 nodes, 20 pods" in text
    assert all(output.PERF_TITLES[kind] in text for kind in PERF_KINDS)
    assert text.count("100 200 300") == len(PERF_KINDS)


def test_an_interruption_ends_all_processes_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark starts its own servers; here a shell starts another process."""
    started = tmp_path / "started"
    wait = subprocess.Popen.wait

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        wait_until(lambda: started.exists() and started.read_text().strip(), "the child process to be started")
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_a_group(["sh", "-c", f"sleep 600 & echo $! > {started}; wait"], tmp_path, {})
    child = int(started.read_text())
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", "it to be ended")


def test_more_pods_than_the_nodes_have_room_for_are_refused() -> None:
    """The benchmark would wait for them forever."""
    done = invoke("bench_scheduler", "--only", "perf", "--nodes", 20, "--pods", 1500, "--rounds", 1)
    assert done.exit_code == 2
    assert "--pods" in done.output


@pytest.mark.cluster
def test_a_tiny_run_covers_every_kind() -> None:
    done = invoke("bench_scheduler", "--only", "perf", "--nodes", 40, "--pods", 1200, "--rounds", 1)
    assert done.exit_code == 0, done.output
    for kind in PERF_KINDS:
        assert done.stdout.count(output.PERF_TITLES[kind]) >= 1
