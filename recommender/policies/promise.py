"""Upper bounds for the next run of a class, from few earlier ones and from how far runs of other classes spread.

Logarithms of memory are taken as normal within a class, with a variance of its own. Variances of classes are taken as
draws from a scaled inverse chi-squared distribution (as in Smyth, "Linear models and empirical Bayes methods", 2004),
which is fitted to the classes that are known: each counts once, however many runs it has. So the next run follows
Student's t distribution: with one earlier run the spread of other classes decides, with many that of the class itself.
The more unlike classes are, the less one tells of another, and the larger is the first bound.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from recommender.base.records import FloatArray

LIKENESS = (0.5, 1.0, 2.0, 4.0)
"""Degrees of freedom of the distribution of variances, of which one is chosen: more are more than few classes tell."""

LEAST_VARIANCE, LEAST_MARGIN = 0.02**2, 0.05
"""Added to each variance of logarithms, and to the largest: runs that agree to the byte do not promise another one."""

MIN_CLASSES = 3  # classes below which their spread is unknown
ITERATIONS = 50  # until a scale is stable; each is a few array operations
MOST_FREEDOM = 1024


class Spread(NamedTuple):
    """How far runs of a class spread: the scaled inverse chi-squared distribution of variances of logarithms."""

    variance: float = math.nan  # its scale; NaN if unknown
    freedom: float = 0.0


def upper_bound(logs: FloatArray, others: Spread, share: float) -> float:
    """What the next of these logarithms, float64 (n,), exceeds with a probability of `share`; infinite if unknown.

    `others` is the spread of other classes. Of many runs the k-th smallest counts too: it holds with a probability of
    k / (n + 1), whatever the distribution.
    """
    n, freedom = len(logs), others.freedom + len(logs) - 1
    if n == 0 or freedom <= 0.0:
        return math.inf
    squares = float(logs.var()) * n + (n - 1) * LEAST_VARIANCE
    if others.freedom > 0.0:
        squares += others.freedom * others.variance
    parametric = float(logs.mean()) + t_quantile(share, freedom) * math.sqrt(squares / freedom * (1.0 + 1.0 / n))
    place = min(math.ceil((n + 1) * (1.0 - share)), n)
    return max(parametric, float(np.sort(logs)[place - 1]) + LEAST_MARGIN)


def variances_of(logs: FloatArray) -> FloatArray:
    """float64 (2, k): variances of logarithms, float64 (runs, k), NaN where unknown; and the runs known less one."""
    known = ~np.isnan(logs)
    runs = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, logs, 0.0).sum(axis=0) / runs
    squares = np.where(known, (logs - means) ** 2, 0.0).sum(axis=0)
    return np.stack([squares / np.maximum(runs - 1, 1) + LEAST_VARIANCE, runs - 1.0])


def fit_spread(variances: FloatArray, freedom: FloatArray) -> Spread:
    """The spread of classes with these variances and numbers of runs less one, float64 (classes,) each.

    It has the largest marginal likelihood; for each likeness the scale is a fixed point.
    """
    known = freedom > 0.0
    if np.count_nonzero(known) < MIN_CLASSES:
        return Spread()
    freedom, squares = freedom[known], (freedom * variances)[known]
    best, best_likelihood = Spread(), -math.inf
    for likeness in LIKENESS:
        scale = squares.sum() / freedom.sum()
        for _ in range(ITERATIONS):
            scale = 1.0 / ((likeness + freedom) / (likeness * scale + squares)).mean()
        likelihood = (
            _log_gamma(likeness)[np.minimum(freedom, MOST_FREEDOM).astype(np.int64)]
            - math.lgamma(likeness / 2.0)
            + likeness / 2.0 * math.log(likeness * scale)
            - (likeness + freedom) / 2.0 * np.log(likeness * scale + squares)
        ).sum()
        if likelihood > best_likelihood:
            best, best_likelihood = Spread(float(scale), likeness), likelihood
    return best


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: float) -> float:
    """What Student's t distribution exceeds with a probability of `share`.

    With t = sqrt(freedom) tan(angle) the density of the angle is cos(angle) ** (freedom - 1). Towards a right angle,
    where it may be infinite, steps are shorter.

    >>> round(t_quantile(0.005, 2.0), 2)
    9.92
    """
    edges = math.pi / 2.0 * np.linspace(0.0, 1.0, 10_001) ** 3  # from a right angle downwards
    above = np.concatenate(
        [[0.0], np.cumsum(np.sin((edges[1:] + edges[:-1]) / 2.0) ** (freedom - 1.0) * np.diff(edges))]
    )
    left = np.interp(2.0 * min(max(share, 1e-9), 0.5), above / above[-1], edges)
    return math.sqrt(freedom) / math.tan(left)


@lru_cache(maxsize=len(LIKENESS))
def _log_gamma(likeness: float) -> FloatArray:
    """float64 (MOST_FREEDOM + 1,): logarithms of the gamma function at half of the likeness and 0, 1, 2, ... more."""
    return np.array([math.lgamma((likeness + more) / 2.0) for more in range(MOST_FREEDOM + 1)])
