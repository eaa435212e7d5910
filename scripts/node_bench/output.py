"""Table of bench_node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from benches import Columns, table_of
from node_bench.figures import Figures

OF_A_ROW: Columns = {
    "batch finished after": lambda row: f"{row.batch_s:.0f} s",
    "OOM kills / restarts / evictions": lambda row: f"{row.oom_kills} / {row.restarts} / {row.evictions}",
    "duration of a job, mean (max)": lambda row: f"{row.job_mean_s:.0f} s ({row.job_max_s:.0f} s)",
    "jobs at a time": lambda row: f"{row.jobs_at_a_time:.1f}",
    "CPU / memory slack": lambda row: f"{row.cpu.slack_ratio:.1f} / {row.memory.slack_ratio:.1f}",
    "CPU / memory violations, seconds": lambda row: f"{row.cpu.violation_ratio:.1%} / {row.memory.violation_ratio:.1%}",
    "CPU / memory violations, samples": lambda row: (
        f"{row.cpu_sampled.violation_ratio:.1%} / {row.memory_sampled.violation_ratio:.1%}"
    ),
    "stages raised ahead / late / never": lambda row: f"{row.rises.ahead} / {row.rises.late} / {row.rises.never}",
    "ahead by": lambda row: f"{row.rises.lead_s:.0f} s" if row.rises.ahead else "-",
}


def table(rows: Sequence[Figures], facts: Mapping[str, Any]) -> Table:
    batch, taught = facts["batch"], facts["ours"]["taught"]
    title = f"{batch['jobs']} {batch['workload']} jobs on one node; 'class seen' means after {taught} jobs of it"
    return table_of(title, "requests set by", {row.title: row for row in rows}, OF_A_ROW)
