"""The phase graph as geometry for page and picture: phases in a row in their usual order, transitions as arcs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from recommender.phases.graph_io import END, START

WIDTH = 760.0
MIN_SHARE = 0.05
"""Rarer transitions are in the table below the picture and not in it."""
_MARGIN, _TEXT_HEIGHT = 34.0, 22.0
_ARC_UNIT = 40.0


@dataclass(frozen=True, slots=True)
class Node:
    """A phase, or the start or end of a container."""

    name: str
    phase: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition: the ends of a line or the four points of a cubic curve, its width, and where its share stands."""

    source: str
    target: str
    share: float
    points: tuple[tuple[float, float], ...]
    width: float
    label_x: float
    label_y: float

    @property
    def path(self) -> str:
        """As SVG writes it."""
        start, *others = (f"{x:.1f},{y:.1f}" for x, y in self.points)
        return f"M{start}{'C' if len(others) > 1 else 'L'}{' '.join(others)}"


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Nodes, arrows drawn, and every transition for the table: (from, to, share, count)."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    transitions: tuple[tuple[str, str, float, int], ...]
    radius: float
    height: float


def draw_graph(graph: nx.DiGraph[Any]) -> GraphDrawing:
    """Lay out the first-order part of a phase graph.

    What comes later in the usual order lies further right; arcs above the row lead forward, arcs below lead back, and
    no arc can pass through a node.

    Parameters
    ----------
    graph
        Edges carry `count`. Nodes that are a bare phase number (int or text), `start` or `end` are drawn; longer
        contexts are left to the forecast. Shares are of the transitions drawn.
    """
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for source, target, count in graph.edges(data="count", default=1):
        if _drawn(source) and _drawn(target):
            counts[str(source)][str(target)] = int(count)
    shares = {s: {t: n / sum(following.values()) for t, n in following.items()} for s, following in counts.items()}
    every = sorted(
        ((s, t, share, counts[s][t]) for s, following in shares.items() for t, share in following.items()),
        key=lambda row: (row[0] != START, int(row[0]) if row[0].isdigit() else -1, -row[2]),
    )
    order = _usual_order(shares)
    gap = (WIDTH - 2 * _MARGIN) / max(len(order) - 1, 1)
    radius = min(26.0, gap * 0.3)
    place = {name: i for i, name in enumerate(order)}
    kept = [(s, t, share) for s, t, share, _ in every if share >= MIN_SHARE and s != t]
    above = max((_arc_height(place[t] - place[s]) for s, t, _ in kept if place[t] > place[s]), default=0.0)
    below = max((_arc_height(place[s] - place[t]) for s, t, _ in kept if place[t] < place[s]), default=0.0)
    row_y = above + radius + _TEXT_HEIGHT
    arrows = tuple(_arrow(s, t, share, place, gap, row_y, radius) for s, t, share in kept)
    nodes = tuple(
        Node(name, int(name) if name.isdigit() else -1, _MARGIN + i * gap, row_y) for name, i in place.items()
    )
    return GraphDrawing(nodes, arrows, tuple(every), radius, row_y + radius + below + _TEXT_HEIGHT)


def _drawn(node: object) -> bool:
    return str(node).isdigit() or node in {START, END}


def _usual_order(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Start, then phases by following the likeliest unvisited transition, then what is left by number, then end."""
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
    """How high an arc over `span` places goes; a step to the neighbour on the right is a straight line or a low arc."""
    return _ARC_UNIT * (0.6 + 0.55 * (span - 1))


def _arrow(
    source: str, target: str, share: float, place: Mapping[str, int], gap: float, row_y: float, radius: float
) -> Arrow:
    span = place[target] - place[source]
    side = -1.0 if span > 0 else 1.0
    x1, x2 = _MARGIN + place[source] * gap, _MARGIN + place[target] * gap
    if span == 1:
        begin, finish = x1 + radius, x2 - radius - 6
        points: tuple[tuple[float, float], ...] = ((begin, row_y), (finish, row_y))
        return Arrow(source, target, share, points, _width(share), (begin + finish) / 2, row_y - 12)
    inset = radius * 0.45 * (1 if span > 0 else -1)
    x1, x2 = x1 + inset, x2 - inset
    edge = row_y + side * radius * 0.9
    tip = edge + side * 6
    control = edge + side * _arc_height(abs(span)) * 4 / 3
    points = (x1, edge), (x1, control), (x2, control), (x2, tip)
    return Arrow(
        source, target, share, points, _width(share), (x1 + x2) / 2, edge + side * (_arc_height(abs(span)) + 10)
    )


def _width(share: float) -> float:
    return 1.0 + 4.5 * share
