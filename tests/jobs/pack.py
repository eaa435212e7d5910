"""Pack recordings: two Parquet files in the normal form, and a file with their origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.files import atomic_write, atomic_write_bytes
from tests.jobs.plan import Run, workload_named

PARTS = ("fit", "replay")
NODE = "recorder"

NORMAL_FORM = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("container", pa.string()),
        ("cpu_cores", pa.float32()),
        ("memory_bytes", pa.int64()),
        ("workload", pa.string()),
        ("node", pa.string()),
        ("cpu_request_cores", pa.float32()),
        ("memory_request_bytes", pa.int64()),
        ("loss", pa.float32()),
        ("step", pa.int32()),
        ("stage", pa.string()),
    ]
)


class PackError(Exception):
    """A recording cannot be packed; the message says which, and what to do."""


@dataclass(frozen=True)
class Recording:
    run: Run
    facts: dict[str, Any]
    samples: pa.Table


def read_recording(folder: Path, run: Run) -> Recording:
    """Read one finished run and check its samples.

    Raises PackError: if the run is missing, failed, was recorded with other sizes or seeds, or has invalid samples.
    """
    again = "run `record_training run` on the folder again"
    facts_path = folder / f"{run.container}.json"
    if not facts_path.exists():
        raise PackError(f"{run.container} is not recorded; {again}")
    facts: dict[str, Any] = orjson.loads(facts_path.read_bytes())
    if facts["status"] != "done":
        raise PackError(f"{run.container} failed ({facts['reason']}); {again}")
    if facts["run"] != asdict(run):
        raise PackError(f"{run.container} was recorded with other sizes or seeds than planned; {again}")
    samples = pq.read_table(folder / f"{run.container}.parquet")
    timestamps = samples["timestamp"].to_numpy()
    if len(timestamps) < 2 or np.any(np.diff(timestamps) < 1):
        raise PackError(f"{run.container} has too few samples, or times that do not increase; delete it and {again}")
    used = np.stack([samples["cpu_cores"].to_numpy(), samples["memory_bytes"].to_numpy()])
    if not np.isfinite(used).all() or (used < 0).any():
        raise PackError(f"{run.container} has negative or non-finite use; delete it and {again}")
    return Recording(run, facts, samples)


def read_machine_facts(folder: Path) -> dict[str, Any]:
    """Read the facts of the machine on which the raw recordings were made. Raises PackError: if the file is missing."""
    path = folder / "machine.json"
    if not path.exists():
        raise PackError(f"{path} is missing: is this a folder that `record_training run` wrote?")
    facts: dict[str, Any] = orjson.loads(path.read_bytes())
    return facts


def normal_form(recording: Recording) -> pa.Table:
    run, samples = recording.run, recording.samples
    workload = workload_named(run.workload)
    count = samples.num_rows
    columns = {
        "container": pa.repeat(run.container, count),
        "workload": pa.repeat(run.workload, count),
        "node": pa.repeat(NODE, count),
        "cpu_request_cores": pa.repeat(workload.cpu_request_cores, count),
        "memory_request_bytes": pa.repeat(workload.memory_request_bytes, count),
    }
    merged = {**{name: samples[name] for name in samples.column_names}, **columns}
    return pa.table({name: merged[name] for name in NORMAL_FORM.names}).cast(NORMAL_FORM)


def _run_origin(recording: Recording) -> dict[str, Any]:
    run, facts = recording.run, recording.facts
    workload = workload_named(run.workload)
    return {
        "container": run.container,
        "workload": run.workload,
        "framework": workload.framework,
        "accelerator_stand_in": workload.accelerator,
        "accelerator_wait_s": run.accelerator_wait_s,
        "threads": run.threads,
        "seed": run.seed,
        "rows": run.rows,
        "epochs": run.epochs,
        "steps_per_epoch": run.steps,
        "batch": run.batch,
        "duration_s": facts["duration_s"],
        "samples": recording.samples.num_rows,
        "part": run.part,
    }


def origin(recordings: Sequence[Recording], machine: dict[str, Any]) -> dict[str, Any]:
    began = min(recording.facts["started_unix_s"] for recording in recordings)
    return {
        "schema": 1,
        "what": "real training jobs on CPU, sampled every second; memory is the working set",
        "made_by": "scripts/record_training",
        "date": datetime.fromtimestamp(began, UTC).date().isoformat(),
        "plan_seed": recordings[0].run.plan_seed,
        "sample_every_s": 1,
        "measured_with": sorted({recording.facts["meter"] for recording in recordings}),
        "accelerator_stand_in": (
            "the host prepares and learns each batch on the CPU with a small model, then sleeps "
            "accelerator_wait_s as a host does while its accelerator computes"
        ),
        **machine,
        "container_hours": round(sum(r.samples.num_rows for r in recordings) / 3600, 3),
        "runs": [_run_origin(recording) for recording in recordings],
    }


def pack(recordings: Sequence[Recording], machine: dict[str, Any], output: Path) -> None:
    """Write `fit.parquet`, `replay.parquet` and `origin.json` into `output`, each under a temporary name first.

    `machine`: facts of machine, versions and parallel jobs (`machine.json` of the raw folder).

    Raises PackError: if a part would be empty.
    """
    output.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        tables = [normal_form(recording) for recording in recordings if recording.run.part == part]
        if not tables:
            raise PackError(f"no recorded run belongs to the part {part!r}; record more runs first")
        whole, level = pa.concat_tables(tables), {"compression": "zstd", "compression_level": 15}
        with atomic_write(output / f"{part}.parquet") as aside:
            pq.write_table(whole, aside, row_group_size=64_000, **level)
    atomic_write_bytes(output / "origin.json", orjson.dumps(origin(recordings, machine), option=orjson.OPT_INDENT_2))
