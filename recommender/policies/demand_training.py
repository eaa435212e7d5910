"""How a demand model is learned: trees over moments, and a price per violation that holds on containers left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from recommender.kernels import correction
from recommender.kernels import demand as kernel
from recommender.kernels import past as facts_of
from recommender.policies.contexts import ContextLadder
from recommender.policies.demand import CURVE_STEPS, OWN_PACE, DemandModel, ResourceDemand, all_facts, references
from recommender.policies.earlier_runs import EarlierRuns
from recommender.policies.moments import FLOORS, Moments, collect_moments
from recommender.records import VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray, PhaseTrace, UsageSeries

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class DemandOptions:
    """Sizes of the model; the defaults are what cross-validation over very different sources liked."""

    trees: int = 32
    fewest_moments: int = 8
    """Per leaf."""
    most_leaves: int = 48
    share_of_facts: float = 0.4
    knots: int = 64
    floors: tuple[float, ...] = (0.0, 0.5, 2.0, np.inf)
    """Tried in units of the mean use, see `ResourceDemand.floor`."""
    widths: tuple[float, ...] = (0.002, 0.02, 0.05)
    """Tried softenings of a sample's level, in natural logarithm."""
    folds: int = 5
    most_moments: int = 6000
    fairness: float = 0.0
    prudence: float = 0.04
    """Share of the target that is kept back: a price that just met it where it was found would miss it half the time."""
    pace: correction.Pace = OWN_PACE
    targets: tuple[float, ...] = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)


@dataclass(frozen=True, slots=True)
class Fold:
    """A forest and the moments it did not learn from."""

    forest: kernel.Forest
    learned: BoolArray
    learned_leaves: NDArray[np.int32]
    other_leaves: NDArray[np.int32]


def fit_demand(
    series: Sequence[UsageSeries],
    phases: Sequence[PhaseTrace],
    *,
    cycle_samples: int,
    lag: int = 3,
    seed: int = 0,
    options: DemandOptions | None = None,
    progress: Progress | None = None,
) -> DemandModel:
    """Learn from containers and their phases.

    Parameters
    ----------
    series, phases
        Training containers, and the phase of each of their samples.
    cycle_samples
        How long an allocation holds.
    lag
        The first decision comes after lag + 1 samples.
    seed
        Same seed, same model.
    options
        Sizes.
    progress
        Called with (what, done, of).

    Raises
    ------
    NotEnoughData
        No container is long enough for a decision.
    """
    options = options or DemandOptions()
    rng = np.random.default_rng(seed)
    moments = collect_moments(series, phases, cycle_samples, lag)
    if len(moments.owners) > options.most_moments:
        moments = moments.take(np.sort(rng.choice(len(moments.owners), options.most_moments, replace=False)))
    n_phases = max((trace.n_phases for trace in phases), default=1)
    learner = _Learner(moments, n_phases, options, seed, rng)
    folds = []
    for number in range(learner.n_folds):
        if progress is not None:
            progress("demand", number, learner.n_folds + 1)
        folds.append(learner.fold(number))
    everything = learner.fold(None)
    if progress is not None:
        progress("demand", learner.n_folds, learner.n_folds + 1)
    n_leaves = n_leaves_of(everything.forest)
    learned = [learner.resource(r, folds, everything) for r in range(2)]
    if progress is not None:
        progress("demand", learner.n_folds + 1, learner.n_folds + 1)
    return DemandModel(
        cycle_samples,
        lag,
        options.fairness,
        learner.ladder(moments),
        learner.runs(moments),
        everything.forest,
        np.bincount(everything.learned_leaves.ravel(), minlength=n_leaves).astype(np.int32),
        (learned[0], learned[1]),
    )


class _Learner:
    """One training: the moments, which fold each is in, and what to group them by."""

    def __init__(
        self, moments: Moments, n_phases: int, options: DemandOptions, seed: int, rng: np.random.Generator
    ) -> None:
        self.moments, self.n_phases, self.options, self.seed = moments, n_phases, options, seed
        self.outcomes = moments.outcomes()
        self.targets = grouping_targets(moments)
        containers = rng.permutation(np.unique(moments.owners))
        self.n_folds = min(options.folds, len(containers))
        number = np.zeros(len(moments.workloads), np.int64)
        number[containers] = np.arange(len(containers))
        self.number = number[moments.owners]

    def ladder(self, moments: Moments, outcomes: FloatArray | None = None) -> ContextLadder:
        peaks = (self.outcomes if outcomes is None else outcomes)[:, :2]
        return ContextLadder.fit(moments.past, peaks, self.n_phases)

    def runs(self, moments: Moments, outcomes: FloatArray | None = None) -> EarlierRuns:
        of_each = [moments.workloads[owner] for owner in moments.owners]
        return EarlierRuns.fit(
            moments.past, self.outcomes if outcomes is None else outcomes, moments.owners, of_each
        )

    def fold(self, which: int | None) -> Fold:
        """A forest learned from all folds but one (None: from all)."""
        learned = np.ones(len(self.number), bool) if which is None else self.number % self.n_folds != which
        if not learned.any():
            learned[:] = True
        part, outcomes, number = self.moments.take(learned), self.outcomes[learned], self.number[learned]
        facts = self.facts_as_if_unseen(part, outcomes, number)
        forest = grow(facts, self.targets[learned], part.samples, self.options, self.seed)
        rest = self.moments.take(~learned)
        other = self.facts_of_others(rest, self.ladder(part, outcomes), self.runs(part, outcomes))
        return Fold(forest, learned, leaves_of(facts, forest), leaves_of(other, forest))

    def facts_as_if_unseen(self, moments: Moments, outcomes: FloatArray, number: IntArray) -> FloatArray:
        """Facts of training moments from contexts and runs that know nothing of their own container.

        Contexts come from other tenths of the containers and not from all but one: leaving out just the container
        itself would give its own outcome away, by how much the rest misses it.
        """
        facts = np.empty((len(number), N_FACTS))
        runs = self.runs(moments, outcomes)
        for tenth in np.unique(number % 10):
            inside = number % 10 == tenth
            known = inside if inside.all() else ~inside
            ladder = self.ladder(moments.take(known), outcomes[known])
            for owner in np.unique(moments.owners[inside]):
                own = moments.owners == owner
                facts[own] = all_facts(moments.past[own], ladder, runs, self.class_of(moments, owner), int(owner))
        return facts

    def class_of(self, moments: Moments, owner: int) -> str | None:
        """Its class; one container in five keeps it to itself, so that the trees also learn to do without."""
        return None if owner % 5 == 4 else moments.workloads[owner]

    @staticmethod
    def facts_of_others(moments: Moments, ladder: ContextLadder, runs: EarlierRuns) -> FloatArray:
        facts = np.empty((len(moments.owners), N_FACTS))
        for owner in np.unique(moments.owners):
            own = moments.owners == owner
            facts[own] = all_facts(moments.past[own], ladder, runs, moments.workloads[owner])
        return facts

    def resource(self, resource: int, folds: Sequence[Fold], everything: Fold) -> ResourceDemand:
        """Choose floor and softening by slack on containers left out, and find the prices."""
        coming = np.ascontiguousarray(self.moments.coming[:, :, resource])
        judge = _Judge(coming, self.moments.past, self.moments.owners, resource, self.options)
        trials = [_Trial(floor, self.options.widths[len(self.options.widths) // 2]) for floor in self.options.floors]
        best = min(trials, key=lambda trial: judge.slack(trial, folds))
        others = [_Trial(best.floor, width) for width in self.options.widths if width != best.width]
        best = min([best, *others], key=lambda trial: judge.slack(trial, folds))
        pooled, knots, reference = judge.pool(best, folds)
        prices = judge.prices(pooled, knots, reference, self.options.targets)
        curves = judge.curves(best, knots, reference)
        sums, moments = gathered(everything.learned_leaves, curves, n_leaves_of(everything.forest))
        samples = sums[:, -1] / np.maximum(moments, 1)
        shares = np.rint(CURVE_STEPS * sums / np.maximum(sums[:, -1:], 1e-9)).astype(np.uint8)
        floor = best.floor * judge.mean if np.isfinite(best.floor) else np.inf
        return ResourceDemand(
            floor,
            knots,
            shares,
            samples.astype(np.float32),
            np.array(self.options.targets),
            np.array(prices),
            float(np.nanmax(coming)),
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    floor: float
    width: float


class _Judge:
    """Slack and violations of one resource on moments whose forest has not learned from them."""

    def __init__(
        self, coming: FloatArray, past: FloatArray, owners: IntArray, resource: int, options: DemandOptions
    ) -> None:
        self.owners = owners
        self.coming, self.past, self.resource, self.options = coming, past, resource, options
        self.mean = max(float(np.nanmean(coming)), FLOORS[resource])
        self.used = float(np.nansum(coming))
        self.n_samples = int(np.count_nonzero(~np.isnan(coming)))

    def references(self, floor: float) -> FloatArray:
        return references(self.past, self.resource, floor * self.mean if np.isfinite(floor) else np.inf)

    def curves(self, trial: _Trial, knots: FloatArray, reference: FloatArray) -> NDArray[np.float32]:
        curves = np.empty((len(self.coming), len(knots)), np.float32)
        kernel.sample_curves(self.coming, reference, knots, trial.width * LOGISTIC_WIDTH, curves)
        return curves

    def pool(self, trial: _Trial, folds: Sequence[Fold]) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
        """What the forests of the other folds expect of each moment."""
        reference = self.references(trial.floor)
        knots = place_knots(self.coming, reference, self.options.knots)
        curves = self.curves(trial, knots, reference)
        pooled = np.empty_like(curves)
        for fold in folds:
            sums, moments = gathered(fold.learned_leaves, curves[fold.learned], n_leaves_of(fold.forest))
            means = (sums / np.maximum(moments, 1)[:, np.newaxis]).astype(np.float32)
            if len(fold.other_leaves):
                part = np.empty((len(fold.other_leaves), len(knots)), np.float32)
                kernel.pool_leaves(fold.other_leaves, means, part)
                pooled[~fold.learned] = part
            else:
                kernel.pool_leaves(fold.learned_leaves, means, pooled)
        return pooled, knots, reference

    def outcome(
        self, pooled: NDArray[np.float32], knots: FloatArray, reference: FloatArray, price: float
    ) -> tuple[float, float]:
        """Slack ratio and violation ratio at a price."""
        sums = np.empty(2)
        grid = kernel.grid_of(knots, VIOLATION_TOLERANCE)
        at = (price, self.options.fairness)
        correction.rehearse(self.coming, self.owners, pooled, reference, grid, at, self.options.pace, sums)
        return sums[0] / max(self.used, 1e-300), sums[1] / max(self.n_samples, 1)

    def prices(
        self, pooled: NDArray[np.float32], knots: FloatArray, reference: FloatArray, targets: Sequence[float]
    ) -> list[float]:
        """The smallest price that keeps violations at each target, less prudence, found by bisection."""
        unit = self.mean ** (1.0 - self.options.fairness)
        found = []
        for target in targets:
            low, high = np.log(1e-5 * unit), np.log(1e5 * unit)
            for _ in range(26):
                middle = 0.5 * (low + high)
                violations = self.outcome(pooled, knots, reference, float(np.exp(middle)))[1]
                low, high = (low, middle) if violations <= target * (1.0 - self.options.prudence) else (middle, high)
            found.append(float(np.exp(high)))
        return found

    def slack(self, trial: _Trial, folds: Sequence[Fold]) -> float:
        """Slack ratio at the default target of 5 % violations."""
        pooled, knots, reference = self.pool(trial, folds)
        (price,) = self.prices(pooled, knots, reference, (0.05,))
        return self.outcome(pooled, knots, reference, price)[0]


LOW_SHARE = 0.05
"""Levels below this share of the mean need no knots: what is allocated there costs next to nothing."""

N_FACTS = facts_of.N_PAST + 13
LOGISTIC_WIDTH = 0.6
"""A logistic of this width has about the spread of a normal of width 1."""


def grouping_targets(moments: Moments) -> FloatArray:
    """What trees group moments by, float64 (m, 10): peak, ninth decile and mean of the coming cycle, absolute and
    relative to the cycle just ended, for both resources, each scaled to unit spread."""
    columns: list[FloatArray] = []
    for resource in range(2):
        coming = moments.coming[:, :, resource]
        floor = np.fmax(coming, FLOORS[resource])
        low = max(0.02 * float(np.nanmedian(coming)), FLOORS[resource])
        level = np.log(np.where(np.isnan(coming), np.nan, np.fmax(coming, low)))
        real = np.log(np.where(np.isnan(coming), np.nan, floor))
        at = facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS
        now = moments.past[:, at + facts_of.NOW]
        peak, mean = now + moments.past[:, at + facts_of.CYCLE_PEAK], now + moments.past[:, at + facts_of.CYCLE_MEAN]
        columns += [
            np.nanmax(level, axis=1),
            np.nanquantile(level, 0.9, axis=1),
            np.nanmean(level, axis=1),
            np.clip(np.nanmax(real, axis=1) - peak, -3.0, 3.0),
            np.clip(np.nanmean(real, axis=1) - mean, -3.0, 3.0),
        ]
    targets = np.column_stack(columns)
    return targets / (targets.std(axis=0) + 1e-9)


def grow(facts: FloatArray, targets: FloatArray, samples: IntArray, options: DemandOptions, seed: int) -> kernel.Forest:
    """A random forest, as plain arrays."""
    forest = RandomForestRegressor(
        options.trees,
        min_samples_leaf=min(options.fewest_moments, max(1, len(facts) // 4)),
        max_leaf_nodes=options.most_leaves,
        max_features=options.share_of_facts,
        random_state=seed,
        n_jobs=1,
    )
    forest.fit(facts.astype(np.float32), targets, sample_weight=np.sqrt(samples))
    trees = [estimator.tree_ for estimator in forest.estimators_]
    nodes = np.cumsum([0, *(tree.node_count for tree in trees)])
    n_leaves = np.cumsum([0, *(tree.n_leaves for tree in trees)])
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for tree, first, first_leaf in zip(trees, nodes, n_leaves, strict=False):
        leaf = tree.children_left < 0
        numbers = first_leaf + np.cumsum(leaf) - 1
        parts.append(
            (
                np.where(leaf, -1, tree.feature),
                np.where(leaf, 0.0, tree.threshold),
                np.where(leaf, numbers, tree.children_left + first),
                np.where(leaf, -1, tree.children_right + first),
            )
        )
    feature, threshold, left, right = (np.concatenate(column) for column in zip(*parts, strict=True))
    return kernel.Forest(
        nodes[:-1].astype(np.int32),
        feature.astype(np.int16),
        threshold.astype(np.float32),
        left.astype(np.int32),
        right.astype(np.int32),
    )


def n_leaves_of(forest: kernel.Forest) -> int:
    """Leaves of all trees together."""
    return int(np.count_nonzero(forest.feature < 0))


def leaves_of(facts: FloatArray, forest: kernel.Forest) -> NDArray[np.int32]:
    """int32 (m, t): the leaf of each tree."""
    leaves = np.empty((len(facts), len(forest.roots)), np.int32)
    kernel.find_leaves(np.ascontiguousarray(facts), forest, leaves)
    return leaves


def gathered(
    leaves: NDArray[np.int32], curves: NDArray[np.float32], n_leaves: int
) -> tuple[FloatArray, IntArray]:
    """Summed curves and number of moments of each leaf."""
    sums, moments = np.empty((n_leaves, curves.shape[1])), np.empty(n_leaves, np.int64)
    kernel.gather_leaves(leaves, curves, sums, moments)
    return sums, moments


def place_knots(coming: FloatArray, reference: FloatArray, number: int) -> FloatArray:
    """Where curves are kept: half of the knots where samples or cheapest allocations lie, half evenly spread.

    The cheapest allocation lies a tolerance below some sample, so the levels below each are as important as the samples.
    """
    relative = (coming / reference[:, np.newaxis])[~np.isnan(coming)]
    levels = np.log(np.fmax(relative, LOW_SHARE * max(float(relative.mean()), 1e-9)))
    low, high = float(np.quantile(levels, 0.02)) - 0.06, float(levels.max()) + 0.02
    quantiles = np.quantile(levels, np.linspace(0.02, 1.0, number // 4))
    dense = np.concatenate([quantiles, quantiles - np.log(VIOLATION_TOLERANCE)])
    even = np.linspace(low, high, number - len(dense))
    return _apart(np.unique(np.concatenate([dense, even])))


def _apart(knots: FloatArray) -> FloatArray:
    """Drop knots that coincide to within a hundred-thousandth."""
    keep = np.concatenate([[True], np.diff(knots) > 1e-5])
    keep[-1] = True
    kept = knots[keep]
    return kept if len(kept) > 1 and kept[-1] - kept[-2] > 0 else np.array([knots[0], knots[0] + 1e-3])


__all__ = ["DemandOptions", "fit_demand"]
