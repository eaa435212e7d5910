"""How a demand model is learned: trees over moments, and a price per violation that holds on containers left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from recommender.policies.contexts import ContextLadder
from recommender.policies.demand import CURVE_STEPS, N_FACTS, Basis, DemandModel, ResourceDemand, all_facts, ever_peaks
from recommender.policies.demand_forest import Fold, gathered, grouping_targets, grow, leaves_of, n_leaves_of
from recommender.policies.demand_options import DemandOptions
from recommender.policies.demand_pricing import Judge, Trial
from recommender.policies.earlier_runs import EarlierRuns
from recommender.policies.moments import Moments, collect_moments
from recommender.records import FloatArray, IntArray, PhaseTrace, UsageSeries

Progress = Callable[[str, int, int], None]


def fit_demand(
    series: Sequence[UsageSeries],
    phases: Sequence[PhaseTrace],
    *,
    cycle_samples: int,
    lag: int = 3,
    target_violation: tuple[float, float] = (0.05, 0.05),
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
    target_violation
        Share of samples that may violate, cpu and memory.
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
    moments = collect_moments(series, phases, cycle_samples, lag, options.most_moments)
    moments = thinned(moments, options.most_moments, rng)
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
    learned = [learner.resource(r, folds, everything, target) for r, target in enumerate(target_violation)]
    if progress is not None:
        progress("demand", learner.n_folds + 1, learner.n_folds + 1)
    return DemandModel(
        cycle_samples,
        lag,
        target_violation,
        options.fairness,
        learner.ladder(moments),
        learner.runs(moments),
        everything.forest,
        np.bincount(everything.learned_leaves.ravel(), minlength=n_leaves).astype(np.int32),
        (learned[0], learned[1]),
    )


def thinned(moments: Moments, most: int, rng: np.random.Generator) -> Moments:
    """At most so many moments: of each container that has more than its share, one stretch drawn at random."""
    if len(moments.owners) <= most:
        return moments
    per_container = np.bincount(moments.owners)
    low, high = 1, most
    while low < high:  # the largest share that keeps the sum within bounds
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(per_container, middle).sum() <= most else (low, middle - 1)
    kept = [
        np.flatnonzero(moments.owners == owner)[(start := int(rng.integers(max(number - low, 0) + 1))) : start + low]
        for owner, number in enumerate(per_container)
    ]
    return moments.take(np.concatenate(kept))


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
        return EarlierRuns.fit(moments.past, self.outcomes if outcomes is None else outcomes, moments.owners, of_each)

    def fold(self, which: int | None) -> Fold:
        """A forest learned from all folds but one (None: from all)."""
        learned = np.ones(len(self.number), bool) if which is None else self.number % self.n_folds != which
        if not learned.any():
            learned[:] = True
        part, outcomes, number = self.moments.take(learned), self.outcomes[learned], self.number[learned]
        facts = self.facts_as_if_unseen(part, outcomes, number)
        forest = grow(facts, self.targets[learned], part.samples, self.options, self.seed)
        others = ~learned & (self.moments.schedules == 0)
        rest = self.moments.take(others)
        other = self.facts_of_others(rest, self.ladder(part, outcomes), self.runs(part, outcomes))
        return Fold(forest, learned, others, leaves_of(facts, forest), leaves_of(other, forest))

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

    def resource(self, resource: int, folds: Sequence[Fold], everything: Fold, target: float) -> ResourceDemand:
        """Choose basis, floor and softening by slack on containers left out, and find the prices."""
        judge = Judge(self.moments, resource, self.options)
        width = self.options.widths[len(self.options.widths) // 2]
        trials = [
            Trial(basis, floor, width)
            for basis in Basis
            for floor in self.options.floors
            if np.isfinite(floor) or basis is Basis.PEAK
        ]
        best = min(trials, key=lambda trial: judge.slack(trial, folds, target))
        others = [replace(best, width=other) for other in self.options.widths if other != width]
        best = min([best, *others], key=lambda trial: judge.slack(trial, folds, target))
        pooled, knots, reference = judge.pool(best, folds)
        prices = judge.prices(pooled, knots, reference, self.options.targets)
        curves = judge.curves(best, knots)
        sums, moments = gathered(everything.learned_leaves, curves, n_leaves_of(everything.forest))
        samples = sums[:, -1] / np.maximum(moments, 1)
        shares = np.rint(CURVE_STEPS * sums / np.maximum(sums[:, -1:], 1e-9)).astype(np.uint8)
        floor = best.floor * judge.mean if np.isfinite(best.floor) else np.inf
        return ResourceDemand(
            best.basis,
            floor,
            knots,
            shares,
            samples.astype(np.float32),
            np.array(self.options.targets),
            np.array(prices),
            float(ever_peaks(self.moments.past)[:, resource].min()),
            float(np.nanmax(judge.coming)),
        )
