"""Layout of the phase graph for page and picture: phases in a row in their usual order, transitions as arcs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from recommender.phases.graph_io import END, START

WIDTH = 760.0
MIN_SHARE = 0.05  # rarer transitions are not drawn, only listed in the table
_MARGIN, _TEXT_HEIGHT = 34.0, 22.0
_ARC_UNIT = 40.0


@dataclass(frozen=True, slots=True)
class PhaseNode:
    """A phase, or the start or end of a container."""

    name: str
    phase: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition: the two points of a line or the four of a cubic Bézier curve, width, and position of the label."""

    source: str
    target: str
    share: float
    points: tuple[tuple[float, float], ...]
    width: float
    label_x: float
    label_y: float

    @property
    def path(self) -> str:
        """The `d` attribute of an SVG path."""
        start, *others = (f"{x:.1f},{y:.1f}" for x, y in self.points)
        return f"M{start}{'C' if len(others) > 1 else 'L'}{' '.join(others)}"


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Nodes, arrows, and all transitions for the table: (from, to, share, count)."""

    nodes: tuple[PhaseNode, ...]
    arrows: tuple[Arrow, ...]
    transitions: tuple[tuple[str, str, float, int], ...]
    radius: float
    height: float


def draw_graph(graph: nx.DiGraph[Any]) -> GraphDrawing:
    """Lay out the first-order part of a phase graph, whose edges carry `count`; contexts are not drawn.

    Phases stand from left to right in their usual order; arcs above the row lead forward, arcs below lead back, and no
    arc passes through a node.
    """
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for source, target, count in graph.edges(data="count", default=1):
        if _is_first_order(source) and _is_first_order(target):
            counts[str(source)][str(target)] = int(count)
    shares = {s: {t: n / sum(following.values()) for t, n in following.items()} for s, following in counts.items()}
    transitions = sorted(
        ((s, t, share, counts[s][t]) for s, following in shares.items() for t, share in following.items()),
        key=lambda row: (row[0] != START, int(row[0]) if row[0].isdigit() else -1, -row[2]),
    )
    order = _usual_order(shares)
    spacing = (WIDTH - 2 * _MARGIN) / max(len(order) - 1, 1)
    radius = min(26.0, spacing * 0.3)
    column = {name: i for i, name in enumerate(order)}
    drawn = [(s, t, share) for s, t, share, _ in transitions if share >= MIN_SHARE and s != t]
    above = max((_arc_height(column[t] - column[s]) for s, t, _ in drawn if column[t] > column[s]), default=0.0)
    below = max((_arc_height(column[s] - column[t]) for s, t, _ in drawn if column[t] < column[s]), default=0.0)
    row_y = above + radius + _TEXT_HEIGHT
    arrows = tuple(_arrow(s, t, share, column, spacing, row_y, radius) for s, t, share in drawn)
    nodes = tuple(
        PhaseNode(name, int(name) if name.isdigit() else -1, _MARGIN + i * spacing, row_y) for name, i in column.items()
    )
    return GraphDrawing(nodes, arrows, tuple(transitions), radius, row_y + radius + below + _TEXT_HEIGHT)


def _is_first_order(node: object) -> bool:
    return str(node).isdigit() or node in {START, END}


def _usual_order(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Start, then each time the likeliest unvisited successor (or lowest number), then end."""
    names = {name for s, following in shares.items() for name in (s, *following)}
    rest = sorted(names - {START, END}, key=int)
    order = [START] if START in names else []
    here = START
    while rest:
        following = shares.get(here, {})
        here = max(rest, key=lambda name: (following.get(name, 0.0), -int(name)))
        order.append(here)
        rest.remove(here)
    return [*order, END] if END in names else order


def _arc_height(span: int) -> float:
    """Height of an arc that spans this many columns."""
    return _ARC_UNIT * (0.6 + 0.55 * (span - 1))


def _arrow(
    source: str, target: str, share: float, column: Mapping[str, int], spacing: float, row_y: float, radius: float
) -> Arrow:
    span, width = column[target] - column[source], 1.0 + 4.5 * share
    side = -1.0 if span > 0 else 1.0
    x1, x2 = _MARGIN + column[source] * spacing, _MARGIN + column[target] * spacing
    if span == 1:
        begin, finish = x1 + radius, x2 - radius - 6
        points: tuple[tuple[float, float], ...] = ((begin, row_y), (finish, row_y))
        return Arrow(source, target, share, points, width, (begin + finish) / 2, row_y - 12)
    inset = radius * 0.45 * (1 if span > 0 else -1)
    x1, x2 = x1 + inset, x2 - inset
    edge = row_y + side * radius * 0.9
    tip = edge + side * 6
    control = edge + side * _arc_height(abs(span)) * 4 / 3
    points = (x1, edge), (x1, control), (x2, control), (x2, tip)
    label_y = edge + side * (_arc_height(abs(span)) + 10)
    return Arrow(source, target, share, points, width, (x1 + x2) / 2, label_y)
