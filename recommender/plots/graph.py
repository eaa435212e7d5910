"""The phase graph as PNG: the drawing of the HTML report plus the time spent in each phase."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path

from recommender.base.units import counted
from recommender.phases.graph_io import START
from recommender.plots.style import DPI, INK, SOFT, save
from recommender.report.graph_drawing import MIN_SHARE, WIDTH, Arrow, GraphDrawing, PhaseNode, draw_graph
from recommender.report.palette import phase_colour

_UNITS_PER_INCH = 76.0  # layout units per inch

_CURVES = {2: [Path.MOVETO, Path.LINETO], 4: [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]}


def draw_picture(graph: nx.DiGraph[Any], path: str | FilePath) -> None:
    """Draw the result of `graph_io.to_networkx` as PNG, deterministically.

    Arrows carry the probability of the next phase or the end; below a phase are its share of time and the mean length
    of a run.
    """
    drawing = draw_graph(graph)
    size_inches = WIDTH / _UNITS_PER_INCH, (drawing.height + 90) / _UNITS_PER_INCH
    figure = Figure(figsize=size_inches, dpi=DPI, facecolor="white")
    draw_on(graph, drawing, figure.add_axes((0, 0, 1, 1)))
    save(figure, path)


def draw_on(graph: nx.DiGraph[Any], drawing: GraphDrawing, axes: Axes) -> None:
    """Draw the graph on given axes."""
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(drawing.height + 50, -40)
    axes.set_aspect("equal")
    axes.set_axis_off()
    for arrow in drawing.arrows:
        _arrow(axes, arrow)
    total = max(1, sum(graph.nodes[node.name]["samples"] for node in drawing.nodes))
    for node in drawing.nodes:
        _node(axes, node, drawing.radius)
        if node.phase >= 0:
            spent = graph.nodes[node.name]["samples"]
            runs = sum(count for _, _, count in graph.out_edges(node.name, data="count"))
            label = f"{spent / total:.0%} of time\n{spent / max(1, runs):.0f} per run"
            axes.text(
                node.x, node.y + drawing.radius + 5, label, fontsize=6.5, color=SOFT, ha="center", va="top", zorder=3,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            )  # fmt: skip
    containers = sum(count for _, _, count in graph.out_edges(START, data="count"))
    axes.text(10, -22, f"How phases follow one another ({counted(containers, 'container')})", color=INK, fontsize=12)
    legend = f"Arrow: probability of the next phase or the end (below {MIN_SHARE:.0%} not drawn). "
    legend += "Below a phase: share of time, and mean length of a run in samples."
    axes.text(10, drawing.height + 40, legend, fontsize=7.5, color=SOFT)


def _arrow(axes: Axes, arrow: Arrow) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=Path(arrow.points, _CURVES[len(arrow.points)]), arrowstyle="-|>,head_length=5,head_width=3",
            linewidth=arrow.width, color="#8796a5", mutation_scale=1.0, zorder=1,
        )
    )  # fmt: skip
    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(
        arrow.label_x, arrow.label_y, f"{arrow.share:.0%}", fontsize=8, color=INK, ha="center", va="center", bbox=box,
        zorder=2,
    )  # fmt: skip


def _node(axes: Axes, node: PhaseNode, radius: float) -> None:
    if node.phase >= 0:
        axes.add_patch(Circle((node.x, node.y), radius, facecolor=phase_colour(node.phase), edgecolor="none", zorder=3))
        axes.text(node.x, node.y, node.name, color=INK, fontsize=11, weight="bold", ha="center", va="center", zorder=4)
        return
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": SOFT}
    axes.text(node.x, node.y, node.name, fontsize=8, color=INK, ha="center", va="center", bbox=box, zorder=4)
