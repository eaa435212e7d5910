"""Table and charts of the rows: use of the jobs below the sum of their requests, and one job of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from rich.table import Table

from benchmarks.benches import Columns, table_of
from benchmarks.node.figures import Figures
from recommender.base.units import BYTES_PER_GIB
from recommender.plots.style import INK, SETTINGS, SOFT, TARGET, grid, new_figure, save

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


_ROW_INCHES, _TITLE = 2.3, 8


def draw(rows: Sequence[Figures], path: Path, node_cores: float, node_bytes: float) -> None:
    """Draw a line of panels per row: CPU and memory of the batch, and CPU of one job."""
    with rc_context(SETTINGS):
        figure = new_figure(_ROW_INCHES * len(rows) + 0.4)
        panels = figure.subplots(len(rows), 3, squeeze=False, sharex="col")
        most_cores = max(max([*row.one_job.cpu_cores, *row.one_job.cpu_request_cores], default=1.0) for row in rows)
        for (cpu, memory, alone), row in zip(panels, rows, strict=True):
            line = row.timeline
            _one_job(alone, row, most_cores)
            _panel(cpu, row, line.cpu_cores, line.cpu_request_cores, node_cores, 1.0)
            _panel(memory, row, line.memory_bytes, line.memory_request_bytes, node_bytes, BYTES_PER_GIB)
            killed_s = line.oom_kills_s
            memory.plot(killed_s, [node_bytes / BYTES_PER_GIB] * len(killed_s), "x", color=TARGET, label="OOM kill")
            cpu.set_ylabel("CPU, cores")
            memory.set_ylabel("memory, GiB")
            cpu.set_title(row.title, fontsize=_TITLE)
            killed = f", {row.oom_kills} OOM kills" if row.oom_kills else ""
            memory.set_title(f"{row.batch_s:.0f} s, {row.jobs_at_a_time:.1f} jobs at a time{killed}", fontsize=_TITLE)
        for axes in panels[-1, :2]:
            axes.set(
                xlabel="seconds since the first job was submitted", xlim=(0, 1.02 * max(row.batch_s for row in rows))
            )
        panels[-1, 2].set(xlabel="seconds since the last job started")
        handles = panels[0][1].get_lines()
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        save(figure, path)


def _panel(
    axes: Axes, row: Figures, used: dict[str, list[float]], requested: list[float], node: float, unit: float
) -> None:
    since = row.timeline.since_s
    layers = np.array([used[job] for job in sorted(used)]) / unit
    colours = colormaps["tab20"](np.linspace(0, 1, 20))
    if len(layers):
        axes.stackplot(since, layers, colors=colours[: len(layers)], linewidth=0, alpha=0.85)
    axes.step(since, np.array(requested) / unit, where="post", color=INK, linewidth=1.0, label="sum of requests")
    axes.axhline(node / unit, color=TARGET, linewidth=1.0, linestyle="--", label="node")
    axes.axvline(row.batch_s, color=SOFT, linewidth=0.8, linestyle=":", label="batch finished")
    axes.set_ylim(0, 1.15 * node / unit)
    grid(axes, "y")


def _one_job(axes: Axes, row: Figures, most_cores: float) -> None:
    job = row.one_job
    axes.fill_between(job.since_s, job.cpu_cores, step="post", color=SOFT, alpha=0.5, linewidth=0)
    axes.step(job.since_s, job.cpu_request_cores, where="post", color=INK, linewidth=1.0)
    room_s = 0.04 * (job.since_s[-1] if job.since_s else 0.0)
    for (since_s, stage), (until_s, _) in pairwise([*job.stages, (math.inf, "")]):
        axes.axvline(since_s, color=SOFT, linewidth=0.6, linestyle=":")
        if until_s - since_s > room_s:  # else the names would overlap
            axes.text(since_s, 1.12 * most_cores, f" {stage}", rotation=90, va="top", fontsize=6, color=SOFT)
    axes.set_ylim(0, 1.15 * most_cores)
    axes.set_title(_raised(row), fontsize=_TITLE)
    grid(axes, "y")


def _raised(row: Figures) -> str:
    found = row.rises
    if not found.stages:
        return "no stage to raise for"
    by = f", {found.lead_s:.0f} s" if found.ahead else ""
    return f"{found.ahead} of {found.stages} stages raised ahead{by}"
