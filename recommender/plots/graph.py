"""The first-order phase graph as a picture: where containers spend their time and where they go next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recommender.phases.graph import END, START, PhaseGraph

SHOWN_FROM = 0.02
"""Arrows below 2 % would hide the others; the caption says that they are left out."""

_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a88600", "#56b4e9", "#7d5fb2", "#5b7a00", "#b23a48", "#4d4d4d",
)  # fmt: skip
"""Okabe and Ito's hues, the light ones darkened so that a thin arrow still shows on white."""

INK, PALE = "#222222", "#8a8a8a"
_BENT = "arc3,rad=-0.15"
"""There and back must not meet."""

_SMALLEST, _LARGEST = 2600.0, 5200.0
"""Square points of a circle for no time at all, and for all of it."""

Point = tuple[float, float]


def draw_graph(graph: PhaseGraph, path: str | Path) -> None:
    """Draw the graph to a file whose ending gives the format; the same graph always gives the same picture.

    Circles are phases (the larger the more time is spent there), arrows the probability of what comes next, the end
    of the container included. Phases stand clockwise in the order in which containers usually enter them.
    """
    figure = Figure(figsize=(9.5, 7.8), dpi=150, facecolor="white", layout="constrained")
    draw_on(graph, figure.add_subplot())
    figure.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)


def draw_on(graph: PhaseGraph, axes: Axes) -> None:
    """Draw the graph on axes of a figure of one's own."""
    samples, order = graph.samples_in_phase(), _entering_order(graph)
    total, drawn = max(1, sum(samples.values())), _shown(graph, order)
    places = _places(order, drawn)
    sizes = [_SMALLEST + (_LARGEST - _SMALLEST) * samples[int(n)] / total if n.isdigit() else 900.0 for n in drawn]
    hues = [phase_hue(int(name)) if name.isdigit() else PALE for name in drawn]
    edges = list(drawn.edges(data="share"))
    nx.draw_networkx_nodes(drawn, places, node_size=sizes, node_color=hues, edgecolors="white", ax=axes)
    nx.draw_networkx_edges(
        drawn, places, node_size=sizes, connectionstyle=_BENT, width=[0.8 + 5.0 * share for *_, share in edges],
        edge_color=[phase_hue(int(source)) if source.isdigit() else INK for source, *_ in edges], ax=axes,
    )  # fmt: skip
    nx.draw_networkx_edge_labels(
        drawn, places, {(source, to): f"{share:.2f}" for source, to, share in edges}, label_pos=0.35, rotate=False,
        connectionstyle=_BENT, font_size=9, bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none"}, ax=axes,
    )  # fmt: skip
    words = {name: _words(graph, name, samples[int(name)], total) if name.isdigit() else name for name in drawn}
    nx.draw_networkx_labels(drawn, places, words, font_size=7, font_color="white", ax=axes)
    axes.set_title(f"How phases follow one another ({graph.containers} containers)", color=INK, fontsize=14, loc="left")
    axes.text(
        0.0, -0.01,
        "Size of a circle: share of time; in it the mean length of a run in samples. Arrow: probability that this "
        f"phase, or the end,\ncomes next (below {SHOWN_FROM:.0%} not drawn).",
        transform=axes.transAxes, fontsize=9, color=PALE, va="top",
    )  # fmt: skip
    axes.set_axis_off()
    axes.set(xlim=(-1.75, 1.3), ylim=(-1.25, 1.25))


def phase_hue(phase: int) -> str:
    """The colour of a phase, as a hex text."""
    return _COLOURS[phase % len(_COLOURS)]


def _shown(graph: PhaseGraph, order: Sequence[int]) -> nx.DiGraph[str]:
    """Phases, start and end, with the share of each arrow that is drawn."""
    shares = graph.first_order()
    begun = ((START, name, times / graph.containers) for name, times in graph.starts().items())
    went = ((str(phase), to, share) for phase in order for to, share in shares.get(phase, {}).items())
    drawn: nx.DiGraph[str] = nx.DiGraph()
    drawn.add_nodes_from(map(str, order))
    drawn.add_weighted_edges_from((edge for edge in (*begun, *went) if edge[2] >= SHOWN_FROM), weight="share")
    return drawn


def _entering_order(graph: PhaseGraph) -> list[int]:
    """Phases that occurred, by how many phases usually come before them."""
    place: dict[int, tuple[float, int]] = {}
    for context, following, _ in graph.counted():
        phase, times = context.phases[0], sum(following.values())
        before, so_far = place.get(phase, (0.0, 0))
        place[phase] = (before + times * (len(context.phases) - 1), so_far + times)
    return sorted(place, key=lambda phase: (place[phase][0] / place[phase][1], phase))


def _places(order: Sequence[int], drawn: nx.DiGraph[str]) -> dict[str, Point]:
    """Phases on a ring, clockwise, the first one on the left beside the start; the end in the middle."""
    angles = {str(phase): math.pi - 2 * math.pi * at / len(order) for at, phase in enumerate(order)}
    ring = {name: (math.cos(angle), math.sin(angle)) for name, angle in angles.items()}
    return {name: place for name, place in {**ring, START: (-1.6, 0.25), END: (0.0, 0.0)}.items() if name in drawn}


def _words(graph: PhaseGraph, name: str, samples: int, total: int) -> str:
    runs = sum(count for _, _, count in graph.digraph.out_edges(name, data="count"))
    return f"{name}\n{samples / total:.0%} of time\n{samples / runs:.0f} a run"
