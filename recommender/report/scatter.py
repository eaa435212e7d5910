"""Slack against violation: where every policy stands, as geometry for a small picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recommender.records import RESOURCES
from recommender.report.palette import TARGET_VIOLATION
from recommender.report.summary import PolicyRow, percent

WIDTH, HEIGHT = 560.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 16.0, 50.0
_LABEL_HEIGHT, _LETTER_WIDTH = 15.0, 6.6

MARKERS = {
    "o": "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0z",
    "s": "M-5.4,-5.4h10.8v10.8h-10.8z",
    "D": "M0,-7.2L7.2,0L0,7.2L-7.2,0z",
    "d": "M0,-7.5L4.8,0L0,7.5L-4.8,0z",
    "^": "M0,-6.8L6.6,5.2H-6.6z",
    "v": "M0,6.8L6.6,-5.2H-6.6z",
    "<": "M-6.8,0L5.2,-6.6V6.6z",
    ">": "M6.8,0L-5.2,-6.6V6.6z",
    "P": "M-2.4,-6.6h4.8v4.2h4.2v4.8h-4.2v4.2h-4.8v-4.2h-4.2v-4.8h4.2z",
    "X": "M-6.4,-3.2L-3.2,-6.4L0,-3.2L3.2,-6.4L6.4,-3.2L3.2,0L6.4,3.2L3.2,6.4L0,3.2L-3.2,6.4L-6.4,3.2L-3.2,0z",
    "*": "M0,-7.6L1.9,-2.4H7.3L3,1L4.6,6.4L0,3.2L-4.6,6.4L-3,1L-7.3,-2.4H-1.9z",
    "h": "M-3.5,-6L3.5,-6L7,0L3.5,6L-3.5,6L-7,0z",
    "p": "M0,-7L6.7,-2.2L4.1,5.7L-4.1,5.7L-6.7,-2.2z",
}
"""Matplotlib's marker letters as SVG paths around the origin."""


@dataclass(frozen=True, slots=True)
class Point:
    """A policy's place; one that lies beyond the axes is drawn at their edge and its label says where it belongs."""

    policy: str
    index: int
    oracle: bool
    ours: bool
    x: float
    y: float
    label: str
    label_x: float
    label_y: float
    anchor: str
    told: str
    leader: bool
    """True when the label stands so far off that a thin line must lead to it."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """One picture: points, ticks as (position, text), and the height of the target line."""

    resource: str
    points: tuple[Point, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    target_y: float
    told: str


def scatter_of(rows: Sequence[PolicyRow], resource: int) -> Scatter:
    """Place the policies of one resource; those without a ratio are not drawn.

    Parameters
    ----------
    rows
        Policies in the page's order, which also numbers them.
    resource
        `CPU` or `MEMORY`.
    """
    known = [
        (i, row, usage.slack_ratio, usage.violation_ratio)
        for i, row in enumerate(rows)
        for usage in (row.outcome.resources[resource],)
        if usage.slack_ratio is not None and usage.violation_ratio is not None
    ]
    x_top = axis_top([slack for _, _, slack, _ in known], at_least=0.2)
    y_top = axis_top([harm for _, _, _, harm in known], at_least=2 * TARGET_VIOLATION)
    target = _y(TARGET_VIOLATION, y_top)
    points: list[Point] = []
    taken = [(WIDTH - RIGHT - 70, target - 18, WIDTH - RIGHT, target + 2)]
    for _, _, slack, harm in known:
        x, y = _x(min(slack, x_top), x_top), _y(min(harm, y_top), y_top)
        taken.append((x - 8, y - 8, x + 8, y + 8))
    for i, row, slack, harm in sorted(known, key=lambda entry: (not entry[1].ours, entry[1].oracle)):
        x, y = _x(min(slack, x_top), x_top), _y(min(harm, y_top), y_top)
        off = slack > x_top or harm > y_top
        told = f"{row.name}: slack {slack:.2f}, {percent(harm)} violations"
        label = f"{row.name} ({slack:.2f}, {percent(harm)}) →" if off else row.name
        label_x, label_y, anchor = _free_place(x, y, label, taken)
        leader = abs(label_y - 4 - y) > _LABEL_HEIGHT
        points.append(Point(row.name, i, row.oracle, row.ours, x, y, label, label_x, label_y, anchor, told, leader))
    return Scatter(
        resource=RESOURCES[resource],
        points=tuple(sorted(points, key=lambda point: point.ours)),
        x_ticks=tuple((_x(v, x_top), f"{v:.3g}") for v in round_steps(x_top)),
        y_ticks=tuple((_y(v, y_top), f"{v * 100:.3g} %") for v in round_steps(y_top)),
        target_y=target,
        told="; ".join(point.told for point in points),
    )


def axis_top(values: Sequence[float], *, at_least: float) -> float:
    """The end of an axis: above all values, except for up to two that would squeeze the rest into a corner."""
    ordered = sorted(values)
    for _ in range(2):
        if len(ordered) > 2 and ordered[-1] > 2.5 * max(ordered[-2], at_least):
            ordered.pop()
    return max(ordered[-1] if ordered else 0.0, at_least) * 1.12


def round_steps(top: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to `top`, about as many as asked.

    Examples
    --------
    >>> round_steps(0.9)
    [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]
    """
    rough = top / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def _x(value: float, top: float) -> float:
    return LEFT + value / top * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _free_place(
    x: float, y: float, label: str, taken: list[tuple[float, float, float, float]]
) -> tuple[float, float, str]:
    """Where a label covers no other one: beside the point, else above or below it, else further away."""
    width = len(label) * _LETTER_WIDTH
    best: tuple[float, tuple[float, float, str], tuple[float, float, float, float]] | None = None
    for distance in range(10):
        for dy in (4 + distance * 13, 4 - distance * 13):
            for anchor, left in (("start", x + 11), ("end", x - 11 - width)):
                box = (left, y + dy - 11, left + width, y + dy - 11 + _LABEL_HEIGHT)
                cost = 5 * sum(_overlap(box, other) for other in taken) + distance * 6
                cost += 1e4 * (box[0] < LEFT or box[2] > WIDTH or box[1] < 0 or box[3] > HEIGHT - BOTTOM + 6)
                if best is None or cost < best[0]:
                    best = cost, (left if anchor == "start" else left + width, y + dy, anchor), box
    assert best is not None  # noqa: S101  # the loops above are never empty
    taken.append(best[2])
    return best[1]


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
