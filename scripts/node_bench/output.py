"""The bench's table and recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from benches import Columns, table_of
from node_bench.batch import Seen
from node_bench.figures import Figures
from node_bench.objects import CLASS

OF_A_ROW: Columns = {
    "batch done after": lambda row: f"{row.batch_s:.0f} s",
    "OOM kills / restarts / evictions": lambda row: f"{row.oom_kills} / {row.restarts} / {row.evictions}",
    "a job takes, mean (max)": lambda row: f"{row.job_mean_s:.0f} s ({row.job_max_s:.0f} s)",
    "jobs at a time": lambda row: f"{row.jobs_at_a_time:.1f}",
    "CPU / memory slack": lambda row: f"{row.cpu.slack_ratio:.1f} / {row.memory.slack_ratio:.1f}",
    "CPU / memory violations": lambda row: f"{row.cpu.violation_ratio:.1%} / {row.memory.violation_ratio:.1%}",
    "of means of 10 s": lambda row: f"{row.cpu_as_told.violation_ratio:.1%} / {row.memory_as_told.violation_ratio:.1%}",
    "stages raised for ahead / late / never": lambda row: f"{row.rises.ahead} / {row.rises.late} / {row.rises.never}",
    "ahead by": lambda row: f"{row.rises.lead_s:.0f} s" if row.rises.ahead else "-",
}


def table(rows: Sequence[Figures], facts: Mapping[str, Any]) -> Table:
    """The rows side by side; the title says of what batch."""
    batch, taught = facts["batch"], facts["ours"]["taught"]
    title = f"{batch['jobs']} {batch['workload']} jobs on one node; `class seen` is after {taught} jobs"
    return table_of(title, "requests set by", {row.title: row for row in rows}, OF_A_ROW)


def write_recording(path: Path, seen: Sequence[Seen], node: str) -> int:
    """The use of every finished job in the normal form, with the requests that were in force; returns how many jobs."""
    parts, jobs = [], 0
    for batch in seen:
        done = {run.name for run in batch.runs if run.done}
        jobs += len(done)
        frame = pd.DataFrame([asdict(sample) for sample in batch.samples if sample.job in done])
        parts.append(frame.assign(namespace=batch.namespace, container="main", node=node, workload=CLASS))
    frame = pd.concat(parts).rename(columns={"at_s": "timestamp"}).drop(columns="job")
    aside = path.with_suffix(".part")
    frame.to_parquet(aside, index=False)
    aside.replace(path)
    return jobs
