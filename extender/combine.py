"""Many opinions into one number for each node, and these into the integers 0 to 10 that a scheduler takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.scorers import Opinion
from extender.snapshot import Floats, Integers

MOST = 10
"""`MaxExtenderPriority`."""

NEUTRAL = 5
"""For pods that are none of ours, and nodes not known: a node left out would lose every tie."""

SAME = 6
"""Decimals in which totals must differ: below lies the noise of single precision."""


class Points(NamedTuple):
    """`scores` (m,) of 0 to 10, and which node is the one to take."""

    scores: NDArray[np.int64]
    favourite: int


def total_of(opinions: Mapping[str, Opinion], weights: Mapping[str, float], nodes: int) -> Floats:
    """(nodes,): the weighted mean of the opinions there are; all the same where nobody has one that counts."""
    total, weight_in_all = np.zeros(nodes), 0.0
    for name, opinion in opinions.items():
        total += weights[name] * opinion.values
        weight_in_all += weights[name]
    return np.round(total / weight_in_all, SAME) if weight_in_all > 0.0 else total


def points_of(totals: Floats, rank: Integers) -> Points:
    """Totals scaled over the nodes of the request.

    One node gets 10: the best, of equal ones the first in `rank`. All others get 9 at most, so that the scheduler,
    which draws among equals, draws the favourite alone, and we know which it is. Otherwise equal totals, equal scores.

    Parameters
    ----------
    totals
        (m,) at least one.
    rank
        (m,) all different; does not depend on the order in which nodes are asked about.

    Examples
    --------
    S of 6, 3.5, 4 and 11 (smallest best) becomes 7, 10, 9, 0.
    """
    low, high = totals.min(), totals.max()
    best = (totals == high).nonzero()[0]
    favourite = int(best[rank[best].argmin()] if len(best) > 1 else best[0])
    if high > low:
        scores = np.minimum(np.rint((totals - low) * (MOST / (high - low))), MOST - 1).astype(np.int64)
    else:
        scores = np.full(len(totals), MOST - 1, dtype=np.int64)
    scores[favourite] = MOST
    return Points(scores, favourite)
