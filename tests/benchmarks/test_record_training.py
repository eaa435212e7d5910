"""The recorder: plan, meters against known processes, runs end to end, and packing."""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.benches import SCRIPTS, invoke
from tests.jobs import pack, runner
from tests.jobs.plan import WORKLOADS, Run, planned_runs, workload_named
from tests.jobs.runner import SAMPLE_SCHEMA, Outcome, Recorder, record_all
from tests.jobs.sampler import CgroupMeter, Meter, TreeMeter

NAME = "record_training"
MIB = 2**20

USES = """
import os, sys, time
BLOCK = 200 * 2**20
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def report():
    t = os.times()
    print(t.user + t.system + t.children_user + t.children_system, flush=True)
    sys.stdin.readline()
burn(0.2)
report()
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
report()
kept = bytearray(b"x") * BLOCK
report()
"""
"""Works, lets a child work and end, then holds 200 MiB; after each it prints the CPU seconds so far and waits."""

JOB = """
import os, sys, time
progress = sys.argv[sys.argv.index("--progress") + 1]
def report(text):
    with open(progress + ".part", "w") as file:
        file.write(text)
    os.replace(progress + ".part", progress)
time.sleep(int(time.time()) + 2.2 - time.time())
report("make-data - nan")
before = time.process_time()
while time.process_time() < before + 0.4:
    pass
report(f"train 7 {time.process_time() - before}")
time.sleep(1.2)
"""
"""A job of some seconds: idle past the first sample, then 0.4 s of work (reported as its loss), then idle."""

FAILS = "import sys; print('no such data set'); sys.exit(7)"


def _meters() -> list[type]:
    kinds: list[type] = [TreeMeter]
    with contextlib.suppress(OSError, KeyError):
        CgroupMeter("probe").close()
        kinds.append(CgroupMeter)
    return kinds


def _run(number: int = 1, name: str = "text-sklearn") -> Run:
    return next(run for run in planned_runs(0) if run.workload == name and run.number == number)


def _recorder(folder: Path, program: str = JOB, **options: float) -> Recorder:
    return Recorder(folder, command=lambda run, scale: [sys.executable, "-c", program], **options)


def _start(meter: Meter, program: str) -> subprocess.Popen[str]:
    files = " ".join(map(str, meter.entry_files))
    process = subprocess.Popen(
        ["sh", "-c", runner.ENTER_AND_RUN, "sh", sys.executable, "-c", program],
        env={"ENTRY_FILES": files},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if isinstance(meter, TreeMeter):
        meter.root = psutil.Process(process.pid)
    return process


def _raw(folder: Path, run: Run, cpu_cores: list[float] | None = None, status: str = "done") -> None:
    """Write a raw recording as the runner would."""
    cores = cpu_cores or [0.5, 1.0, 0.25]
    same = {"memory_bytes": 5 * MIB, "loss": math.nan, "step": None, "stage": "train"}
    rows = [{"timestamp": 1_700_000_000 + second, "cpu_cores": used, **same} for second, used in enumerate(cores)]
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=SAMPLE_SCHEMA), folder / f"{run.container}.parquet")
    facts = {
        "status": status,
        "reason": "exit code 1" if status == "failed" else "",
        "started_unix_s": 1_700_000_000.0,
        "duration_s": 3.0,
        "meter": "cgroup",
        "run": asdict(run),
    }
    (folder / f"{run.container}.json").write_bytes(orjson.dumps(facts))


def _one_of_each_part() -> list[Run]:
    return [next(run for run in planned_runs(0) if run.part == part) for part in pack.PARTS]


class TestPlan:
    def test_the_same_seed_gives_the_same_runs(self) -> None:
        assert planned_runs(3) == planned_runs(3)
        assert planned_runs(3) != planned_runs(4)

    def test_there_are_at_least_sixteen_classes_of_six_runs(self) -> None:
        runs = Counter(run.workload for run in planned_runs())
        assert len(runs) >= 16
        assert min(runs.values()) >= 6
        assert len({run.container for run in planned_runs()}) == sum(runs.values())

    def test_about_half_of_the_classes_use_the_accelerator(self) -> None:
        assert 0.4 <= sum(workload.accelerator for workload in WORKLOADS) / len(WORKLOADS) <= 0.6

    def test_every_class_is_in_both_parts_and_a_third_is_replayed(self) -> None:
        runs = planned_runs()
        for part in pack.PARTS:
            assert {run.workload for run in runs if run.part == part} == {w.name for w in WORKLOADS}
        assert sum(run.part == "replay" for run in runs) / len(runs) == pytest.approx(1 / 3, abs=0.03)

    def test_the_first_round_covers_every_class(self) -> None:
        first = planned_runs()[: len(WORKLOADS)]
        assert {run.workload for run in first} == {workload.name for workload in WORKLOADS}

    def test_runs_of_a_class_differ_by_about_a_quarter(self) -> None:
        for run in planned_runs():
            workload = workload_named(run.workload)
            assert 0.75 <= run.rows / workload.rows <= 1.25
            assert run.threads in workload.threads
            assert run.epochs / workload.epochs <= 2.5

    def test_a_scaled_run_has_fewer_rows_but_is_the_same_run(self) -> None:
        run = _run()
        scaled = run.scaled(0.1)
        assert (scaled.container, scaled.seed, scaled.part) == (run.container, run.seed, run.part)
        assert scaled.rows == round(run.rows * 0.1)
        assert run.scaled(1.0) is run

    def test_a_scale_of_zero_is_refused(self) -> None:
        with pytest.raises(ValueError, match="above 0"):
            _run().scaled(0)

    def test_an_unknown_class_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(KeyError, match="lstm-torch"):
            workload_named("lstm-fortran")


class TestMeters:
    @pytest.mark.parametrize("kind", _meters())
    def test_cpu_of_the_job_and_of_its_ended_child_and_memory_are_measured(self, kind: type) -> None:
        meter: Meter = kind() if kind is TreeMeter else kind("test-uses")
        process = _start(meter, USES)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            before = float(process.stdout.readline())
            assert meter.cpu_seconds() == pytest.approx(before, abs=0.06)
            process.stdin.write("\n")
            process.stdin.flush()
            with_child = float(process.stdout.readline())
            assert with_child - before > 0.27
            assert meter.cpu_seconds() == pytest.approx(with_child, abs=0.06)
            memory_before = meter.memory_bytes()
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            assert meter.memory_bytes() - memory_before == pytest.approx(200 * MIB, rel=0.05)
            process.communicate("\n", timeout=60)
        finally:
            meter.close()
            process.communicate()

    @pytest.mark.parametrize("kind", _meters())
    def test_closing_a_meter_ends_the_job(self, kind: type) -> None:
        meter: Meter = kind() if kind is TreeMeter else kind("test-close")
        process = _start(meter, "import sys; print(1, flush=True); sys.stdin.read()")
        assert process.stdout is not None
        process.stdout.readline()
        meter.close()
        assert process.wait(timeout=60) == -9
        process.communicate()


@pytest.mark.real
class TestRecording:
    def test_a_run_is_sampled_every_second_with_its_stage_loss_and_step(self, tmp_path: Path) -> None:
        before = time.time()
        outcome = _recorder(tmp_path).record(_run())
        assert outcome.status == "done"
        rows = pq.read_table(tmp_path / f"{_run().container}.parquet").to_pylist()
        assert all(later["timestamp"] - earlier["timestamp"] == 1 for earlier, later in pairwise(rows))
        assert before <= rows[0]["timestamp"] <= before + 2
        assert (rows[0]["step"], math.isnan(rows[0]["loss"])) == (None, True)
        last = rows[-1]
        assert (last["stage"], last["step"]) == ("train", 7)
        assert sum(row["cpu_cores"] for row in rows[1:]) == pytest.approx(last["loss"], abs=0.05)
        assert 2 * MIB < last["memory_bytes"] < 60 * MIB

    def test_a_finished_run_is_skipped_and_one_with_other_sizes_is_not(self, tmp_path: Path) -> None:
        run = _run()
        _raw(tmp_path, run)
        recorder = _recorder(tmp_path, FAILS)
        assert recorder.record(run).status == "skipped"
        assert recorder.record(replace(run, rows=run.rows + 1)).status == "failed"

    def test_a_failing_run_is_tried_twice_and_reported_with_its_reason(self, tmp_path: Path) -> None:
        reported: list[Outcome] = []
        outcomes = record_all(_recorder(tmp_path, FAILS), [_run()], 2, reported.append)
        assert outcomes == reported
        assert (outcomes[0].status, outcomes[0].reason[:11]) == ("failed", "exit code 7")
        assert "no such data set" in (tmp_path / "logs" / f"{_run().container}-2.log").read_text()

    def test_a_run_that_exceeds_its_timeout_is_ended_and_fails(self, tmp_path: Path) -> None:
        recorder = _recorder(tmp_path, "import sys, time; time.sleep(600)", timeout_s=0.1)
        outcome = recorder._attempt(_run(), 1)
        assert outcome.reason == "longer than 0 s"
        assert outcome.duration_s < 60

    def test_a_stopped_recorder_leaves_no_partial_files(self, tmp_path: Path) -> None:
        recorder = _recorder(tmp_path)
        recorder.stop.set()
        assert recorder.record(_run()).reason == "interrupted"
        recorder._attempt(_run(), 1)
        assert list(tmp_path.glob("*.*")) == []

    def test_a_real_job_is_recorded_once_and_an_incomplete_recording_is_not_packed(self, tmp_path: Path) -> None:
        raw = tmp_path / "raw"
        done = invoke(NAME, "run", "-o", raw, "--quick", "--only", "text-sklearn", "--first", 1)
        assert done.exit_code == 0, done.stderr
        again = invoke(NAME, "run", "-o", raw, "--quick", "--only", "text-sklearn", "--first", 1)
        assert "text-sklearn-r01: skipped" in again.stderr
        refused = invoke(NAME, "pack", raw, "-o", tmp_path / "packed", "--quick")
        assert refused.exit_code == 1
        assert "text-sklearn-r02 is not recorded" in refused.stderr
        assert not (tmp_path / "packed").exists()
        table = pq.read_table(raw / "text-sklearn-r01.parquet")
        assert table.num_rows >= 1


class TestScript:
    @pytest.mark.real
    def test_ctrl_c_ends_the_jobs_and_leaves_no_partial_files(self, tmp_path: Path) -> None:
        command = [sys.executable, str(SCRIPTS / NAME), "run", "-o", str(tmp_path), "--quick", "--only", "text-sklearn"]
        recording = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        progress = tmp_path / "work" / "text-sklearn-r01" / "progress"
        deadline = time.monotonic() + 60
        while not progress.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        recording.send_signal(signal.SIGINT)
        errors = recording.communicate(timeout=120)[1]
        assert (recording.returncode, errors.splitlines()[-1]) == (1, "stopped; call again to continue")
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["machine.json"]
        assert list((tmp_path / "work").iterdir()) == []
        jobs = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
        assert jobs == []

    def test_the_plan_lists_every_run(self) -> None:
        listed = invoke(NAME, "plan").stdout
        assert all(run.container in listed for run in planned_runs())


class TestPack:
    def test_two_runs_become_two_files_in_the_normal_form(self, tmp_path: Path) -> None:
        runs = _one_of_each_part()
        for run in runs:
            _raw(tmp_path / "raw", run)
        recordings = [pack.read_recording(tmp_path / "raw", run) for run in runs]
        pack.pack(recordings, {"python": "3.11"}, tmp_path / "packed")
        for run in runs:
            table = pq.read_table(tmp_path / "packed" / f"{run.part}.parquet")
            assert table.schema.equals(pack.NORMAL_FORM)
            workload = workload_named(run.workload)
            first = table.to_pylist()[0]
            assert first["container"] == run.container
            assert first["cpu_request_cores"] == workload.cpu_request_cores
            assert first["memory_request_bytes"] == workload.memory_request_bytes
            assert first["step"] is None
        origin = orjson.loads((tmp_path / "packed" / "origin.json").read_bytes())
        assert [entry["part"] for entry in origin["runs"]] == list(pack.PARTS)
        assert origin["date"] == "2023-11-14"

    def test_one_part_alone_is_refused(self, tmp_path: Path) -> None:
        run = _one_of_each_part()[0]
        _raw(tmp_path / "raw", run)
        with pytest.raises(pack.PackError, match="'replay'"):
            pack.pack([pack.read_recording(tmp_path / "raw", run)], {}, tmp_path / "packed")

    def test_a_run_that_is_missing_failed_or_of_another_plan_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(pack.PackError, match="not recorded"):
            pack.read_recording(tmp_path, _run())
        _raw(tmp_path, _run(), status="failed")
        with pytest.raises(pack.PackError, match="failed"):
            pack.read_recording(tmp_path, _run())
        _raw(tmp_path, replace(_run(), rows=1))
        with pytest.raises(pack.PackError, match="other sizes"):
            pack.read_recording(tmp_path, _run())

    @pytest.mark.parametrize("bad", [[0.5, -0.1], [0.5, math.nan], [0.5]])
    def test_invalid_samples_are_refused(self, tmp_path: Path, bad: list[float]) -> None:
        _raw(tmp_path, _run(), cpu_cores=bad)
        with pytest.raises(pack.PackError, match=_run().container):
            pack.read_recording(tmp_path, _run())

    def test_a_folder_that_is_not_a_recording_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(pack.PackError, match="record_training run"):
            pack.read_machine_facts(tmp_path)
