"""The rows over time: what the jobs used, stacked, under what they had requested together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes

from node_bench.figures import Figures
from recommender.plots.style import INK, SETTINGS, SOFT, TARGET, grid, new_figure, save

GIB = 2.0**30
_ROW_INCHES = 2.3


def draw(rows: Sequence[Figures], path: Path, node_cores: float, node_bytes: float) -> None:
    """Draw every row: CPU at the left, memory at the right, all on the same clock."""
    with rc_context(SETTINGS):
        figure = new_figure(_ROW_INCHES * len(rows) + 0.4)
        panels = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
        for (cpu, memory), row in zip(panels, rows, strict=True):
            line = row.timeline
            _panel(cpu, row, line.cpu_cores, line.cpu_request_cores, node_cores, 1.0)
            _panel(memory, row, line.memory_bytes, line.memory_request_bytes, node_bytes, GIB)
            killed_s = line.oom_kills_s
            memory.plot(killed_s, [node_bytes / GIB] * len(killed_s), "x", color=TARGET, label="OOM kill")
            cpu.set(ylabel="CPU, cores", title=row.title)
            memory.set(ylabel="memory, GiB", title=_facts(row))
        for axes in panels[-1]:
            axes.set(
                xlabel="seconds since the first job was submitted", xlim=(0, 1.02 * max(row.batch_s for row in rows))
            )
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
    axes.step(since, np.array(requested) / unit, where="post", color=INK, linewidth=1.0, label="requested together")
    axes.axhline(node / unit, color=TARGET, linewidth=1.0, linestyle="--", label="the node")
    axes.axvline(row.batch_s, color=SOFT, linewidth=0.8, linestyle=":", label="batch done")
    axes.set_ylim(0, 1.15 * node / unit)
    grid(axes, "y")


def _facts(row: Figures) -> str:
    killed = f", {row.oom_kills} OOM kills" if row.oom_kills else ""
    return f"{row.batch_s:.0f} s, {row.jobs_at_a_time:.1f} jobs at a time{killed}"
