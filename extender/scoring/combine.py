"""How much each scorer counts; and what they say, into the integers 0 to 10 that a scheduler takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.pod import PLACEMENT_ANNOTATION, WEIGHTS_ANNOTATION
from extender.scoring.scorers import SCORERS, NodeScores
from extender.view.snapshot import Floats, Integers
from recommender.errors import Misuse

PLACEMENT_WEIGHT = 5.0
"""What `pack` or `spread` counts for a pod that asks for it by `phasewise.dev/placement`: more than any peak that is no
overload."""


MAX_WEIGHT = 1e6
"""A weight without bound would leave nothing to be told apart."""


def parse_weights(text: str) -> dict[str, float]:
    """From `complement=3,specon=1`.

    Raises
    ------
    Misuse
        A scorer is not known, or a weight is not a number of 0 to a million.
    """
    weights = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if name not in SCORERS or not 0.0 <= weight <= MAX_WEIGHT:
            raise Misuse(f"weight {part[:60]!r}: write scorer=number, of {', '.join(SCORERS)}, and 0 to a million.")
        weights[name] = weight
    return weights


def weights_for(words: Mapping[str, str], configured: Mapping[str, float]) -> Mapping[str, float]:
    """The configured weights, with what a pod's annotations say; one that cannot be read counts for nothing."""
    placement, own = words.get(PLACEMENT_ANNOTATION), words.get(WEIGHTS_ANNOTATION)
    if placement is None and own is None:
        return configured
    weights = dict(configured)
    if placement in ("pack", "spread"):
        weights |= {"pack": 0.0, "spread": 0.0, placement: PLACEMENT_WEIGHT}
    try:
        weights |= parse_weights(own or "")
    except Misuse:
        return weights
    return weights


MAX_SCORE = 10
"""`MaxExtenderPriority`."""

NEUTRAL = 5
"""For pods that are none of ours, and nodes not known: a node left out would lose every tie."""

TOTAL_DECIMALS, USE_DECIMALS = 6, 4
"""Decimals in which totals, and present use, must differ: below lies the noise of single precision."""


class ScaledScores(NamedTuple):
    """`scores` (m,) of 0 to 10, and which node is the one to take."""

    scores: NDArray[np.int64]
    favourite: int


def weighted_mean(said: Mapping[str, NodeScores], weights: Mapping[str, float], nodes: int) -> NDArray[np.float64]:
    """(nodes,): the weighted mean of what the scorers said; all the same where nobody said anything that counts."""
    total, weight_in_all = np.zeros(nodes), 0.0
    for name, scores in said.items():
        total += weights[name] * scores.values
        weight_in_all += weights[name]
    return (total / weight_in_all).round(TOTAL_DECIMALS) if weight_in_all > 0.0 else total


def scaled_scores(totals: NDArray[np.float64], use: Floats, rank: Integers) -> ScaledScores:
    """Totals scaled over the nodes of the request.

    One node gets 10: the best; of equal ones that in least use, and of those the first in `rank`. All others get 9 at
    most, so that the scheduler, which draws among equals, draws the favourite alone, and we know which it is. Use
    breaks ties and nothing else.

    Parameters
    ----------
    totals, use
        (m,) at least one.
    rank
        (m,) all different; does not depend on the order in which nodes are asked about.

    Examples
    --------
    S of 6, 3.5, 4 and 11 (smallest best) becomes 7, 10, 9, 0.
    """
    low, high = totals.min(), totals.max()
    best = np.flatnonzero(totals == high)
    least = best[(there := use[best].round(USE_DECIMALS)) == there.min()]
    favourite = int(least[rank[least].argmin()])
    share = (totals - low) / (high - low) if high > low else np.ones(len(totals))
    scores = np.minimum(np.rint(MAX_SCORE * share).astype(np.int64), MAX_SCORE - 1)
    scores[favourite] = MAX_SCORE
    return ScaledScores(scores, favourite)
