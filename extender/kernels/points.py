"""Totals of nodes into the whole numbers that a scheduler takes."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def mean(totals: NDArray[np.float64], weight: float, decimals: float) -> None:
    """Divided by a weight, to a multiple of 1 / `decimals`.

    Parameters
    ----------
    totals
        IN and OUT float64 (m,).
    """
    for i in range(len(totals)):
        totals[i] = np.rint(totals[i] / weight * decimals) / decimals


@njit(cache=True)
def scale(totals: NDArray[np.float64], rank: NDArray[np.int64], most: int, scores: NDArray[np.int64]) -> int:
    """Scores of 0 to `most` - 1 by totals, and `most` for one of the highest: that of the lowest rank.

    Parameters
    ----------
    totals
        float64 (m,), at least one.
    rank
        int64 (m,), all different.
    scores
        OUT int64 (m,): all but the one get `most` - 1 where all totals are the same.

    Returns
    -------
    Which one got `most`.
    """
    low = high = totals[0]
    favourite = 0
    for i in range(1, len(totals)):
        total = totals[i]
        if total > high or (total == high and rank[i] < rank[favourite]):
            high, favourite = total, i
        low = min(low, total)
    if high > low:
        step = most / (high - low)
        for i in range(len(totals)):
            score = np.int64(np.rint((totals[i] - low) * step))
            scores[i] = score if score < most else most - 1
    else:
        scores[:] = most - 1
    scores[favourite] = most
    return favourite
