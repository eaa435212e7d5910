"""Use of earlier runs after the moment most similar to that of another run, written plainly with lists and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EarlierRun(NamedTuple):
    """A run: its point after each sample, its use in each, and their interval."""

    points: Sequence[Sequence[float]]
    cpu_cores: Sequence[float]
    step_s: float


def naive_peak_after(run: EarlierRun, here: Sequence[float], passed_s: float, ahead_s: float) -> tuple[float, float]:
    """The smallest squared distance to `here`, and the largest use in `ahead_s` from `passed_s` after that moment."""
    square, after_s = 0.0, passed_s
    if here:
        squares = [sum((a - b) ** 2 for a, b in zip(point, here, strict=True)) for point in run.points]
        square = min(squares)
        after_s += (squares.index(square) + 1) * run.step_s
    used = [
        cores
        for place, cores in enumerate(run.cpu_cores)
        if (place + 1) * run.step_s > after_s + 1e-9 and place * run.step_s < after_s + ahead_s - 1e-9
    ]
    return square, max(used, default=run.cpu_cores[-1])
