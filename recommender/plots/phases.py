"""What each phase looks like: mean and spread of use and of every feature, a panel each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from recommender.phases.statistics import PhaseStatistics
from recommender.plots.style import SETTINGS, SOFT, grid, new_figure, save
from recommender.records import FloatArray
from recommender.report.palette import phase_colour
from recommender.units import BYTES_PER_GIB

_PANELS_A_ROW = 3


def draw_phases(table: PhaseStatistics, path: str | Path) -> None:
    """A bar per phase at the mean of its samples with one standard deviation either way.

    CPU and memory come first, then the features in the model's order. A phase that was never met has no bar.
    """
    panels = [
        ("CPU, cores", table.usage_mean[:, 0], table.usage_sd[:, 0]),
        ("memory, GiB", table.usage_mean[:, 1] / BYTES_PER_GIB, table.usage_sd[:, 1] / BYTES_PER_GIB),
    ]
    for place, name in enumerate(table.features):
        panels.append((name, table.feature_mean[:, place], table.feature_sd[:, place]))
    rows = -(-len(panels) // _PANELS_A_ROW)
    with rc_context(SETTINGS):
        figure = new_figure(0.7 + 1.9 * rows)
        places = figure.subplots(rows, _PANELS_A_ROW, squeeze=False).flat
        for axes, (title, mean, spread) in zip(places, panels, strict=False):
            _panel(axes, title, mean, spread)
        for axes in figure.axes[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel("phase; bar: mean, line: one standard deviation either way", fontsize=8.5, color=SOFT)
        save(figure, path)


def _panel(axes: Axes, title: str, mean: FloatArray, spread: FloatArray) -> None:
    met = np.flatnonzero(np.isfinite(mean))
    axes.bar(
        met, mean[met], color=[phase_colour(int(phase)) for phase in met], edgecolor=SOFT, linewidth=0.6, width=0.7,
        yerr=spread[met], error_kw={"linewidth": 1.0, "capsize": 2.5},
    )  # fmt: skip
    axes.set_title(title)
    axes.set_xticks(range(len(mean)), [str(phase) for phase in range(len(mean))])
    axes.axhline(0, color=SOFT, linewidth=0.8)
    grid(axes, "y")
