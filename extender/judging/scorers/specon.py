"""SpeCon's node score (algorithm 4): go where the fewest jobs still learn."""

from __future__ import annotations

import numpy as np

from extender.judging.question import Question
from extender.judging.scorers.opinion import Facts, Opinion
from extender.kernels.scores import learning
from recommender.records import CPU

WEIGHTS = (2.0, 1.5, 1.0)
"""Of progressing, watching and converged containers. S moves in halves."""

TIE = 0.25
"""How much a node in full use adds to S: less than a half, so that present use decides between equal S alone."""


def judge(question: Question) -> Opinion | None:
    """S(worker) = 2 |PC| + 1.5 |WC| + 1 |CC|.

    The smallest S gets 1, the largest 0; of equal ones the node in less use is better.

    Examples
    --------
    Workers that hold 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC have S = 6, 3.5, 4, 11: the second is the best.
    """
    held = question.held
    scores, values = np.empty((2, held.shape[1]))
    learning(held, WEIGHTS, question.load[CPU, 0], question.per_unit[CPU], TIE, scores, values)
    return Opinion(values, {"S": scores, **dict(zip(("pc", "wc", "cc"), held, strict=True))})


def words(facts: Facts) -> str:
    """Such as `S = 3.5: 1 progressing, 1 watching, 0 converged`."""
    return f"S = {facts['S']:g}: {facts['pc']:g} progressing, {facts['wc']:g} watching, {facts['cc']:g} converged"
