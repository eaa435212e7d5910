"""What a violation must cost so that a target is met on containers left out, and how levels are best compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import correction
from recommender.kernels import demand as kernel
from recommender.policies.demand import Basis, references
from recommender.policies.demand_forest import Fold, gathered, n_leaves_of
from recommender.policies.demand_options import DemandOptions
from recommender.policies.moments import FLOORS, Moments
from recommender.records import VIOLATION_TOLERANCE, FloatArray

SCALE_FREE_BONUS = 0.002
"""Slack ratio that a floor must save to be worth having: without one a container unlike any seen still gets its due."""

LOW_SHARE = 0.05
"""Levels below this share of the mean need no knots: what is allocated there costs next to nothing."""

MOST_KEPT_BACK = 0.3
"""Share of the target; from about 70 containers on less is kept back."""

LOGISTIC_WIDTH = 0.6
"""A logistic of this width has about the spread of a normal of width 1."""


@dataclass(frozen=True, slots=True)
class Trial:
    basis: Basis
    floor: float
    width: float


class Judge:
    """Slack and violations of one resource on moments whose forest has not learned from them."""

    def __init__(self, moments: Moments, resource: int, options: DemandOptions) -> None:
        self.moments, self.resource, self.options = moments, resource, options
        self.every_coming = np.ascontiguousarray(moments.coming[:, :, resource])
        self.judged = moments.schedules == 0
        self.coming, self.owners = self.every_coming[self.judged], moments.owners[self.judged]
        self.n_containers = len(np.unique(self.owners))
        self.mean = max(float(np.nanmean(self.coming)), FLOORS[resource])
        self.used = float(np.nansum(self.coming))
        self.n_samples = int(np.count_nonzero(~np.isnan(self.coming)))

    def references(self, trial: Trial) -> FloatArray:
        """float64 (m,): of all moments."""
        floor = trial.floor * self.mean if np.isfinite(trial.floor) else np.inf
        return references(self.moments.past, self.resource, trial.basis, floor)

    def curves(self, trial: Trial, knots: FloatArray) -> NDArray[np.float32]:
        """float32 (m, g): of all moments."""
        curves = np.empty((len(self.every_coming), len(knots)), np.float32)
        width = trial.width * LOGISTIC_WIDTH
        kernel.sample_curves(self.every_coming, self.references(trial), knots, width, curves)
        return curves

    def pool(self, trial: Trial, folds: Sequence[Fold]) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
        """What the forests of the other folds expect of each judged moment, the knots, and the references."""
        reference = self.references(trial)
        knots = place_knots(self.every_coming, reference, self.options.knots)
        curves = self.curves(trial, knots)
        pooled = np.empty_like(curves)
        for fold in folds:
            sums, moments = gathered(fold.learned_leaves, curves[fold.learned], n_leaves_of(fold.forest))
            means = (sums / np.maximum(moments, 1)[:, np.newaxis]).astype(np.float32)
            leaves, rows = (
                (fold.other_leaves, fold.others) if fold.others.any() else (fold.learned_leaves, fold.learned)
            )
            part = np.empty((len(leaves), len(knots)), np.float32)
            kernel.pool_leaves(leaves, means, part)
            pooled[rows] = part
        return np.ascontiguousarray(pooled[self.judged]), knots, reference[self.judged]

    def outcome(
        self, pooled: NDArray[np.float32], knots: FloatArray, reference: FloatArray, price: float
    ) -> tuple[float, float]:
        """Slack and violation ratio at a price."""
        results = np.empty((len(pooled), 2))
        grid = kernel.grid_of(knots, VIOLATION_TOLERANCE)
        at = (price, self.options.fairness)
        correction.rehearse(self.coming, self.owners, pooled, reference, grid, at, self.options.pace, results)
        slack, over = results.sum(axis=0)
        return slack / max(self.used, 1e-300), over / max(self.n_samples, 1)

    def prices(
        self, pooled: NDArray[np.float32], knots: FloatArray, reference: FloatArray, targets: Sequence[float]
    ) -> list[float]:
        """The smallest price that keeps violations at what may be seen of each target; found by bisection."""
        unit = self.mean ** (1.0 - self.options.fairness)
        found = []
        for target in (may_be_seen(target, self.n_containers) for target in targets):
            low, high = np.log(1e-9 * unit), np.log(1e4 * unit)
            for _ in range(28):
                middle = 0.5 * (low + high)
                violations = self.outcome(pooled, knots, reference, float(np.exp(middle)))[1]
                low, high = (low, middle) if violations <= target else (middle, high)
            found.append(float(np.exp(high)))
        return found

    def slack(self, trial: Trial, folds: Sequence[Fold], target: float) -> float:
        """Slack ratio at a target."""
        pooled, knots, reference = self.pool(trial, folds)
        (price,) = self.prices(pooled, knots, reference, (target,))
        return self.outcome(pooled, knots, reference, price)[0] + (SCALE_FREE_BONUS if trial.floor > 0 else 0.0)


def may_be_seen(target: float, n_containers: int) -> float:
    """How much of a target may be used up on the containers at hand, so that the next one keeps it.

    What just meets a target on n containers misses it on the next one as often as not. Conformal prediction's finite
    sample rule counts the unseen one as the worst: ((n + 1) target - 1) / n. It gives up at 1 / target containers, so
    never more than `MOST_KEPT_BACK` of the target is kept back.

    Examples
    --------
    >>> round(may_be_seen(0.05, 336), 4), round(may_be_seen(0.05, 35), 4)
    (0.0472, 0.035)
    """
    return max(((n_containers + 1) * target - 1.0) / n_containers, (1.0 - MOST_KEPT_BACK) * target)


def place_knots(coming: FloatArray, reference: FloatArray, number: int) -> FloatArray:
    """Where curves are kept: two thirds of the knots where samples or cheapest allocations lie, the rest evenly spread.

    The cheapest allocation lies a tolerance below some sample, so the levels below each matter as much as the samples.
    """
    relative = (coming / reference[:, np.newaxis])[~np.isnan(coming)]
    levels = np.log(np.fmax(relative, LOW_SHARE * max(float(relative.mean()), 1e-9)))
    low, high = float(np.quantile(levels, 0.02)) - 0.06, float(levels.max()) + 0.02
    upper = 1.0 - np.geomspace(0.2, 0.002, number // 9)  # where a twentieth of the samples is told from a fiftieth
    at = np.concatenate([np.linspace(0.02, 1.0, number // 3 - len(upper)), upper])
    quantiles = np.quantile(levels, at)
    dense = np.concatenate([quantiles, quantiles - np.log(VIOLATION_TOLERANCE)])
    even = np.linspace(low, high, number - len(dense))
    return _apart(np.unique(np.concatenate([dense, even])))


def _apart(knots: FloatArray) -> FloatArray:
    """Drop knots that coincide to within a hundred-thousandth."""
    keep = np.concatenate([[True], np.diff(knots) > 1e-5])
    keep[-1] = True
    kept = knots[keep]
    return kept if len(kept) > 1 and kept[-1] - kept[-2] > 0 else np.array([knots[0], knots[0] + 1e-3])
