"""Sums over the pods of each node: changed for one pod, and copied for a snapshot."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REQUESTED, GUESSED, CATEGORIES, PODS, ROWS = 0, 2, 4, 7, 8
"""Rows of `counts`: two of requests and two of guesses (CPU and memory), three of categories, one of pods."""


@njit(cache=True)
def add(
    load: Floats,
    counts: Floats,
    place: int,
    sign: int,
    use: Floats,
    requested: tuple[float, float],
    guessed: tuple[float, float],
    category: int,
) -> None:
    """Add a pod to its node, or take it away.

    Parameters
    ----------
    load
        IN and OUT float64 (2, cells, n): what is used of CPU and memory.
    counts
        IN and OUT float64 (8, n), see `ROWS`.
    sign
        1, or -1 to take away.
    use
        float64 (2, cells): what the pod uses; (2, 1) where that is the same at all times.
    requested, guessed
        cpu_cores and memory_bytes.
    category
        0 to 2, or -1 for none.
    """
    steady = use.shape[1] == 1
    for resource in range(2):
        for cell in range(load.shape[1]):
            load[resource, cell, place] += sign * use[resource, 0 if steady else cell]
        counts[REQUESTED + resource, place] += sign * requested[resource]
        counts[GUESSED + resource, place] += sign * guessed[resource]
    if category >= 0:
        counts[CATEGORIES + category, place] += sign
    counts[PODS, place] += sign


@njit(cache=True)
def refresh(
    load: Floats, counts: Floats, begins: int, places: NDArray[np.int64], seen: NDArray[np.float32], counted: Floats
) -> None:
    """Bring copies up to date.

    Parameters
    ----------
    load, counts
        As of `add`.
    begins
        The cell of `load` that is the first of `seen`.
    places
        int64 (t,): the only nodes of which `seen` is not what is to be seen.
    seen
        IN and OUT float32 (2, fewer cells, up to n).
    counted
        OUT float64 (8, up to n).
    """
    for resource in range(2):
        for cell in range(seen.shape[1]):
            for place in places:
                seen[resource, cell, place] = load[resource, begins + cell, place]
    # One by one: of rows, their lengths would be compared, and the words for those that differ take seconds to compile.
    for row in range(len(counted)):
        for place in range(counted.shape[1]):
            counted[row, place] = counts[row, place]
