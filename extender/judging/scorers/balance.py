"""CPU and memory used up at the same rate, so that neither is left over where the other is gone."""

from __future__ import annotations

import numpy as np

from extender.judging.question import Question
from extender.judging.scorers.opinion import Facts, Opinion
from extender.kernels.scores import balance
from recommender.records import CPU, MEMORY


def judge(question: Question) -> Opinion | None:
    """1 where both will be used to the same share in the mean of the coming hour, 0 where one alone is used."""
    _, mean = question.peak_and_mean
    values = np.empty(mean.shape[1])
    balance(mean, values)
    return Opinion(values, {"cpu": mean[CPU], "memory": mean[MEMORY]})


def words(facts: Facts) -> str:
    """Such as `40% CPU beside 35% memory in the mean`."""
    return f"{facts['cpu']:.0%} CPU beside {facts['memory']:.0%} memory in the mean"
