"""Combines scorers by weight and scales the result to the scheduler's integer scores 0 to 10."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.pod import PLACEMENT_ANNOTATION, WEIGHTS_ANNOTATION
from extender.scoring.request import NodeScores
from extender.scoring.scorers import SCORERS
from extender.view.snapshot import Floats, Integers
from recommender.errors import Misuse

PLACEMENT_WEIGHT = 5.0
"""Weight of `pack` or `spread` for a pod that asks for it by `phasewise.dev/placement`: more than any difference of
peaks below overload."""

MAX_WEIGHT = 1e6  # larger weights would drown all other scorers in rounding


def parse_weights(text: str) -> dict[str, float]:
    """Parse weights such as `complement=3,specon=1`.

    Raises Misuse: a scorer is unknown, or a weight is not a number from 0 to a million.
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


def weights_for(annotations: Mapping[str, str], configured: Mapping[str, float]) -> Mapping[str, float]:
    """The configured weights, overridden by a pod's annotations; a malformed annotation is ignored."""
    placement, own = annotations.get(PLACEMENT_ANNOTATION), annotations.get(WEIGHTS_ANNOTATION)
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


MAX_SCORE = 10  # `MaxExtenderPriority`
NEUTRAL = 5  # score for pods that are not ours and for unknown nodes: a node without a score would lose every tie

TOTAL_DECIMALS, USE_DECIMALS = 6, 4
"""Rounding of totals and use before comparison: smaller differences are noise of single precision."""


class ScaledScores(NamedTuple):
    """`scores` (m,) from 0 to 10, and the index of the best node."""

    scores: NDArray[np.int64]
    favourite: int


def weighted_mean(by_scorer: Mapping[str, NodeScores], weights: Mapping[str, float], nodes: int) -> NDArray[np.float64]:
    """(nodes,): the weighted mean of the scorers' values; 0 if no scorer applies."""
    if not by_scorer:
        return np.zeros(nodes)
    total = sum(weights[name] * scores.values for name, scores in by_scorer.items())
    return np.asarray(total / sum(weights[name] for name in by_scorer)).round(TOTAL_DECIMALS)


def scaled_scores(totals: NDArray[np.float64], use: Floats, rank: Integers) -> ScaledScores:
    """Scale the totals over the nodes of the request.

    The best node gets 10; ties are broken by use, then by `rank`. All others get at most 9, since the scheduler picks
    at random among equal scores: so its choice is known. All are (m,), m >= 1; ranks are distinct, and independent of
    the order of nodes in the request. S of 6, 3.5, 4 and 11 (lowest is best) becomes 7, 10, 9, 0.
    """
    low, high = totals.min(), totals.max()
    best = np.flatnonzero(totals == high)
    least = best[(there := use[best].round(USE_DECIMALS)) == there.min()]
    favourite = int(least[rank[least].argmin()])
    share = (totals - low) / (high - low) if high > low else np.ones(len(totals))
    scores = np.minimum(np.rint(MAX_SCORE * share).astype(np.int64), MAX_SCORE - 1)
    scores[favourite] = MAX_SCORE
    return ScaledScores(scores, favourite)
