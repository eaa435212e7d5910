"""One container over time: use, what policies reserved, phases behind, and where use went above the reservation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from recommender.plots.style import SETTINGS, SOFT, grid, new_figure, save
from recommender.records import CPU, MEMORY, Timeline
from recommender.report.palette import OURS, USAGE, look_of, phase_colour
from recommender.report.terminal import printable, shortened
from recommender.report.thinning import allocation_at, changes, runs_of_labels, telling_points, violation_spans
from recommender.units import BYTES_PER_GIB

DRAWN = (OURS, "vpa", "histogram", "static")
"""More lines than these hide each other; the page lets its reader choose."""
_UNITS = (1.0, BYTES_PER_GIB)
_LABELS = ("CPU, cores", "memory, GiB")
_TIME_UNITS = ((86400.0, "days", 2.0), (3600.0, "hours", 2.0), (60.0, "minutes", 3.0), (1.0, "seconds", 0.0))
_MOST_POINTS = 4000


def draw_timeline(timeline: Timeline, path: str | Path, *, policies: Sequence[str] = ()) -> None:
    """Draw one container, CPU above memory.

    Parameters
    ----------
    timeline
        As the replay drew it out; without phases the ground stays white.
    policies
        Which to draw; by default ours, the default VPA and the declared requests, or else the first three.
    """
    chosen = [name for name in policies or DRAWN if name in timeline.decisions] or list(timeline.decisions)[:3]
    with rc_context(SETTINGS):
        figure = new_figure(5.6)
        figure.suptitle(shortened(printable(timeline.container), 90), x=0.01, ha="left", fontweight="bold", fontsize=11)
        panels = figure.subplots(2, 1, sharex=True)
        length = float(timeline.timestamps[-1] - timeline.timestamps[0])
        unit, name = next((unit, name) for unit, name, least in _TIME_UNITS if length >= least * unit)
        for resource in (CPU, MEMORY):
            _panel(panels[resource], timeline, resource, chosen, unit)
        panels[MEMORY].set(xlabel=f"{name} since the first sample", xlim=(0, max(length / unit, 1e-9)))
        _legend(figure, timeline, chosen)
        save(figure, path)


def _panel(axes: Axes, timeline: Timeline, resource: int, chosen: Sequence[str], unit: float) -> None:
    since = (timeline.timestamps - timeline.timestamps[0]) / unit
    used = timeline.usage[:, resource]
    if timeline.labels is not None:
        for begin, end, phase in runs_of_labels(timeline.timestamps, timeline.labels):
            if phase >= 0:
                axes.axvspan(begin / unit, end / unit, color=phase_colour(phase), linewidth=0, zorder=0)
            else:
                axes.axvspan(begin / unit, end / unit, facecolor="white", edgecolor="#cccccc", hatch="///", linewidth=0)
    kept = telling_points(used, _MOST_POINTS)
    axes.plot(since[kept], used[kept] / _UNITS[resource], color=USAGE.light, linewidth=0.9, zorder=3)
    top = float(np.nanmax(used)) if np.isfinite(used).any() else 0.0
    for name in chosen:
        times, allocation = timeline.decisions[name]
        look = look_of(name, list(timeline.decisions))
        moved = changes(times, allocation, _MOST_POINTS)
        x = np.append(times[moved], timeline.timestamps[-1]) - timeline.timestamps[0]
        y = np.append(allocation[moved, resource], allocation[-1, resource])
        top = max(top, float(y.max()))
        axes.step(x / unit, y / _UNITS[resource], where="post", color=look.light, linestyle=_dash(look.dash), zorder=4)
    axes.set(ylim=(0, (top or 1.0) / _UNITS[resource] * 1.06), ylabel=_LABELS[resource])
    _mark_violations(axes, timeline, resource, chosen, unit)
    grid(axes, "y")


def _mark_violations(axes: Axes, timeline: Timeline, resource: int, chosen: Sequence[str], unit: float) -> None:
    """Ticks under the panel, a row per policy, where use is above its reservation x 1.05."""
    for row, name in enumerate(chosen):
        held = allocation_at(timeline.timestamps, *timeline.decisions[name])
        spans = violation_spans(timeline.timestamps, timeline.usage[:, resource], held[:, resource], 400)
        colour = look_of(name, list(timeline.decisions)).light
        for begin, end in spans:
            axes.plot(
                [begin / unit, end / unit], [-0.035 - 0.03 * row] * 2, color=colour, linewidth=3, clip_on=False,
                solid_capstyle="butt", transform=axes.get_xaxis_transform(),
            )  # fmt: skip
    axes.tick_params(axis="x", pad=4 + 4 * len(chosen))


def _legend(figure: Figure, timeline: Timeline, chosen: Sequence[str]) -> None:
    names = list(timeline.decisions)
    handles: list[Line2D | Patch] = [Line2D([], [], color=USAGE.light, linewidth=0.9, label="used")]
    for name in chosen:
        look = look_of(name, names)
        handles.append(Line2D([], [], color=look.light, linestyle=_dash(look.dash), label=name))
    seen = [] if timeline.labels is None else sorted({int(phase) for phase in timeline.labels})
    for phase in seen:
        if phase >= 0:
            handles.append(Patch(facecolor=phase_colour(phase), edgecolor=SOFT, linewidth=0.4, label=f"phase {phase}"))
        else:
            handles.append(Patch(facecolor="white", edgecolor="#cccccc", hatch="///", label="phase unknown"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8.5)


def _dash(lengths: tuple[float, ...]) -> tuple[float, tuple[float, ...]] | None:
    return (0, tuple(length / 2 for length in lengths)) if lengths else None
