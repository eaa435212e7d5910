"""Together what does not peak together: forecast load of the node and the pod's own demand, over the coming hour."""

from __future__ import annotations

import numpy as np

from extender.question import Question
from extender.scorers.opinion import Facts, Opinion
from extender.snapshot import Floats
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


def judge(question: Question) -> Opinion | None:
    """Expected overload first: less of it is better. Where there is none, less of what there is if the forecast errs,
    then headroom, and evenness (mean over peak)."""
    peak, mean = question.peak, question.mean
    overload, risk = np.zeros(peak.shape[1]), np.zeros(peak.shape[1])
    near = np.flatnonzero((peak[CPU] > 1.0 - DOUBT) | (peak[MEMORY] > 1.0))
    if near.size:
        excess = question.fill[:, :, near] - 1.0
        killed = MEMORY_COUNTS * excess[MEMORY].max(axis=0).clip(0.0, None)
        overload[near] = excess[CPU].clip(0.0, None).mean(axis=0) + killed
        risk[near] = _expected(excess[CPU]).mean(axis=0)
    even = np.divide(mean, peak, out=np.ones_like(peak), where=peak > 0.0).mean(axis=0).clip(0.0, 1.0)
    headroom = 1.0 - peak.max(axis=0).clip(0.0, 1.0)
    spared = SPARED + CALM / (1.0 + STEEPNESS * risk) + HEADROOM * headroom + EVENNESS * even
    values = np.where(overload > 0.0, SPOILT / (1.0 + STEEPNESS * overload), spared)
    return Opinion(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload, "even": even})


def _expected(excess: Floats) -> Floats:
    """The excess to be expected where the true one lies anywhere within `DOUBT` of the forecast with equal chance."""
    reached = (excess + DOUBT).clip(0.0, 2.0 * DOUBT)
    expected: Floats = reached * reached / (4.0 * DOUBT) + (excess - DOUBT).clip(0.0, None)
    return expected


def words(facts: Facts) -> str:
    """Such as `peaks at 80% CPU and 35% memory, evenly used to 90%`."""
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else f"{peaks}, evenly used to {facts['even']:.0%}"
