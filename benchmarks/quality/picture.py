"""A picture of what bounds of memory promise and what came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.quality.memory import CALIBRATED_RUNS, CALIBRATED_TARGETS, Promise
from recommender.plots import style

COLOURS = ("#0072b2", "#d55e00", "#009e73")
"""Of Okabe and Ito: distinct for all eyes."""


def draw_promises(promises: Mapping[str, Mapping[str, Promise]], to: Path) -> None:
    """Draw a panel for each data set: shares of killed runs by the number of earlier ones, and the accepted shares."""
    with rc_context(style.SETTINGS):
        style.save(_figure(promises), to)


def _figure(promises: Mapping[str, Mapping[str, Promise]]) -> Figure:
    figure = style.new_figure(2.8)
    panels = figure.subplots(1, len(promises), sharey=True, squeeze=False)[0]
    for axes, (name, found) in zip(panels, promises.items(), strict=True):
        for target, colour in zip(CALIBRATED_TARGETS, COLOURS, strict=True):
            named = ((n, found.get(f"{target:.0%} promised, {n} earlier")) for n in CALIBRATED_RUNS)
            known = [(n, one.killed) for n, one in named if one is not None]
            axes.axhline(target, color=colour, linewidth=1.0, linestyle="--")
            axes.plot(*zip(*known, strict=True), color=colour, marker="o", label=f"{target:.0%}")
        axes.set(title=name, xlabel="earlier runs", xscale="log", ylim=(0, None))
        axes.set_xticks(CALIBRATED_RUNS, map(str, CALIBRATED_RUNS))
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        style.grid(axes, "y")
    panels[0].set_ylabel("killed runs")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", title="dashed: accepted")
    return figure
