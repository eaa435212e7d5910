"""The prefix tree of prototypes as a picture: the paths of all executions, from their first phase to their last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    _draw(figure.add_subplot(), tree, shown)
    figure.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)


def _draw(axes: Axes, tree: nx.DiGraph[Elements], shown: Sequence[Prototype]) -> None:
    rows = _rows(tree, {one.path for one in shown})
    kept, total = tree.subgraph(rows), tree.nodes[ROOT]["count"]
    places = {node: (float(len(node)), row) for node, row in rows.items()}
    nx.draw_networkx_edges(
        kept, places, arrows=False, alpha=0.45, edge_color=[_hue(node[-1]) for _, node in kept.edges],
        width=[max(0.8, _WIDEST * kept.nodes[node]["count"] / total) for _, node in kept.edges], ax=axes,
    )  # fmt: skip
    for node, (x, y) in places.items():
        words, hue = (node[-1], _hue(node[-1])) if node else (f"all {total}", INK)
        box = {"boxstyle": "round,pad=0.32", "facecolor": hue, "edgecolor": "white"}
        axes.text(x, y, words, ha="center", va="center", color="white", fontsize=9.5, weight="bold", bbox=box)
        if node and (ended := kept.nodes[node]["ended"]):
            axes.text(x, y + 0.42, f"{ended} end", ha="center", va="center", color=INK, fontsize=7.5)
    right = max(len(one.path) for one in shown) + 0.5
    for one in shown:
        axes.text(right, rows[one.path], f"{one.share:.1%}  ({one.count})", va="center", fontsize=9.5, color=INK)
    covered = shown[-1].cumulative_share
    axes.set_title(
        f"The {len(shown)} most taken paths cover {covered:.0%} of {total} executions", loc="left", color=INK
    )
    axes.text(
        0.0, -0.02,
        "(a b)* is an alternation of any length. Width, and the number behind a share: executions that come through.\n"
        "An execution that ends early counts to the path it was on.",
        transform=axes.transAxes, fontsize=8.5, color=PALE, va="top",
    )  # fmt: skip
    axes.set(xlim=(-0.6, right + 1.0), ylim=(max(rows.values()) + 0.7, -0.7))
    axes.set_axis_off()


def _rows(tree: nx.DiGraph[Elements], leaves: set[Elements]) -> dict[Elements, float]:
    """Height of every node that leads to a shown leaf: leaves one below the other, the widest branch on top, and each
    parent on the level of its widest child."""
    needed = tree.subgraph({leaf[:length] for leaf in leaves for length in range(len(leaf) + 1)})
    rows: dict[Elements, float] = {}

    def widest_first(nodes: Iterable[Elements]) -> list[Elements]:
        return sorted(nodes, key=lambda node: (-tree.nodes[node]["count"], node))

    for node in nx.dfs_postorder_nodes(needed, ROOT, sort_neighbors=widest_first):
        below = [rows[child] for child in needed.successors(node)]
        rows[node] = min(below, default=float(sum(leaf in rows for leaf in leaves)))
    return rows


def _hue(element: str) -> str:
    first = re.search(r"\d+", element)
    return phase_hue(int(first.group())) if first else PALE
