"""Usage of containers over time on a background of phases, for `phasewise dry-run` and `phasewise research phases`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, Timeline, UsageSeries
from recommender.plots.style import SETTINGS, SOFT, grid, new_figure, save
from recommender.report.palette import OURS, USAGE, look_of, phase_colour
from recommender.report.texts import printable, shortened
from recommender.report.timeline_data import (
    NOT_DRAWN,
    UNITS,
    allocation_at,
    change_indices,
    downsampled_indices,
    phase_spans,
    violation_spans,
)

DEFAULT_POLICIES = (OURS, "vpa", "histogram", "static")  # policies drawn if present; more lines would hide each other

_LABELS = ("CPU, cores", "memory, GiB")
_TIME_UNITS = ((86400.0, "days", 2.0), (3600.0, "hours", 2.0), (60.0, "minutes", 3.0), (1.0, "seconds", 0.0))
_MAX_POINTS = 4000


def draw_timeline(timeline: Timeline, path: str | Path) -> None:
    """Draw one container of a dry run under `DEFAULT_POLICIES`, or its first three; CPU is above memory."""
    names, times = [name for name in timeline.decisions if name != NOT_DRAWN], timeline.timestamps
    chosen = [name for name in DEFAULT_POLICIES if name in names] or names[:3]
    with rc_context(SETTINGS):
        figure = new_figure(5.6)
        figure.suptitle(shortened(printable(timeline.container), 90), x=0.01, ha="left", fontweight="bold", fontsize=11)
        panels = figure.subplots(2, 1, sharex=True)
        unit, label = _time_unit([times])
        for resource in (CPU, MEMORY):
            _plot_usage(panels[resource], times, timeline.usage, timeline.labels, resource, unit)
            for row, name in enumerate(chosen):
                _plot_allocation(panels[resource], timeline, resource, name, row, unit)
            panels[resource].tick_params(axis="x", pad=4 + 4 * len(chosen))
        panels[MEMORY].set_xlabel(f"{label} (bars below a panel: use above allocation x 1.05)")
        handles: list[Line2D | Patch] = [Line2D([], [], color=USAGE.light, linewidth=0.9, label="used")]
        for name in chosen:
            look = look_of(name, names)
            handles.append(Line2D([], [], color=look.light, linestyle=_dash(look.dash), label=name))
        handles += _phase_legend(() if timeline.labels is None else [timeline.labels])
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5)
        save(figure, path)


def traces_figure(traced: Sequence[tuple[UsageSeries, IntArray]]) -> Figure:
    """One row per container, CPU beside memory, on a background of phases."""
    unit, label = _time_unit(series.timestamps for series, _ in traced)
    with rc_context(SETTINGS):
        figure = new_figure(0.9 + 1.5 * len(traced))
        rows = figure.subplots(len(traced), 2, squeeze=False)
        for (series, labels), panels in zip(traced, rows, strict=True):
            for resource in (CPU, MEMORY):
                _plot_usage(panels[resource], series.timestamps, series.usage, labels, resource, unit)
            panels[CPU].set_title(shortened(printable(series.container), 60), fontsize=9)
        for axes in rows[-1]:
            axes.set_xlabel(label)
        handles = _phase_legend([labels for _, labels in traced])
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5)
    return figure


def draw_variance(traced: Sequence[tuple[UsageSeries, IntArray]], path: str | Path) -> None:
    """Draw box plots of CPU and memory per phase (whiskers at 5 % and 95 %), with the phase's share of time."""
    usage = np.concatenate([series.usage[series.present] for series, _ in traced]) / UNITS
    labels = np.concatenate([labels[series.present] for series, labels in traced])
    phases = [int(phase) for phase in np.unique(labels)]
    shares = [f"{phase if phase >= 0 else 'unknown'}\n{np.mean(labels == phase):.0%}" for phase in phases]
    with rc_context(SETTINGS):
        figure = new_figure(3.6)
        panels = figure.subplots(1, 2)
        for resource in (CPU, MEMORY):
            axes = panels[resource]
            drawn = axes.boxplot(
                [usage[labels == phase, resource] for phase in phases],
                whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6, medianprops={"color": USAGE.light},
            )  # fmt: skip
            for box, phase in zip(drawn["boxes"], phases, strict=True):
                box.set(**{"edgecolor": SOFT} | _fill(phase))
            axes.set(title=f"{_LABELS[resource]} (whiskers: 5 % and 95 %)", xlabel="phase and its share of time")
            axes.set_xticks(range(1, len(phases) + 1), shares)
            grid(axes, "y")
        save(figure, path)


def _plot_usage(
    axes: Axes, timestamps: IntArray, usage: FloatArray, labels: IntArray | None, resource: int, unit: float
) -> None:
    """Plot usage of one resource on a background of phases."""
    for begin, end, phase in () if labels is None else phase_spans(timestamps, labels):
        axes.axvspan(begin / unit, end / unit, linewidth=0, zorder=0, **_fill(phase))
    since, used = (timestamps - timestamps[0]) / unit, usage[:, resource] / UNITS[resource]
    kept = downsampled_indices(used, _MAX_POINTS)
    known = np.pad(~np.isnan(used[kept]), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]  # between two gaps, where there is no line
    drawn = {"color": USAGE.light, "linewidth": 0.9, "marker": ".", "markersize": 2, "markevery": alone}
    axes.plot(since[kept], used[kept], zorder=3, **drawn)
    top = float(np.nanmax(used)) if np.isfinite(used).any() else 0.0
    axes.set(xlim=(0, max(float(since[-1]), 1e-9)), ylim=(0, (top or 1.0) * 1.06), ylabel=_LABELS[resource])
    grid(axes, "y")


def _fill(phase: int) -> dict[str, Any]:
    """Patch properties of a phase's background; the unknown phase is hatched."""
    if phase >= 0:
        return {"facecolor": phase_colour(phase)}
    return {"facecolor": "white", "edgecolor": "#cccccc", "hatch": "///"}


def _plot_allocation(axes: Axes, timeline: Timeline, resource: int, name: str, row: int, unit: float) -> None:
    """Plot a policy's allocation, and ticks in its row below the panel where use exceeds allocation x 1.05."""
    times, allocation = timeline.decisions[name]
    look = look_of(name, list(timeline.decisions))
    changed = change_indices(times, allocation, _MAX_POINTS)
    x = np.append(times[changed], timeline.timestamps[-1]) - timeline.timestamps[0]
    y = np.append(allocation[changed, resource], allocation[-1, resource]) / UNITS[resource]
    axes.step(x / unit, y, where="post", color=look.light, linestyle=_dash(look.dash), zorder=4)
    axes.set_ylim(0, max(axes.get_ylim()[1], float(y.max()) * 1.06))
    allocated = allocation_at(timeline.timestamps, times, allocation)[:, resource]
    for begin, end in violation_spans(timeline.timestamps, timeline.usage[:, resource], allocated, 400):
        axes.plot(
            [begin / unit, end / unit], [-0.035 - 0.03 * row] * 2, color=look.light, linewidth=3, clip_on=False,
            solid_capstyle="butt", transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def _time_unit(times: Iterable[IntArray]) -> tuple[float, str]:
    """Length in seconds of the time unit that suits the longest series, and the label of the axis."""
    length_s = max(float(one[-1] - one[0]) for one in times)
    unit, name = next((unit, name) for unit, name, least in _TIME_UNITS if length_s >= least * unit)
    return unit, f"{name} since the first sample"


def _phase_legend(labels: Sequence[IntArray]) -> list[Patch]:
    """Legend entries of the phases present."""
    seen = sorted({int(phase) for one in labels for phase in np.unique(one)})
    frame: dict[str, Any] = {"edgecolor": SOFT, "linewidth": 0.4}
    return [Patch(**frame | _fill(phase), label=f"phase {phase}" if phase >= 0 else "phase unknown") for phase in seen]


def _dash(lengths: tuple[float, ...]) -> tuple[float, tuple[float, ...]] | None:
    return (0, tuple(length / 2 for length in lengths)) if lengths else None
