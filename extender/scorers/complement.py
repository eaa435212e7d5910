"""Together what does not peak together: forecast load of the node and the pod's own demand, over the coming hour."""

from __future__ import annotations

import numpy as np

from extender.question import Question
from extender.scorers.opinion import Facts, Opinion
from recommender.records import CPU, MEMORY

SPARED = 0.5
"""Any node that will not overload is worth at least this; any that will, less."""

EVENNESS, HEADROOM = 0.3, 0.2
"""What the rest is made of."""

MEMORY_COUNTS = 4.0
"""Missing memory kills where missing CPU slows down."""

STEEPNESS = 10.0
"""At a tenth of the node too much, a node is worth half of what it is at nearly nothing too much."""


def judge(question: Question) -> Opinion | None:
    """Expected overload first: less of it is better. Where there is none, evenness (mean over peak) and headroom."""
    peak, mean = question.peak, question.mean
    overload = np.zeros(peak.shape[1])
    over = np.flatnonzero((peak > 1.0).any(axis=0))
    if over.size:
        excess = (question.fill[:, :, over] - 1.0).clip(0.0, None)
        overload[over] = excess[CPU].mean(axis=0) + MEMORY_COUNTS * excess[MEMORY].max(axis=0)
    even = np.divide(mean, peak, out=np.ones_like(peak), where=peak > 0.0).mean(axis=0)
    headroom = 1.0 - peak.max(axis=0).clip(0.0, 1.0)
    fits = SPARED + EVENNESS * even + HEADROOM * headroom
    values = np.where(overload > 0.0, SPARED / (1.0 + STEEPNESS * overload), fits)
    return Opinion(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload, "even": even})


def words(facts: Facts) -> str:
    """Such as `peaks at 80% CPU and 35% memory, evenly used to 90%`."""
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else f"{peaks}, evenly used to {facts['even']:.0%}"
