"""What `phasewise phases` shows: containers with their phases shaded, and how usage spreads in each phase.

The pictures of AI4DL's package (its traces and its variance analysis), for any model and data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from recommender.plots.style import SETTINGS, SOFT, grid, new_figure, save
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, FloatArray, IntArray, PhaseTrace, UsageSeries
from recommender.report.palette import USAGE, phase_colour
from recommender.report.terminal import printable, shortened
from recommender.report.thinning import runs_of_labels, telling_points
from recommender.units import BYTES_PER_GIB

_UNITS = ((CPU, 1.0, "CPU, cores"), (MEMORY, BYTES_PER_GIB, "memory, GiB"))
_MOST_POINTS = 2000
_MOST_PER_BOX = 20_000


def draw_traces(traced: Sequence[tuple[UsageSeries, PhaseTrace]], path: str | Path) -> None:
    """A row for each container, CPU beside memory, phases as the ground; hours since its first sample."""
    with rc_context(SETTINGS):
        figure = new_figure(0.9 + 1.5 * len(traced))
        rows = figure.subplots(len(traced), 2, squeeze=False)
        for (series, trace), panels in zip(traced, rows, strict=True):
            for axes, (resource, unit, label) in zip(panels, _UNITS, strict=True):
                _trace(axes, series, trace, resource, unit)
                axes.set_ylabel(label)
            panels[0].set_title(shortened(printable(series.container), 60), fontsize=9)
        for axes in rows[-1]:
            axes.set_xlabel("hours since the first sample")
        seen = sorted({int(label) for _, trace in traced for label in np.unique(trace.labels)} - {UNKNOWN_PHASE})
        figure.legend(
            handles=[Patch(color=phase_colour(phase), label=f"phase {phase}") for phase in seen],
            loc="outside lower left",
            ncols=8,
        )
        save(figure, path)


def draw_variance(traced: Sequence[tuple[UsageSeries, PhaseTrace]], path: str | Path) -> None:
    """Boxes (quartiles, whiskers at 5 % and 95 %) of CPU and memory in each phase, with each phase's share of time."""
    usage = np.concatenate([series.usage[series.present] for series, _ in traced])
    labels = np.concatenate([trace.labels[series.present] for series, trace in traced])
    phases = [int(phase) for phase in np.unique(labels) if phase != UNKNOWN_PHASE]
    with rc_context(SETTINGS):
        figure = new_figure(3.6)
        for axes, (resource, unit, label) in zip(figure.subplots(1, 2), _UNITS, strict=True):
            _boxes(axes, [_thinned(usage[labels == phase, resource] / unit) for phase in phases], phases)
            axes.set(title=label, xlabel="phase and its share of time")
            axes.set_xticks(range(1, len(phases) + 1), [f"{phase}\n{np.mean(labels == phase):.0%}" for phase in phases])
            grid(axes, "y")
        save(figure, path)


def _trace(axes: Axes, series: UsageSeries, trace: PhaseTrace, resource: int, unit: float) -> None:
    hours = (series.timestamps - series.timestamps[0]) / 3600
    for begin, end, phase in runs_of_labels(series.timestamps, trace.labels):
        if phase >= 0:
            axes.axvspan(begin / 3600, end / 3600, color=phase_colour(phase), linewidth=0, zorder=0)
    kept = telling_points(series.usage[:, resource], _MOST_POINTS)
    axes.plot(hours[kept], series.usage[kept, resource] / unit, color=USAGE.light, linewidth=0.8, zorder=3)
    axes.set(xlim=(0, max(float(hours[-1]), 1e-9)), ylim=(0, None))


def _boxes(axes: Axes, samples: Sequence[FloatArray], phases: Sequence[int]) -> None:
    drawn = axes.boxplot(
        samples, whis=(5, 95), showfliers=False, patch_artist=True, widths=0.6, medianprops={"color": USAGE.light}
    )
    for box, phase in zip(drawn["boxes"], phases, strict=True):
        box.set(facecolor=phase_colour(phase), edgecolor=SOFT)


def _thinned(values: FloatArray) -> FloatArray:
    """At most `_MOST_PER_BOX` values, evenly spaced in order of size: quantiles stay."""
    ordered = np.sort(values)
    at: IntArray = np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_PER_BOX)).astype(np.int64)
    return ordered[at]
