"""Averages over what is known near a point."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

N_OUTCOMES, N_SPREADS = 4, 2


@njit(cache=True, nogil=True)
def average_nearby(
    points: NDArray[np.float64],
    known: NDArray[np.float32],
    outcomes: NDArray[np.float32],
    owners: NDArray[np.int64],
    besides: int,
    reach: float,
    found: NDArray[np.float64],
) -> None:
    """Average outcomes over known points, the nearer the more.

    Parameters
    ----------
    points
        float64 (m, p): where to look.
    known
        float32 (k, p): where something is known.
    outcomes
        float32 (k, 4): what is known there.
    owners
        int64 (k,): whose it is.
    besides
        An owner whose points are passed over.
    reach
        A point counts exp(-1/2) when the square of its distance exceeds that of the nearest one by reach squared.
    found
        OUT float64 (m, at least 7): four means, the standard deviation of the first two, ln(1 + effective number of
        points). A row for which there is no point is left as it is.
    """
    weights = np.empty(len(known))
    for row in range(len(points)):
        if not _weigh(points[row], known, owners, besides, reach, weights):
            continue
        total = weights.sum()
        for outcome in range(N_OUTCOMES):
            found[row, outcome] = np.sum(weights * outcomes[:, outcome]) / total
        for outcome in range(N_SPREADS):
            square = np.sum(weights * (outcomes[:, outcome] - found[row, outcome]) ** 2) / total
            found[row, N_OUTCOMES + outcome] = math.sqrt(square)
        found[row, N_OUTCOMES + N_SPREADS] = math.log1p(total * total / np.sum(weights**2))


@njit(cache=True, nogil=True)
def _weigh(
    point: NDArray[np.float64],
    known: NDArray[np.float32],
    owners: NDArray[np.int64],
    besides: int,
    reach: float,
    weights: NDArray[np.float64],
) -> bool:
    """Weight of each known point (OUT); False when there is none to ask."""
    nearest = math.inf
    for other in range(len(known)):
        weights[other] = math.inf
        if owners[other] != besides:
            weights[other] = np.sum((point - known[other]) ** 2)
        nearest = min(nearest, weights[other])
    if not math.isfinite(nearest):
        return False
    for other in range(len(known)):
        weights[other] = math.exp(-(weights[other] - nearest) / (2.0 * reach * reach))
    return True
