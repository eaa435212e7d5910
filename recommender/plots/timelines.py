"""Containers over time, with their phases behind: as a dry run replayed them, and as `phasewise phases` tells them.

Traces and the spread of usage in each phase are the pictures of AI4DL's package, for any model and data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from recommender.plots.style import SETTINGS, SOFT, grid, new_figure, save
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, FloatArray, IntArray, PhaseTrace, Timeline, UsageSeries
from recommender.report.palette import OURS, USAGE, look_of, phase_colour
from recommender.report.terminal import printable, shortened
from recommender.report.timeline_data import allocation_at, changes, runs_of_labels, telling_points, violation_spans
from recommender.units import BYTES_PER_GIB

DRAWN = (OURS, "vpa", "histogram", "static")
"""More lines than these hide each other; the page lets its reader choose."""

_UNITS = (1.0, BYTES_PER_GIB)
_LABELS = ("CPU, cores", "memory, GiB")
_TIME_UNITS = ((86400.0, "days", 2.0), (3600.0, "hours", 2.0), (60.0, "minutes", 3.0), (1.0, "seconds", 0.0))
_MOST_POINTS = 4000


def draw_timeline(timeline: Timeline, path: str | Path) -> None:
    """Draw one container of a dry run, CPU above memory: ours, the default VPA and what was declared.

    Where none of these was run, the first three policies are drawn; without phases the ground stays white.
    """
    chosen = [name for name in DRAWN if name in timeline.decisions] or list(timeline.decisions)[:3]
    names, times = list(timeline.decisions), timeline.timestamps
    with rc_context(SETTINGS):
        figure = new_figure(5.6)
        figure.suptitle(shortened(printable(timeline.container), 90), x=0.01, ha="left", fontweight="bold", fontsize=11)
        panels = figure.subplots(2, 1, sharex=True)
        unit, words = _time_unit([times])
        for resource in (CPU, MEMORY):
            _use(panels[resource], times, timeline.usage, timeline.labels, resource, unit)
            for row, name in enumerate(chosen):
                _reservation(panels[resource], timeline, resource, name, row, unit)
            panels[resource].tick_params(axis="x", pad=4 + 4 * len(chosen))
        panels[MEMORY].set_xlabel(words)
        handles: list[Line2D | Patch] = [Line2D([], [], color=USAGE.light, linewidth=0.9, label="used")]
        for name in chosen:
            look = look_of(name, names)
            handles.append(Line2D([], [], color=look.light, linestyle=_dash(look.dash), label=name))
        handles += _shades(() if timeline.labels is None else [timeline.labels])
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5)
        save(figure, path)


def draw_traces(traced: Sequence[tuple[UsageSeries, PhaseTrace]], path: str | Path) -> None:
    """A row for each container, CPU beside memory, phases as the ground."""
    unit, words = _time_unit(series.timestamps for series, _ in traced)
    with rc_context(SETTINGS):
        figure = new_figure(0.9 + 1.5 * len(traced))
        rows = figure.subplots(len(traced), 2, squeeze=False)
        for (series, trace), panels in zip(traced, rows, strict=True):
            for resource in (CPU, MEMORY):
                _use(panels[resource], series.timestamps, series.usage, trace.labels, resource, unit)
            panels[CPU].set_title(shortened(printable(series.container), 60), fontsize=9)
        for axes in rows[-1]:
            axes.set_xlabel(words)
        handles = _shades([trace.labels for _, trace in traced])
        figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5)
        save(figure, path)


def draw_variance(traced: Sequence[tuple[UsageSeries, PhaseTrace]], path: str | Path) -> None:
    """Boxes (quartiles, whiskers at 5 % and 95 %) of CPU and memory in each phase, with each phase's share of time."""
    usage = np.concatenate([series.usage[series.present] for series, _ in traced]) / _UNITS
    labels = np.concatenate([trace.labels[series.present] for series, trace in traced])
    phases = [int(phase) for phase in np.unique(labels) if phase != UNKNOWN_PHASE]
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
                box.set(facecolor=phase_colour(phase), edgecolor=SOFT)
            axes.set(title=_LABELS[resource], xlabel="phase and its share of time")
            axes.set_xticks(range(1, len(phases) + 1), [f"{phase}\n{np.mean(labels == phase):.0%}" for phase in phases])
            grid(axes, "y")
        save(figure, path)


def _use(
    axes: Axes, timestamps: IntArray, usage: FloatArray, labels: IntArray | None, resource: int, unit: float
) -> None:
    """The line of what was used, with the phases as its ground."""
    for begin, end, phase in () if labels is None else runs_of_labels(timestamps, labels):
        axes.axvspan(begin / unit, end / unit, linewidth=0, zorder=0, **_shade(phase))
    since, used = (timestamps - timestamps[0]) / unit, usage[:, resource] / _UNITS[resource]
    kept = telling_points(used, _MOST_POINTS)
    axes.plot(since[kept], used[kept], color=USAGE.light, linewidth=0.9, zorder=3)
    top = float(np.nanmax(used)) if np.isfinite(used).any() else 0.0
    axes.set(xlim=(0, max(float(since[-1]), 1e-9)), ylim=(0, (top or 1.0) * 1.06), ylabel=_LABELS[resource])
    grid(axes, "y")


def _shade(phase: int) -> dict[str, Any]:
    """The ground of a phase; of the unknown one it is hatched."""
    if phase >= 0:
        return {"facecolor": phase_colour(phase)}
    return {"facecolor": "white", "edgecolor": "#cccccc", "hatch": "///"}


def _reservation(axes: Axes, timeline: Timeline, resource: int, name: str, row: int, unit: float) -> None:
    """What a policy reserved, and ticks in its row under the panel where use is above that x 1.05."""
    times, allocation = timeline.decisions[name]
    look = look_of(name, list(timeline.decisions))
    moved = changes(times, allocation, _MOST_POINTS)
    x = np.append(times[moved], timeline.timestamps[-1]) - timeline.timestamps[0]
    y = np.append(allocation[moved, resource], allocation[-1, resource]) / _UNITS[resource]
    axes.step(x / unit, y, where="post", color=look.light, linestyle=_dash(look.dash), zorder=4)
    axes.set_ylim(0, max(axes.get_ylim()[1], float(y.max()) * 1.06))
    held = allocation_at(timeline.timestamps, times, allocation)[:, resource]
    for begin, end in violation_spans(timeline.timestamps, timeline.usage[:, resource], held, 400):
        axes.plot(
            [begin / unit, end / unit], [-0.035 - 0.03 * row] * 2, color=look.light, linewidth=3, clip_on=False,
            solid_capstyle="butt", transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def _time_unit(times: Iterable[IntArray]) -> tuple[float, str]:
    """Seconds of the unit in which the longest of these reads best, and what the axis is called."""
    length_s = max(float(one[-1] - one[0]) for one in times)
    unit, name = next((unit, name) for unit, name, least in _TIME_UNITS if length_s >= least * unit)
    return unit, f"{name} since the first sample"


def _shades(labels: Sequence[IntArray]) -> list[Patch]:
    """What the grounds mean."""
    seen = sorted({int(phase) for one in labels for phase in np.unique(one)})
    frame: dict[str, Any] = {"edgecolor": SOFT, "linewidth": 0.4}
    return [Patch(**frame | _shade(phase), label=f"phase {phase}" if phase >= 0 else "phase unknown") for phase in seen]


def _dash(lengths: tuple[float, ...]) -> tuple[float, tuple[float, ...]] | None:
    return (0, tuple(length / 2 for length in lengths)) if lengths else None
