"""The prefix tree of prototypes as a picture: the paths of all executions, from their first phase to their last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Line

from recommender.phases.contexts import Run
from recommender.phases.prototypes import ROOT, Prototype, prefix_tree, prototypes
from recommender.phases.prototypes import Path as Elements
from recommender.plots.graph import INK, PALE, phase_hue

SHOWN = 12
"""Paths drawn: as many as a page can tell apart; the caption says what share of executions they cover."""

_WIDEST = 22.0
"""Points of line width for all executions."""


def draw_prototypes(sequences: Iterable[Sequence[Run]], path: str | Path) -> None:
    """Draw the most taken paths to a file whose ending gives the format.

    Each path is a row with its share; where paths part, the line parts. Width is the number of executions that come
    through, the colour that of the phase.
    """
    runs = list(sequences)
    tree, shown = prefix_tree(runs), prototypes(runs)[:SHOWN]
    figure = Figure(figsize=(10.5, 1.8 + 0.42 * len(shown)), dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, tree, shown)
    figure.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)


def _draw(axes: Axes, tree: nx.DiGraph, shown: Sequence[Prototype]) -> None:
    rows = _rows(tree, {one.path for one in shown})
    total = tree.nodes[ROOT]["count"]
    deepest = max(len(one.path) for one in shown)
    for node, row in rows.items():
        if node != ROOT:
            count = tree.nodes[node]["count"]
            _branch(
                axes, (len(node) - 1, rows[node[:-1]]), (len(node), row), count / total, tree.nodes[node]["element"]
            )
    for node, row in rows.items():
        if node != ROOT:
            _element(axes, len(node), row, tree.nodes[node]["element"], tree.nodes[node]["ended"])
    for one in shown:
        for offset, words in ((1.0, f"{one.share:.1%}"), (1.5, str(one.count))):
            axes.text(deepest + offset, rows[one.path], words, ha="right", va="center", fontsize=9.5, color=INK)
    for offset, words in ((1.0, "share"), (1.5, "count")):
        axes.text(deepest + offset, -0.6, words, ha="right", va="center", fontsize=8.5, color=PALE)
    axes.text(0, rows[ROOT], f"all {total}", ha="right", va="center", fontsize=10, color=INK)
    covered = shown[-1].cumulative_share
    axes.set_title(
        f"The {len(shown)} most taken paths cover {covered:.0%} of {total} executions", loc="left", color=INK
    )
    axes.text(
        0.0, -0.02,
        "(a b)* is an alternation of any length. Width: executions that come through. An execution that ends early\n"
        "counts to the path it was on.",
        transform=axes.transAxes, fontsize=8.5, color=PALE, va="top",
    )  # fmt: skip
    axes.set_xlim(-0.6, deepest + 1.6)
    axes.set_ylim(-0.9, max(rows[one.path] for one in shown) + 0.7)
    axes.invert_yaxis()
    axes.set_axis_off()


def _rows(tree: nx.DiGraph, leaves: set[Elements]) -> dict[Elements, float]:
    """Height of every node that leads to a shown leaf: leaves one below the other, the widest branch on top, and each
    parent on the level of its widest child."""
    needed = {leaf[:length] for leaf in leaves for length in range(len(leaf) + 1)}
    rows: dict[Elements, float] = {}
    free = 0

    def place(node: Elements) -> float:
        nonlocal free
        children = [child for child in tree.successors(node) if child in needed]
        if not children:
            rows[node] = float(free)
            free += 1
        else:
            children.sort(key=lambda child: (-tree.nodes[child]["count"], child))
            rows[node] = min([place(child) for child in children])
        return rows[node]

    place(ROOT)
    return rows


def _branch(axes: Axes, start: tuple[float, float], end: tuple[float, float], share: float, element: str) -> None:
    middle = (start[0] + end[0]) / 2
    line = Line(
        [start, (middle, start[1]), (middle, end[1]), end], [Line.MOVETO, Line.CURVE4, Line.CURVE4, Line.CURVE4]
    )
    width = max(0.8, _WIDEST * share)
    axes.add_patch(
        PathPatch(
            line, facecolor="none", edgecolor=_hue(element), linewidth=width, alpha=0.45, capstyle="butt", zorder=1
        )
    )


def _element(axes: Axes, x: float, y: float, element: str, ended: int) -> None:
    box = {"boxstyle": "round,pad=0.32", "facecolor": _hue(element), "edgecolor": "white", "linewidth": 1.2}
    axes.text(x, y, element, ha="center", va="center", color="white", fontsize=9.5, weight="bold", bbox=box, zorder=3)
    if ended:
        axes.text(x + 0.02, y + 0.42, f"{ended} end", ha="center", va="center", color=INK, fontsize=7.5, zorder=4)


def _hue(element: str) -> str:
    first = re.search(r"\d+", element)
    return phase_hue(int(first.group())) if first else PALE
