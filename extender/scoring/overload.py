"""How much of a pod's demand nodes are expected to be short of because of what is on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from extender.view.snapshot import Floats

TINY = 1e-9
"""Cores: what is certain has no reach to divide by."""


def added_overload(
    load: Floats, variance: Floats, demand: Floats, own_variance: Floats, per_unit: Floats
) -> NDArray[np.float64]:
    """(m,): the overload that a pod is expected to add to each node, as a share of all that it demands.

    What it would add to the largest of the nodes if that were empty is left out: no other node could spare it that.

    Parameters
    ----------
    load, variance
        (cells, m): expected use of CPU, and how uncertain it is (cores squared).
    demand, own_variance
        (cells,): the same of the pod.
    per_unit
        (m,): 1 / cores; 0 where that is not known, and nothing is added then.
    """
    asked = float(demand.sum())
    sized = per_unit > 0.0
    if not sized.any() or asked <= 0.0:
        return np.zeros(len(per_unit))
    cores = np.divide(1.0, per_unit, out=np.full(len(per_unit), np.inf), where=sized)
    short, unsure = load - cores, variance.clip(0.0, None)
    own, doubt = demand[:, None], own_variance[:, None].clip(0.0, None)
    more = (_above_zero(short + own, unsure + doubt) - _above_zero(short, unsure)).sum(axis=0)
    alone = _above_zero(own - cores[sized].max(), doubt).sum()
    shares: NDArray[np.float64] = (more - alone).clip(0.0, None) / asked
    return shares


def _above_zero(mean: Floats, variance: Floats) -> NDArray[np.float64]:
    """How far above zero in the mean is what has this mean and variance, anywhere around it with equal chance."""
    reach = np.sqrt(3.0 * variance) + TINY
    inside = np.minimum(np.maximum(mean + reach, 0.0), 2.0 * reach)
    above: NDArray[np.float64] = inside * inside / (4.0 * reach) + np.maximum(mean - reach, 0.0)
    return above
