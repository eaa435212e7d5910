"""What earlier runs used after the moment most like another run's, written for reading: lists and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Earlier(NamedTuple):
    """A run: where it was after each sample, what it used in each, and how far apart they are."""

    points: Sequence[Sequence[float]]
    cpu_cores: Sequence[float]
    step_s: float


def after(run: Earlier, here: Sequence[float], passed_s: float, ahead_s: float) -> tuple[float, float]:
    """How unlike the most alike moment is, squared, and the largest use from `passed_s` after it, for so long."""
    square, after_s = 0.0, passed_s
    if here:
        squares = [sum((a - b) ** 2 for a, b in zip(point, here, strict=True)) for point in run.points]
        square = min(squares)
        after_s += (squares.index(square) + 1) * run.step_s
    within = [
        cores
        for place, cores in enumerate(run.cpu_cores)
        if (place + 1) * run.step_s > after_s + 1e-9 and place * run.step_s < after_s + ahead_s - 1e-9
    ]
    return square, max(within, default=run.cpu_cores[-1])
