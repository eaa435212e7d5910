"""Averages over what is known near a point."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


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
        Distance, beyond that of the nearest point, at which a point counts exp(-1/2).
    found
        OUT float64 (m, at least 7): four means, the standard deviation of the first two, ln(1 + effective number of
        points). A row for which there is no point is left as it is.
    """
    distances = np.empty(len(known))
    for row in range(len(points)):
        nearest = math.inf
        for other in range(len(known)):
            distance = math.inf
            if owners[other] != besides:
                distance = 0.0
                for axis in range(points.shape[1]):
                    distance += (points[row, axis] - known[other, axis]) ** 2
            distances[other] = distance
            nearest = min(nearest, distance)
        if not math.isfinite(nearest):
            continue
        total, squares = 0.0, 0.0
        sums, spread = np.zeros(4), np.zeros(2)
        for other in range(len(known)):
            if not math.isfinite(distances[other]):
                continue
            weight = math.exp(-(distances[other] - nearest) / (2.0 * reach * reach))
            total += weight
            squares += weight * weight
            for outcome in range(4):
                sums[outcome] += weight * outcomes[other, outcome]
        for outcome in range(4):
            found[row, outcome] = sums[outcome] / total
        for other in range(len(known)):
            if math.isfinite(distances[other]):
                weight = math.exp(-(distances[other] - nearest) / (2.0 * reach * reach))
                for resource in range(2):
                    spread[resource] += weight * (outcomes[other, resource] - found[row, resource]) ** 2
        for resource in range(2):
            found[row, 4 + resource] = math.sqrt(spread[resource] / total)
        found[row, 6] = math.log1p(total * total / squares)
