"""Many opinions into one number for each node, and these into the integers 0 to 10 that a scheduler takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.judging.scorers import Opinion
from extender.kernels import points
from extender.view.snapshot import Integers

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


def total_of(opinions: Mapping[str, Opinion], weights: Mapping[str, float], nodes: int) -> NDArray[np.float64]:
    """(nodes,): the weighted mean of the opinions there are; all the same where nobody has one that counts."""
    total, weight_in_all = np.zeros(nodes), 0.0
    for name, opinion in opinions.items():
        total += weights[name] * opinion.values
        weight_in_all += weights[name]
    if weight_in_all > 0.0:
        points.mean(total, weight_in_all, 10.0**SAME)
    return total


def points_of(totals: NDArray[np.float64], rank: Integers) -> Points:
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
    scores = np.empty(len(totals), dtype=np.int64)
    return Points(scores, points.scale(totals, rank, MOST, scores))
