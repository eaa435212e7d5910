"""The first-order phase graph as a picture: where containers spend their time and where they go next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path as FilePath

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path

from recommender.phases.graph import END, PhaseGraph

SHOWN_FROM = 0.02
"""Arrows below 2 % would hide the others; the caption says that they are left out."""

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#a88600",
    "#56b4e9",
    "#7d5fb2",
    "#5b7a00",
    "#b23a48",
    "#4d4d4d",
)
"""Okabe and Ito's hues, the light ones darkened so that a thin arrow still shows on white."""

INK, PALE = "#222222", "#8a8a8a"
_SMALLEST, _LARGEST = 0.20, 0.32
_BEND, _CROWDED = 0.20, 7
_END_ARROW, _START_TURN = 0.2, 0.75

_ALONG = (0.3, 0.35, 0.4, 0.25, 0.45, 0.5, 0.55, 0.6, 0.65, 0.2)
"""Where along its arrow a label may stand, the best place first."""
_CLEAR = 0.24
"""Width of a label and some air, in units of the axes."""

Point = tuple[float, float]
Curve = tuple[Point, Point, Point]
"""Start, control point and end of a quadratic Bezier curve."""


def draw_graph(graph: PhaseGraph, path: str | FilePath) -> None:
    """Draw the graph to a file whose ending gives the format; the same graph always gives the same picture.

    Circles are phases (the larger the more time is spent there), arrows the probability of what comes next, the end
    of the container included. Phases stand clockwise in the order in which containers usually enter them.
    """
    figure = Figure(figsize=(9.5, 7.8), dpi=150, facecolor="white", layout="constrained")
    draw_on(graph, figure.add_subplot())
    figure.savefig(path, metadata={"Software": None} if str(path).endswith(".png") else None)


def draw_on(graph: PhaseGraph, axes: Axes) -> None:
    """Draw the graph on axes of a figure of one's own."""
    shares = graph.first_order()
    samples = graph.samples_in_phase()
    total = max(1, sum(samples.values()))
    order = _entering_order(graph)
    places = _places(order)
    radii = {str(p): math.sqrt(_SMALLEST**2 + (_LARGEST**2 - _SMALLEST**2) * samples[p] / total) for p in order}
    shown = [
        (phase, to, share) for phase in order for to, share in shares.get(phase, {}).items() if share >= SHOWN_FROM
    ]
    taken: list[Point] = []
    for phase, target, share in sorted(shown, key=lambda arrow: (-arrow[2], arrow[:2])):
        if target == END:
            _mark_end(axes, places[str(phase)], radii[str(phase)], share, phase_hue(phase))
        else:
            step = (order.index(int(target)) - order.index(phase)) % len(order)
            curve = _curve(places, radii, str(phase), target, _bend(step, len(order)))
            _arrow(axes, curve, share, phase_hue(phase))
            _label(axes, curve, share, phase_hue(phase), taken)
    digraph = graph.digraph
    for phase in order:
        runs = sum(count for _, _, count in digraph.out_edges(str(phase), data="count"))
        _phase(axes, places[str(phase)], radii[str(phase)], phase, samples[phase] / total, samples[phase] / runs)
    for name, times in graph.starts().items():
        if times / graph.containers >= SHOWN_FROM:
            _mark_start(axes, places[name], radii[name], times / graph.containers)
    axes.set_title(f"How phases follow one another ({graph.containers} containers)", color=INK, fontsize=14, loc="left")
    axes.text(
        0.0, -0.01,
        "Size of a circle: share of time; in it the mean length of a run in samples. Arrow: probability that this "
        f"phase, or the end,\ncomes next (below {SHOWN_FROM:.0%} not drawn).",
        transform=axes.transAxes, fontsize=9, color=PALE, va="top",
    )  # fmt: skip
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-2.05, 2.05)
    axes.set_ylim(-1.72, 1.72)


def phase_hue(phase: int) -> str:
    """The colour of a phase, as a hex text."""
    return _COLOURS[phase % len(_COLOURS)]


def _entering_order(graph: PhaseGraph) -> list[int]:
    """Phases that occurred, by how many phases usually come before them."""
    place: dict[int, tuple[float, int]] = {}
    for context, following, _ in graph.counted():
        phase, times = context.phases[0], sum(following.values())
        before, so_far = place.get(phase, (0.0, 0))
        place[phase] = (before + times * (len(context.phases) - 1), so_far + times)
    return sorted(place, key=lambda phase: (place[phase][0] / place[phase][1], phase))


def _places(order: Sequence[int]) -> dict[str, Point]:
    """Phases on an ellipse, clockwise, the first one on the left."""
    places: dict[str, Point] = {}
    for at, phase in enumerate(order):
        angle = math.pi - 2 * math.pi * at / len(order)
        places[str(phase)] = (1.45 * math.cos(angle), 1.05 * math.sin(angle))
    return places


def _arrow(axes: Axes, curve: Curve, share: float, colour: str) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=Path(curve, [Path.MOVETO, Path.CURVE3, Path.CURVE3]),
            arrowstyle="-|>,head_length=6,head_width=3.5",
            linewidth=0.8 + 5.0 * share,
            color=colour, alpha=0.9 if share >= 0.1 else 0.6, mutation_scale=1.0 + share, zorder=2,
        )
    )  # fmt: skip


def _bend(step: int, around: int) -> float:
    """How far to the left an arrow bends that goes `step` places clockwise: there and back must not meet, and on a
    crowded ring a way past a neighbour goes inside, not through it."""
    if around < _CROWDED or step in (1, around - 1):
        return _BEND
    return -0.5 * _BEND if 2 * step <= around else 1.5 * _BEND


def _curve(places: dict[str, Point], radii: dict[str, float], source: str, target: str, bend: float) -> Curve:
    """From rim to rim, bent to the left of its direction."""
    (x0, y0), (x1, y1) = places[source], places[target]
    control = ((x0 + x1) / 2 - bend * (y1 - y0), (y0 + y1) / 2 + bend * (x1 - x0))
    start = _towards((x0, y0), control, radii[source] + 0.01)
    return start, control, _towards((x1, y1), control, radii[target] + 0.03)


def _label(axes: Axes, curve: Curve, share: float, colour: str, taken: list[Point]) -> None:
    """Write the probability on the arrow, nearer to its source, where no other one stands yet."""
    candidates = [_on(curve, t) for t in _ALONG]
    x, y = max(candidates, key=lambda place: (min(1.0, _gap(place, taken) / _CLEAR), -candidates.index(place)))
    taken.append((x, y))
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.92}
    weight = "bold" if share >= 0.25 else "normal"
    axes.text(
        x, y, f"{share:.2f}", color=colour, fontsize=9, ha="center", va="center", bbox=box, zorder=3, weight=weight
    )


def _on(curve: Curve, t: float) -> Point:
    (x0, y0), (x1, y1), (x2, y2) = curve
    a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
    return a * x0 + b * x1 + c * x2, a * y0 + b * y1 + c * y2


def _gap(place: Point, taken: Sequence[Point]) -> float:
    return min((math.hypot(place[0] - x, 1.6 * (place[1] - y)) for x, y in taken), default=math.inf)


def _towards(place: Point, other: Point, length: float) -> Point:
    distance = math.hypot(other[0] - place[0], other[1] - place[1])
    step = length / distance
    return place[0] + step * (other[0] - place[0]), place[1] + step * (other[1] - place[1])


def _phase(axes: Axes, place: Point, radius: float, phase: int, share: float, mean_run: float) -> None:
    x, y = place
    axes.add_patch(Circle(place, radius, facecolor=phase_hue(phase), edgecolor="white", linewidth=2, zorder=4))
    lines = (
        (0.075, str(phase), 16, "bold"),
        (-0.045, f"{share:.0%} of time", 7.5, "normal"),
        (-0.115, f"{mean_run:.0f} a run", 7.5, "normal"),
    )
    for below, words, size, weight in lines:
        axes.text(x, y + below, words, color="white", fontsize=size, weight=weight, ha="center", va="center", zorder=5)


def _mark_end(axes: Axes, place: Point, radius: float, share: float, colour: str) -> None:
    """A short arrow outwards to a double ring, with the probability that the container is over."""
    out = _outward(place)
    rim, far = radius + 0.01, radius + _END_ARROW
    x, y = place[0] + (far + 0.05) * out[0], place[1] + (far + 0.05) * out[1]
    axes.add_patch(
        FancyArrowPatch(
            (place[0] + rim * out[0], place[1] + rim * out[1]), (place[0] + far * out[0], place[1] + far * out[1]),
            arrowstyle="-|>,head_length=6,head_width=3.5", linewidth=0.8 + 5.0 * share,
            color=colour, shrinkA=0, shrinkB=0, mutation_scale=1.0 + share, zorder=2,
        )
    )  # fmt: skip
    for size in (0.045, 0.025):
        axes.add_patch(Circle((x, y), size, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=4))
    side = "left" if out[0] > 0.3 else "right" if out[0] < -0.3 else "center"
    gap = (0.08 * out[0], 0.1 * out[1])
    words = f"end {share:.2f}"
    axes.text(x + gap[0], y + gap[1], words, color=colour, fontsize=9, ha=side, va="center", weight="bold", zorder=5)


def _mark_start(axes: Axes, place: Point, radius: float, share: float) -> None:
    """A short arrow into a phase in which containers begin, beside the arrow to the end."""
    out = _turned(_outward(place), _START_TURN)
    rim, far = radius + 0.03, radius + _END_ARROW
    tail = (place[0] + far * out[0], place[1] + far * out[1])
    axes.add_patch(
        FancyArrowPatch(
            tail, (place[0] + rim * out[0], place[1] + rim * out[1]),
            arrowstyle="-|>,head_length=6,head_width=3.5", linewidth=0.8 + 3.0 * share, color=INK,
            shrinkA=0, shrinkB=0, zorder=2,
        )
    )  # fmt: skip
    words = f"start {share:.2f}"
    axes.text(
        tail[0] + 0.03 * out[0], tail[1] + 0.06 * out[1], words,
        color=INK, fontsize=9, ha="right" if out[0] < 0 else "left", va="center", zorder=5,
    )  # fmt: skip


def _outward(place: Point) -> Point:
    norm = math.hypot(*place) or 1.0
    return place[0] / norm, place[1] / norm


def _turned(direction: Point, angle: float) -> Point:
    (x, y), c, s = direction, math.cos(angle), math.sin(angle)
    return c * x - s * y, s * x + c * y
