"""bench_node: its jobs, its records of pods, its figures by hand, and a small batch on a real node."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import orjson
import pytest
from kubernetes.client import (
    V1ContainerState,
    V1ContainerStateRunning,
    V1ContainerStateTerminated,
    V1ContainerStatus,
    V1ObjectMeta,
    V1Pod,
    V1PodStatus,
)
from rich.console import Console

from benchmarks.benches import write_json
from benchmarks.node import interpreter, output
from benchmarks.node.figures import Rises, figures, fit, rises, timeline
from benchmarks.node.objects import CLASS, draw, vpa
from benchmarks.node.rows import NODE, SCRIPTED, Observations, rows_named
from benchmarks.node.watch import JobRun, Sample, update_run
from recommender.cluster.workloads.workload_class import without_counter
from tests.benchmarks.benches import SCRIPTS, interrupted_script, invoke
from tests.rig.cluster import Cluster
from tests.rig.real_node.cgroups import trees
from tests.rig.real_node.node import what_is_missing
from tests.rig.rig import clusters_folder
from tests.rig.waiting import wait_until

NAME = "bench_node"
QUICK = ("--workload", "numpy", "--quick", "--jobs", 2)
GIB = 2.0**30


# -- the jobs ----------------------------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_jobs_which_differ_slightly() -> None:
    plans = draw(10, seed=3)
    assert plans == draw(10, seed=3)
    assert plans[:4] == draw(4, seed=3)
    assert plans != draw(10, seed=4)
    assert {plan.epochs for plan in plans} == {3, 4, 5}
    assert all(0.85 <= factor <= 1.15 for plan in plans for factor in (plan.size, plan.pace))
    assert len({plan.size for plan in plans}) == 10


def test_a_job_reports_its_stages_in_order() -> None:
    plan = draw(1, seed=0, scale=0.02)[0]
    command = [sys.executable, "-m", "benchmarks.node.job", "--workload", "numpy", *plan.arguments()]
    done = subprocess.run(command, cwd=SCRIPTS.parent, capture_output=True, text=True, check=True)
    stages = re.findall("^stage=(.+)$", done.stdout, re.MULTILINE)
    assert stages == ["import", "load", "preprocess", *["train", "evaluate"] * 2, "export", "end"]
    assert set(SCRIPTED) == set(stages) - {"end"}


def test_an_interpreter_without_the_packages_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(interpreter.NEEDS, "torch", ("numpy", "no_such_package"))
    with pytest.raises(interpreter.NoInterpreter, match=r"has no no_such_package.*requirements-record\.txt"):
        interpreter.find("torch", sys.executable)
    with pytest.raises(interpreter.NoInterpreter, match="does not run"):
        interpreter.find("numpy", "/nowhere/python")


def test_the_jobs_are_runs_of_one_class_and_their_vpas_resize_in_place() -> None:
    assert without_counter("train-007") == CLASS
    made = vpa("train-007", "phasewise")["spec"]
    assert made["recommenders"] == [{"name": "phasewise"}]
    assert made["updatePolicy"] == {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}
    assert "recommenders" not in vpa("train-007", None)["spec"]


def test_rows_are_in_the_order_of_the_table() -> None:
    assert [row.key for row in rows_named(["ours", "static"])] == ["static", "ours"]
    assert [row.leaves_waiting for row in rows_named(["static", "ours"], leaves_waiting=True)] == [False, True]


# -- records of pods ---------------------------------------------------------------------------------------------------


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def pod(uid: str, started: int, *, deleted: bool = False) -> V1Pod:
    metadata = V1ObjectMeta(uid=uid, deletion_timestamp=at(0) if deleted else None)
    return V1Pod(metadata=metadata, status=V1PodStatus(start_time=at(started)))


def container(identity: str, now: V1ContainerState, last: V1ContainerState | None = None) -> V1ContainerStatus:
    return V1ContainerStatus(
        container_id=identity, state=now, last_state=last, name="main", image="i", image_id="i", ready=True,
        restart_count=0,
    )  # fmt: skip


def runs() -> V1ContainerState:
    return V1ContainerState(running=V1ContainerStateRunning())


def ended(identity: str, code: int, reason: str, second: int) -> V1ContainerState:
    terminated = V1ContainerStateTerminated(
        container_id=identity, exit_code=code, reason=reason, finished_at=at(second)
    )
    return V1ContainerState(terminated=terminated)


def test_a_killed_container_counts_once_however_often_it_is_observed() -> None:
    run = JobRun("train-001", submitted_s=0.0)
    first = pod("a", 5)
    update_run(run, first, container("c1", runs()), gone=False)
    killed = ended("c1", 137, "OOMKilled", 30)
    update_run(run, first, container("c1", killed), gone=False)
    update_run(run, first, container("c2", runs(), killed), gone=False)
    update_run(run, first, container("c2", ended("c2", 0, "Completed", 95), killed), gone=False)
    assert (len(run.oom_kills), run.restarts, len(run.evictions)) == (1, 1, 0)
    assert (run.pod_started_s, run.ended_s, run.done) == (5.0, 95.0, True)
    update_run(run, pod("a", 5, deleted=True), container("c2", ended("c2", 0, "Completed", 95)), gone=True)
    assert not run.evictions  # it had completed


def test_an_evicted_pod_counts_and_its_job_is_timed_from_the_first_pod() -> None:
    run = JobRun("train-001", submitted_s=0.0)
    update_run(run, pod("waits", 0, deleted=True), None, gone=True)
    assert not run.evictions  # it had not begun
    update_run(run, pod("a", 5), container("c1", runs()), gone=False)
    update_run(run, pod("a", 5, deleted=True), container("c1", runs()), gone=False)
    update_run(run, pod("a", 5, deleted=True), container("c1", ended("c1", 137, "OOMKilled", 40)), gone=True)
    update_run(run, pod("b", 50), container("c2", runs()), gone=False)
    assert (len(run.oom_kills), run.restarts, len(run.evictions), run.pod_started_s) == (0, 1, 1, 5.0)
    assert not run.done


def test_exit_code_0_is_no_kill_whatever_the_reason() -> None:
    run = JobRun("train-001", submitted_s=0.0)
    update_run(run, pod("a", 5), container("c1", ended("c1", 0, "OOMKilled", 70)), gone=False)
    assert (len(run.oom_kills), run.done) == (0, True)


# -- figures -----------------------------------------------------------------------------------------------------------


def test_slack_is_relative_to_use_and_a_violation_is_above_105_percent_of_the_request() -> None:
    judged = fit(np.array([[0.5, 1.0], [1.04, 1.0], [1.06, 1.0], [0.4, 0.5]]))
    assert judged.slack_ratio == pytest.approx((0.5 + 0.1) / 3.0)
    assert judged.violation_ratio == 0.25
    assert fit(np.empty((0, 2))).slack_ratio == 0.0


def a_batch() -> Observations:
    """Two jobs: the first from 1 to 3 s, killed once; the second from 2 to 5 s. The last second has no samples."""
    first = JobRun("train-001", 100.0, 101.0, 103.0, {"a", "b"}, {"a": 102.5}, set(), [(101.5, "import")])
    second = JobRun("train-002", 101.0, 102.0, 105.0, {"c"})
    samples = [
        Sample(102.0, "train-001", "p1", 0.5, 1 * GIB, 0.9, 1.2 * GIB),
        Sample(103.0, "train-001", "p1", 1.0, 1 * GIB, 0.9, 1.2 * GIB),
        Sample(103.0, "train-002", "p2", 0.5, 0.5 * GIB, 0.5, 1.2 * GIB),
    ]
    return Observations([first, second], samples, [102.0, 103.0, 104.0])


def test_the_figures_of_a_batch() -> None:
    row = figures("static", "nobody", a_batch())
    assert (row.batch_s, row.oom_kills, row.restarts, row.evictions) == (5.0, 1, 1, 0)
    assert (row.job_mean_s, row.job_max_s, row.jobs_at_a_time) == (2.5, 3.0, 1.0)
    assert row.cpu.violation_ratio == pytest.approx(1 / 3)
    assert row.cpu_sampled.used == 0.0  # no job ran for ten seconds
    assert row.jobs[0]["stages"] == [[1.5, "import"]]


def test_sampled_figures_are_of_means_of_ten_seconds() -> None:
    second = [Sample(100.0 + s, "train-001", "p1", 1.0 if s < 3 else 0.1, GIB, 0.5, 1.2 * GIB) for s in range(15)]
    row = figures("static", "nobody", replace(a_batch(), samples=second, moments=[s.at_s for s in second]))
    assert row.cpu.violation_ratio == 0.2
    assert (row.cpu_sampled.used, row.cpu_sampled.violation_ratio) == (pytest.approx(0.37), 0.0)


def test_requests_raised_before_a_stage_late_or_never_are_counted() -> None:
    """Four stages of five seconds, every second one needs four times as much."""
    use = [0.1] * 5 + [0.4] * 5 + [0.1] * 5 + [0.4] * 5

    def judged(request: list[float]) -> Rises:
        samples = [
            Sample(float(t), "a", "a-x", cores, 0.0, requested, 0.0)
            for t, (cores, requested) in enumerate(zip(use, request, strict=True))
        ]
        return rises([JobRun("a", 0.0, 0.0, 20.0, stages=stages), JobRun("b", 0.0, 0.0, 20.0)], samples)

    stages = [(0.0, "load"), (5.0, "train"), (10.0, "load"), (15.0, "train")]
    assert judged([0.2] * 3 + [0.5] * 7 + [0.2] * 3 + [0.5] * 7) == Rises(
        2, 0, 0, lead_s=2.0, delay_s=pytest.approx(np.nan, nan_ok=True)
    )
    assert judged([0.2] * 7 + [0.5] * 3 + [0.2] * 8 + [0.5] * 2) == Rises(
        0, 2, 0, pytest.approx(np.nan, nan_ok=True), delay_s=2.5
    )
    assert judged([0.2] * 10 + [0.5] * 10) == Rises(1, 0, 1, lead_s=5.0, delay_s=pytest.approx(np.nan, nan_ok=True))
    assert judged([0.5] * 20) == Rises(0, 0, 0, pytest.approx(np.nan, nan_ok=True), pytest.approx(np.nan, nan_ok=True))
    assert judged([0.2] * 10 + [0.5] * 10).stages == 2


def test_the_timeline_has_every_sample_time_and_is_zero_where_nothing_runs() -> None:
    batch = a_batch()
    line = timeline(batch, 100.0)
    assert line.since_s == [2.0, 3.0, 4.0]
    assert line.running == [1, 2, 0]
    assert line.oom_kills_s == [2.5]
    assert line.cpu_cores == {"train-001": [0.5, 1.0, 0.0], "train-002": [0.0, 0.5, 0.0]}
    assert line.cpu_request_cores == pytest.approx([0.9, 1.4, 0.0])


def test_figures_are_printed_written_and_plotted(tmp_path: Path) -> None:
    batch = a_batch()
    rows = [figures("static", "nobody", batch), figures("ours", "ours", batch)]
    facts = {"batch": {"jobs": 2, "workload": "numpy"}, "ours": {"taught": 20}}
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(output.table(rows, facts))
    assert "5 s │ 1 / 1 / 0 │ 2 s (3 s) │ 1.0" in re.sub(" +", " ", console.export_text())
    write_json(tmp_path / "r.json", {**facts, "rows": rows})
    assert [row["key"] for row in orjson.loads((tmp_path / "r.json").read_bytes())["rows"]] == ["static", "ours"]
    output.draw(rows, tmp_path / "r.png", 1.8, 3.4 * GIB)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


# -- a small batch on a real node --------------------------------------------------------------------------------------


on_a_real_node = pytest.mark.skipif(
    bool(what_is_missing()), reason=f"no real node on this machine: {what_is_missing()}"
)


def groups_of(process: subprocess.Popen[str]) -> list[Path]:
    """Existing control groups of a benchmark's node."""
    groups = [tree / f"phasewise-bench-{process.pid}-{NODE}" for tree in trees().values()]
    return [path for path in groups if path.exists()]


@on_a_real_node
def test_a_small_batch_completes_under_the_default_a_script_and_ours(borrowed: Cluster, tmp_path: Path) -> None:
    files = ("--json", tmp_path / "r.json", "--plot", tmp_path / "r.png")
    done = invoke(NAME, *QUICK, "--rows", "default,script,ours", "--taught", 1, *files, on=borrowed)
    assert done.exit_code == 0, done.output
    rows = {row["key"]: row for row in orjson.loads((tmp_path / "r.json").read_bytes())["rows"]}
    assert list(rows) == ["default", "script", "ours"]
    for row in rows.values():
        assert (row["oom_kills"], row["restarts"]) == (0, 0)
        assert [job["stages"][-1][1] for job in row["jobs"]] == ["end", "end"]
        assert 0 < row["cpu"]["used"] < row["cpu"]["requested"]
    assert rows["script"]["memory"]["slack_ratio"] != rows["default"]["memory"]["slack_ratio"]


@on_a_real_node
@pytest.mark.cluster
def test_ctrl_c_leaves_nothing_behind() -> None:
    def job_runs() -> bool:
        return any(list(group.glob("kubepods/*/pod*/*/")) for group in groups_of(process))

    with interrupted_script(NAME, *QUICK, "--rows", "static") as process:
        wait_until(job_runs, "a job to run that must not be left behind", timeout_s=90)
    assert not groups_of(process)
    assert not (clusters_folder() / f"bench-{process.pid}").exists()
