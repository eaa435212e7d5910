"""Use of a container after earlier segments like the present one, written plainly with lists and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

FLOOR_CORES, FEWEST = 0.02, 3


def segments_of(cpu_cores: Sequence[float]) -> list[list[float]]:
    """The samples of each segment; NaN is a gap, which belongs to the segment before it."""
    segments: list[list[float]] = []
    for cores in cpu_cores:
        if math.isnan(cores):
            if segments:
                segments[-1].append(cores)
        elif not segments or _apart(cores, _seen(segments[-1])[-1], math.e):
            segments.append([cores])
        else:
            segments[-1].append(cores)
    return segments


def naive_own_past(cpu_cores: Sequence[float], ahead: int, most: int) -> tuple[int, float] | None:
    """Count of ended segments like the present one, and the largest use in `ahead` samples after it.

    Of the latest `most` segments; None if fewer than `FEWEST` are alike.
    """
    *ended, present = segments_of(cpu_cores) or [[]]
    ended = ended[-most:]
    if len(present) < 2 or len(ended) < FEWEST + 1:
        return None
    now, found = max(_seen(present)[1:], default=present[0]), list[float]()
    for number in range(1, len(ended) - 1):
        alike = not _apart(_level(ended[number]), now, math.exp(0.5))
        if alike and not _apart(_level(ended[number - 1]), _level(ended[-1]), math.exp(0.5)):
            left = max(0, len(ended[number]) - len(present))
            after = [max(now, _level(ended[number]))] * left
            for segment in ended[number + 1 :]:
                after += [_level(segment)] * len(segment)
            found.append(max([*after, *[now] * max(0, ahead - len(after))][:ahead]))
    return (len(found), max(found)) if len(found) >= FEWEST else None


def _seen(segment: Sequence[float]) -> list[float]:
    return [cores for cores in segment if not math.isnan(cores)]


def _level(segment: Sequence[float]) -> float:
    """The largest use in an ended segment, without the first and last sample, which may partly belong to another."""
    seen = _seen(segment)
    return max(seen[1:-1], default=max(seen))


def _apart(one: float, other: float, factor: float) -> bool:
    one, other = one + FLOOR_CORES, other + FLOOR_CORES
    return one > other * factor or other > one * factor
