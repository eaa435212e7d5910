"""The transition graph as a picture: the page's drawing, with the time that is spent in each phase."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path

from recommender.phases.graph_io import START
from recommender.plots.style import DPI, INK, SOFT, save
from recommender.report.graph_drawing import LEAST_SHARE, WIDTH, Arrow, GraphDrawing, Node, draw_graph
from recommender.report.palette import phase_colour

_INCH = 76.0
"""Units of the drawing in an inch of the picture."""

_CURVES = {2: [Path.MOVETO, Path.LINETO], 4: [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]}


def draw_picture(graph: nx.DiGraph[Any], path: str | FilePath) -> None:
    """Draw what `graph_io.to_networkx` gave as PNG; the same graph, the same picture.

    Arrows carry the probability of what comes next, the end of the container included; under a phase stand the share of
    time that is spent there and the mean length of a run.
    """
    drawing = draw_graph(graph)
    figure = Figure(figsize=(WIDTH / _INCH, (drawing.height + 90) / _INCH), dpi=DPI, facecolor="white")
    draw_on(graph, drawing, figure.add_axes((0, 0, 1, 1)))
    save(figure, path)


def draw_on(graph: nx.DiGraph[Any], drawing: GraphDrawing, axes: Axes) -> None:
    """Draw the graph on axes of a figure of one's own."""
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
            words = f"{spent / total:.0%} of time\n{spent / max(1, runs):.0f} a run"
            axes.text(
                node.x, node.y + drawing.radius + 5, words, fontsize=6.5, color=SOFT, ha="center", va="top", zorder=3,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            )  # fmt: skip
    containers = sum(count for _, _, count in graph.out_edges(START, data="count"))
    axes.text(10, -22, f"How phases follow one another ({containers} containers)", color=INK, fontsize=12)
    legend = f"Arrow: probability that this phase, or the end, comes next (below {LEAST_SHARE:.0%} not drawn). "
    legend += "Under a phase: share of time, and mean length of a run in samples."
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


def _node(axes: Axes, node: Node, radius: float) -> None:
    if node.phase >= 0:
        axes.add_patch(Circle((node.x, node.y), radius, facecolor=phase_colour(node.phase), edgecolor="none", zorder=3))
        axes.text(node.x, node.y, node.name, color=INK, fontsize=11, weight="bold", ha="center", va="center", zorder=4)
        return
    box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": SOFT}
    axes.text(node.x, node.y, node.name, fontsize=8, color=INK, ha="center", va="center", bbox=box, zorder=4)
