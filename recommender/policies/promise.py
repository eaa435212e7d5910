"""Upper bounds for the next run of a class, from few earlier ones and from how far runs of other classes spread.

Logarithms of memory are taken as normal within a class, with a variance of its own. Variances of classes are taken as
draws from a scaled inverse chi-squared distribution with `POOLED_RUNS` degrees of freedom (as in Smyth, "Linear models
and empirical Bayes methods", 2004). So the next run follows Student's t distribution: with one earlier run the spread
of the other classes decides, and with many that of the class itself. Every class counts once, however many runs it has.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from recommender.records import FloatArray

POOLED_RUNS = 2
"""Runs as many as which the spread of the other classes counts beside those of the class itself."""

TRAINED_CLASSES = 10.0
"""Classes as many as which a trained model counts beside those of a namespace."""

LEAST_VARIANCE = 0.02**2
"""Added to each variance of logarithms: two runs that agree to the byte do not promise a third."""

MIN_CLASSES = 3  # without training: classes below which their spread is unknown
ITERATIONS = 50  # until the pooled variance is stable; each is a few array operations


def upper_bound(logs: FloatArray, pooled_variance: float, share: float) -> float:
    """What the next of these logarithms, float64 (n,), exceeds with a probability of `share`; infinite if unknown.

    `pooled_variance` is that of other classes, NaN if unknown. Of many runs the k-th smallest counts too: it holds
    with a probability of k / (n + 1), whatever the distribution.
    """
    n, pooled = len(logs), 0 if math.isnan(pooled_variance) else POOLED_RUNS
    freedom = pooled + n - 1
    if n == 0 or freedom < 1:
        return math.inf
    squares = float(logs.var()) * n + (n - 1) * LEAST_VARIANCE + (pooled * pooled_variance if pooled else 0.0)
    parametric = float(logs.mean()) + t_quantile(share, freedom) * math.sqrt(squares / freedom * (1.0 + 1.0 / n))
    place = min(math.ceil((n + 1) * (1.0 - share)), n)
    return max(parametric, float(np.sort(logs)[place - 1]))


def spread_of(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variances of logarithms, float64 (runs, k), NaN where unknown, and the numbers of runs less one; 0 for none."""
    known = ~np.isnan(logs)
    runs = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, logs, 0.0).sum(axis=0) / runs
    squares = np.where(known, (logs - means) ** 2, 0.0).sum(axis=0)
    return squares / np.maximum(runs - 1, 1), (runs - 1).astype(np.float64)


def pooled_variances(variances: FloatArray, freedom: FloatArray, trained: FloatArray) -> FloatArray:
    """Variance of runs of classes like these, of each kind of amount, float64 (k,); NaN for too few classes.

    `variances` and `freedom`: float64 (classes, k): of each class, and its runs less one; 0 for none.
    `trained`: float64 (k,): what a trained model has found elsewhere, NaN for nothing.

    The scale of the inverse chi-squared distribution with the largest marginal likelihood, a fixed point.
    """
    known = freedom > 0
    squares = freedom * (variances + LEAST_VARIANCE)
    elsewhere = np.where(np.isnan(trained), 0.0, TRAINED_CLASSES)
    classes = known.sum(axis=0) + elsewhere
    if not known.any():
        return trained
    pooled = np.where(elsewhere > 0.0, trained, squares.sum(axis=0) / np.maximum(freedom.sum(axis=0), 1.0))
    trained_precision = elsewhere / np.where(elsewhere > 0.0, trained, 1.0)
    for _ in range(ITERATIONS):
        precisions = np.where(known, (POOLED_RUNS + freedom) / (POOLED_RUNS * pooled + squares + (~known)), 0.0)
        pooled = classes / np.maximum(precisions.sum(axis=0) + trained_precision, np.finfo(float).tiny)
    return np.where(classes >= MIN_CLASSES, pooled, np.nan)


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: int) -> float:
    """What Student's t distribution exceeds with a probability of `share`.

    With t = sqrt(freedom) tan(angle) the density of the angle is cos(angle) ** (freedom - 1).

    >>> round(t_quantile(0.005, 2), 2)
    9.92
    """
    edges = np.linspace(0.0, math.pi / 2.0, 10_001)
    middles = (edges[1:] + edges[:-1]) / 2.0
    below = np.concatenate([[0.0], np.cumsum(np.cos(middles) ** (freedom - 1))])
    within = np.interp(1.0 - 2.0 * min(max(share, 1e-9), 0.5), below / below[-1], edges)
    return math.sqrt(freedom) * math.tan(within)
