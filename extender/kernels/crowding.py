"""How much of a pod's demand nodes are expected to be short of because of what is on them."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


@njit(cache=True)
def added(
    load: Floats32,
    variance: Floats32,
    demand: Floats32,
    own_variance: Floats32,
    guessed: Floats,
    per_unit: Floats32,
    shares: Floats,
) -> None:
    """The overload that the pod is expected to add to each node, as a share of all that it demands.

    What it would add to the largest of the nodes if that were empty is left out: no other node could spare it that.

    Parameters
    ----------
    load, variance
        float32 (at least `cells`, m): expected use of CPU, and how uncertain it is (cores squared).
    demand, own_variance
        float32 (cells,): the same of the pod.
    guessed
        float64 (m,): cores of the load that count for nothing.
    per_unit
        float32 (m,): 1 / cores; 0 where that is not known, and nothing is added then.
    shares
        OUT float64 (m,).
    """
    shares[:] = 0.0
    least_per_unit = np.inf
    for node in range(len(shares)):
        if per_unit[node] > 0.0:
            least_per_unit = min(least_per_unit, float(per_unit[node]))
    asked = alone = 0.0
    for cell in range(len(demand)):
        own, doubt = float(demand[cell]), max(float(own_variance[cell]), 0.0)
        asked += own
        alone += _excess(own - 1.0 / least_per_unit, doubt)
        for node in range(len(shares)):
            if per_unit[node] > 0.0:
                there, unsure = float(load[cell, node]), max(float(variance[cell, node]), 0.0)
                short = max(there - guessed[node], 0.0) - 1.0 / float(per_unit[node])
                shares[node] += _excess(short + own, unsure + doubt) - _excess(short, unsure)
    for node in range(len(shares)):
        if asked > 0.0 and per_unit[node] > 0.0:
            shares[node] = max(shares[node] - alone, 0.0) / asked
        else:
            shares[node] = 0.0


@njit(cache=True, inline="always")
def _excess(mean: float, variance: float) -> float:
    """How far above zero in the mean is what has this mean and variance, anywhere around it with equal chance."""
    reach = sqrt(3.0 * variance)
    if mean >= reach:
        return mean
    if mean <= -reach:
        return 0.0
    return (mean + reach) ** 2 / (4.0 * reach)
