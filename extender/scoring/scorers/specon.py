"""SpeCon's node score (algorithm 4): prefer nodes with the fewest jobs that still learn."""

from __future__ import annotations

import numpy as np

from extender.scoring.request import Facts, NodeScores, PlacementRequest
from recommender.contention.specon import WEIGHTS

SCORE_RANGE = 100.0
"""A node whose S exceeds the smallest by this (fifty learning jobs) gets 0. Fixed, so that a job counts the same in any
cluster."""


def score(request: PlacementRequest) -> NodeScores | None:
    """S(worker) = 2 |PC| + 1.5 |WC| + 1 |CC|; the smallest gets 1.

    Examples
    --------
    Nodes with 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC have S = 6, 3.5, 4, 11: the second is the best.
    """
    counts = request.at_nodes(request.snapshot.categories)
    sums = np.dot(WEIGHTS, counts)
    values = 1.0 - np.minimum((sums - sums.min()) / SCORE_RANGE, 1.0)
    return NodeScores(values, {"S": sums, **dict(zip(("pc", "wc", "cc"), counts.copy(), strict=True))})


def explain(facts: Facts) -> str:
    """Such as `S = 3.5: 1 progressing, 1 watching, 0 converged`."""
    return f"S = {facts['S']:g}: {facts['pc']:g} progressing, {facts['wc']:g} watching, {facts['cc']:g} converged"
