"""Chart of the load of every node over time, a panel per scheduler; red above capacity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps, rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from placement_bench.jobs import Result
from placement_bench.load import load
from recommender.plots.style import SETTINGS, TARGET, new_figure, save
from recommender.records import CPU

_PANEL_INCHES = 0.95


def draw(results: Sequence[Result], node_cores: float, path: Path) -> None:
    """Draw one play (pattern, seed, number of nodes) under each scheduler."""
    colours = colormaps["Blues"].with_extremes(over=TARGET)
    scale = Normalize(0.0, 1.0)
    with rc_context(SETTINGS):
        figure = new_figure(_PANEL_INCHES * len(results) + 0.9)
        panels = figure.subplots(len(results), 1, squeeze=False, sharex=True)[:, 0]
        for axes, result in zip(panels, results, strict=True):
            asked = load(result.played.runs, result.nodes)[CPU] / node_cores
            seconds = len(asked)
            axes.imshow(asked.T, aspect="auto", interpolation="nearest", cmap=colours, norm=scale,
                        extent=(0, seconds, result.nodes + 0.5, 0.5))  # fmt: skip
            above = f"{result.overload.cpu_core_s:.0f} core-s above capacity"
            axes.set_title(f"{result.who.title}: {above}")
            axes.set(ylabel="node", yticks=[1, result.nodes])
        panels[-1].set_xlabel("recorded seconds since the first arrival")
        bar = figure.colorbar(ScalarMappable(scale, colours), ax=list(panels), extend="max", shrink=0.4, pad=0.01)
        bar.set_label("CPU demand, share of a node; red: above capacity")
        save(figure, path)


def shown(results: Sequence[Result], pattern: str, nodes: int) -> list[Result]:
    """Results to draw: the first seed of one pattern and number of nodes, once per scheduler."""
    found = [each for each in results if each.pattern == pattern and each.nodes == nodes]
    return [each for each in found if each.seed == found[0].seed]
