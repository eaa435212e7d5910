"""SpeCon's node score (algorithm 4): go where the fewest jobs still learn."""

from __future__ import annotations

import numpy as np

from extender.question import Question
from extender.scorers.opinion import Facts, Opinion
from extender.snapshot import Floats
from recommender.records import CPU

WEIGHTS = (2.0, 1.5, 1.0)
"""Of progressing, watching and converged containers. S moves in halves."""

TIE = 0.25
"""How much a node in full use adds to S: less than a half, so that present use decides between equal S alone."""


def judge(question: Question) -> Opinion | None:
    """The smallest S gets 1, the largest 0; of equal ones the node in less use is better.

    Examples
    --------
    Workers that hold 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC have S = 6, 3.5, 4, 11: the second is the best.
    """
    snapshot = question.snapshot
    held = question.here(snapshot.categories)
    use = question.here(snapshot.load[CPU, 0] * snapshot.per_unit[CPU]).clip(0.0, 1.0)
    scores = s_of(held)
    facts = {"S": scores, **dict(zip(("pc", "wc", "cc"), held, strict=True))}
    return Opinion(_smallest_best(scores + TIE * use), facts)


def s_of(held: Floats) -> Floats:
    """S(worker) = 2 |PC| + 1.5 |WC| + 1 |CC|, of (3, m) counts."""
    scores: Floats = WEIGHTS[0] * held[0] + WEIGHTS[1] * held[1] + WEIGHTS[2] * held[2]
    return scores


def _smallest_best(scores: Floats) -> Floats:
    low, high = scores.min(), scores.max()
    return np.ones_like(scores) if high <= low else (high - scores) / (high - low)


def words(facts: Facts) -> str:
    """Such as `S = 3.5: 1 progressing, 1 watching, 0 converged`."""
    return f"S = {facts['S']:g}: {facts['pc']:g} progressing, {facts['wc']:g} watching, {facts['cc']:g} converged"
