"""The bench's table, JSON and recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from rich.table import Table

from node_bench.batch import Seen
from node_bench.figures import Figures
from node_bench.objects import CLASS


def table(rows: Sequence[Figures], facts: Mapping[str, Any]) -> Table:
    """The rows side by side; the title says of what batch."""
    batch, taught = facts["batch"], facts["ours"]["taught"]
    title = f"{batch['jobs']} {batch['workload']} jobs on one node; `class seen` is after {taught} jobs"
    made = Table(title=title, title_justify="left")
    made.add_column("requests set by")
    columns = (
        "batch done after",
        "OOM kills / restarts / evictions",
        "a job takes, mean (max)",
        "jobs at a time",
        "CPU / memory slack",
        "CPU / memory violations",
        "of means of 10 s",
        "stages raised for ahead / late / never",
        "ahead by",
    )
    for column in columns:
        made.add_column(column, justify="right")
    for row in rows:
        made.add_row(
            row.title,
            f"{row.batch_s:.0f} s",
            f"{row.oom_kills} / {row.restarts} / {row.evictions}",
            f"{row.job_mean_s:.0f} s ({row.job_max_s:.0f} s)",
            f"{row.jobs_at_a_time:.1f}",
            f"{row.cpu.slack_ratio:.1f} / {row.memory.slack_ratio:.1f}",
            f"{row.cpu.violation_ratio:.1%} / {row.memory.violation_ratio:.1%}",
            f"{row.cpu_as_told.violation_ratio:.1%} / {row.memory_as_told.violation_ratio:.1%}",
            f"{row.rises.ahead} / {row.rises.late} / {row.rises.never}",
            f"{row.rises.lead_s:.0f} s" if row.rises.ahead else "-",
        )
    return made


def write_json(path: Path, facts: Mapping[str, Any], rows: Sequence[Figures]) -> None:
    """All figures, each job and the timelines, for programs."""
    content = {**facts, "rows": [asdict(row) for row in rows]}
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))


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
