"""Run the planned jobs in parallel, and sample each every second; finished runs are skipped."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.files import atomic_write, atomic_write_bytes
from tests.jobs.job import thread_environment
from tests.jobs.plan import Run
from tests.jobs.sampler import Meter, TreeMeter, new_meter

LATE_S = 0.5
"""A sample taken later than this after its second is dropped."""
TIMEOUT_S = 330.0
ATTEMPTS = 2
INTERRUPTED = "interrupted"
ENTER_AND_RUN = 'for f in $ENTRY_FILES; do echo $$ > "$f" || exit 97; done; exec "$@"'
"""The shell joins the control groups before the job starts, so that all of its use is counted."""

SAMPLE_SCHEMA = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("cpu_cores", pa.float32()),
        ("memory_bytes", pa.int64()),
        ("loss", pa.float32()),
        ("step", pa.int32()),
        ("stage", pa.string()),
    ]
)


@dataclass(frozen=True)
class Outcome:
    container: str
    status: str
    """`done`, `failed` or `skipped`."""
    duration_s: float
    reason: str = ""


def _read_progress(path: Path) -> tuple[str, int | None, float]:
    """Latest stage, step and loss of the job."""
    try:
        stage, step, loss = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return "start", None, math.nan
    return stage, None if step == "-" else int(step), float(loss)


def _sample_until_end(
    process: subprocess.Popen[bytes], meter: Meter, progress_path: Path, stop: threading.Event, timeout_s: float
) -> tuple[list[dict[str, Any]], str]:
    """Sample a running job on whole seconds; return the samples and, if it was stopped, why."""
    started = time.monotonic()
    cpu_before, read_at = meter.cpu_seconds(), started
    unix_offset = time.time() - started
    timestamp = math.floor(started + unix_offset) + 1
    samples: list[dict[str, Any]] = []
    while True:
        if stop.wait(max(0.0, timestamp - unix_offset - time.monotonic())):
            return samples, INTERRUPTED
        if process.poll() is not None:
            return samples, ""
        if time.monotonic() - started > timeout_s:
            return samples, f"longer than {timeout_s:.0f} s"
        cpu = meter.cpu_seconds()
        now = time.monotonic()
        if now + unix_offset - timestamp < LATE_S and now - read_at > LATE_S:
            cores, memory = (cpu - cpu_before) / (now - read_at), meter.memory_bytes()
            stage, step, loss = _read_progress(progress_path)
            samples.append(dict(zip(SAMPLE_SCHEMA.names, (timestamp, cores, memory, loss, step, stage), strict=True)))
            cpu_before, read_at = cpu, now
        timestamp = max(timestamp + 1, math.floor(now + unix_offset) + 1)


def job_command(run: Run, scale: float) -> list[str]:
    command = [sys.executable, "-m", "tests.jobs.job", "--class", run.workload, "--run", str(run.number)]
    return [*command, "--seed", str(run.plan_seed), "--scale", str(scale)]


class Recorder:
    """Records runs into a folder: `<container>.parquet` with the samples, `<container>.json` when it is done.

    `scale`: Factor on data and steps of every job.
    `timeout_s`: A job that takes longer is killed and counts as failed.
    `command`: (run, scale) -> command of a job; `--progress` and `--folder` are appended.
    """

    def __init__(
        self,
        folder: Path,
        scale: float = 1.0,
        timeout_s: float = TIMEOUT_S,
        command: Callable[[Run, float], list[str]] = job_command,
    ) -> None:
        self.folder, self.scale, self.timeout_s, self.command = folder, scale, timeout_s, command
        self.stop = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)

    def finished(self, run: Run) -> bool:
        """Whether this run (same seed and sizes) is already recorded."""
        try:
            facts = orjson.loads((self.folder / f"{run.container}.json").read_bytes())
        except (OSError, ValueError):
            return False
        return bool(facts["status"] == "done" and facts["run"] == asdict(run.scaled(self.scale)))

    def record(self, run: Run) -> Outcome:
        """Record one run; retry once if it fails."""
        if self.finished(run):
            return Outcome(run.container, "skipped", 0.0)
        outcome = Outcome(run.container, "failed", 0.0, INTERRUPTED)
        for attempt in range(1, ATTEMPTS + 1):
            if self.stop.is_set() or outcome.status == "done":
                break
            outcome = self._attempt(run, attempt)
        return outcome

    def _attempt(self, run: Run, attempt: int) -> Outcome:
        """Run the job once; write its samples if it succeeds, and the facts unless it is interrupted."""
        work = self.folder / "work" / run.container
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        log_path = self.folder / "logs" / f"{run.container}-{attempt}.log"
        log_path.parent.mkdir(exist_ok=True)
        meter = new_meter(run.container)
        began, date = time.monotonic(), time.time()
        try:
            with log_path.open("wb") as log:
                samples, reason = self._watch(run, work, meter, log)
        finally:
            meter.close()
            shutil.rmtree(work, ignore_errors=True)
        duration_s = round(time.monotonic() - began, 2)
        outcome = Outcome(run.container, "failed" if reason else "done", duration_s, reason)
        if not reason:
            with atomic_write(self.folder / f"{run.container}.parquet") as aside:
                pq.write_table(pa.Table.from_pylist(samples, schema=SAMPLE_SCHEMA), aside, compression="zstd")
        if reason != INTERRUPTED:
            facts = {
                "status": outcome.status,
                "reason": reason,
                "attempt": attempt,
                "started_unix_s": round(date, 3),
                "duration_s": duration_s,
                "meter": meter.source,
                "run": asdict(run.scaled(self.scale)),
            }
            _write_json(self.folder / f"{run.container}.json", facts)
        return outcome

    def _watch(self, run: Run, work: Path, meter: Meter, log: IO[bytes]) -> tuple[list[dict[str, Any]], str]:
        """Sample the job to its end, in a session of its own and the meter's groups; return why if it failed."""
        command = [*self.command(run, self.scale), "--progress", str(work / "progress"), "--folder", str(work)]
        environment = {
            **os.environ,
            **thread_environment(run.threads),
            "ENTRY_FILES": " ".join(map(str, meter.entry_files)),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        process = subprocess.Popen(
            ["sh", "-c", ENTER_AND_RUN, "sh", *command],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        if isinstance(meter, TreeMeter):
            meter.root = psutil.Process(process.pid)
        reason = "the recorder failed"
        try:
            samples, reason = _sample_until_end(process, meter, work / "progress", self.stop, self.timeout_s)
        finally:
            # Also after success: child processes must not keep running beside the next job.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        return samples, reason or ("" if code == 0 else f"exit code {code}, see logs/{Path(log.name).name}")


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    atomic_write_bytes(path, orjson.dumps(facts, option=orjson.OPT_INDENT_2))


def record_all(
    recorder: Recorder, runs: Sequence[Run], parallel: int, on_outcome: Callable[[Outcome], None]
) -> list[Outcome]:
    """Record runs in order, `parallel` at a time; call `on_outcome` as each ends.

    On Ctrl-C running jobs are killed, no partial files are left, and KeyboardInterrupt is raised.
    """
    _write_json(recorder.folder / "machine.json", {"jobs_at_a_time": parallel, **machine_facts()})
    outcomes: list[Outcome] = []

    def one(run: Run) -> None:
        outcome = recorder.record(run)
        outcomes.append(outcome)
        on_outcome(outcome)

    with ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(one, run) for run in runs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            recorder.stop.set()
            for future in futures:
                future.cancel()
            raise
    return outcomes


LIBRARIES = ("torch", "jax", "jaxlib", "scikit-learn", "scipy", "numpy", "pandas", "pyarrow", "psutil")


def machine_facts() -> dict[str, Any]:
    """Facts of machine and Python that readers of a recording need."""
    processor, versions = platform.machine(), {}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(named, processor)
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "machine": {
            "cpu": processor,
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        },
        "python": platform.python_version(),
        "libraries": versions,
    }
