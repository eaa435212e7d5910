"""The rules of the grid in plain Python, one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

Row = tuple[float, float, float]
"""Time in seconds, cores, bytes; NaN where empty."""


def grid(rows: Sequence[Row], step_s: float) -> list[Row]:
    """Cells of one container: time of the cell, mean cores, largest bytes; NaN in both where there is a gap.

    `rows` are sorted by time, each moment once, cores and bytes empty together.
    """
    start_s = rows[0][0]
    cells: dict[int, list[Row]] = {}
    for row in rows:
        cells.setdefault(_nearest(row[0], start_s, step_s), []).append(row)
    merged = {cell: _merge(members) for cell, members in cells.items()}
    for earlier, later in pairwise(rows):
        cell = _nearest(earlier[0], start_s, step_s)
        if later[0] - earlier[0] < 2 * step_s and cell + 1 not in cells and _nearest(later[0], start_s, step_s) > cell:
            merged[cell + 1] = merged[cell]
    result: list[Row] = []
    for cell in range(max(cells) + 1):
        cores, used_bytes = merged.get(cell, (math.nan, math.nan))
        result.append((math.floor(start_s + cell * step_s + 0.5), cores, used_bytes))
    return result


def _nearest(time_s: float, start_s: float, step_s: float) -> int:
    return math.floor((time_s - start_s) / step_s + 0.5)


def _merge(members: Sequence[Row]) -> tuple[float, float]:
    known = [row for row in members if not math.isnan(row[1])]
    if not known:
        return math.nan, math.nan
    return sum(row[1] for row in known) / len(known), max(row[2] for row in known)


def median_interval(containers: Sequence[Sequence[float]]) -> float:
    """The median of the intervals between consecutive times of a container, over all containers."""
    return median(later - earlier for times in containers for earlier, later in pairwise(times))
