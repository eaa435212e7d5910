"""Together what does not peak together: forecast load of the node and the pod's own demand, over the coming hour."""

from __future__ import annotations

import numpy as np

from extender.judging.question import Question
from extender.judging.scorers.opinion import Facts, Opinion
from extender.kernels.scores import Worth, complement
from recommender.records import CPU, MEMORY

SPARED = 0.8
"""Any node that will not overload is worth at least this."""

SPOILT = 0.3
"""Any that will is worth less than this. With the weights as configured no other scorers together make up for the
difference: no pod overloads a node while another would have spared it."""

CALM, HEADROOM, EVENNESS = 0.08, 0.08, 0.04
"""What the rest of a spared node's value is made of."""

DOUBT = 0.15
"""Share of a node by which a forecast of its CPU may well be wrong: what comes so near its end counts in part."""

MEMORY_COUNTS = 4.0
"""Missing memory kills where missing CPU slows down."""

STEEPNESS = 10.0
"""At a tenth of the node too much, a node is worth half of what it is at nearly nothing too much."""


WORTH = Worth(SPARED, SPOILT, CALM, HEADROOM, EVENNESS, DOUBT, MEMORY_COUNTS, STEEPNESS)


def judge(question: Question) -> Opinion | None:
    """Expected overload first: less of it is better. Where there is none, less of what there is if the forecast errs,
    then headroom, and evenness (mean over peak)."""
    peak, mean = question.peak_and_mean
    values, overload, even = np.empty((3, peak.shape[1]))
    complement(question.load, question.demand, question.per_unit, peak, mean, WORTH, values, overload, even)
    return Opinion(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload, "even": even})


def words(facts: Facts) -> str:
    """Such as `peaks at 80% CPU and 35% memory, evenly used to 90%`."""
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else f"{peaks}, evenly used to {facts['even']:.0%}"
