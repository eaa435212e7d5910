"""Boosted trees on the features that the plan has: a stronger forecast from the same facts, and the value of stages.

The loss is the pinball loss of the 95 % quantile of the coming peak, as the logarithm of its ratio to the present use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from quality.cpu import TARGET, Learned, Phases, Rule, folds, learn
from recommender.kernels.plan_steps import GAIN, updated_correction
from recommender.phases.graph import bucket_of
from recommender.policies.phase_demand import FLOORS
from recommender.pricing import LEAD_SAMPLES
from recommender.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray, UsageSeries

DECISION_SAMPLES, LOSS_SAMPLES = 6, 10
"""Samples whose largest use is predicted: for decisions, and for comparing losses."""

DECISION_QUANTILE, QUANTILE = 0.9, 0.95
ITERATIONS, MIN_SAMPLES_LEAF = 200, 20
CHANGE_THRESHOLD = 0.15
"""The request changes when it is off by this share, or when use exceeds it."""

WINDOWS = (3, 10, 40)
"""Windows, in samples, whose largest use is a feature."""

LEVELS_ONLY = "levels only"

Facts = Callable[[UsageSeries], FloatArray]
"""Container -> float64 (n, f): features of each present sample."""


def boosted(series: Sequence[UsageSeries], learned: Learned, seed: int) -> Rule:
    """Rule by trees fitted on these containers, corrected online for the container's own violations."""

    def facts(one: UsageSeries) -> FloatArray:
        return np.column_stack([levels(one, CPU), phase_features(one, learned)])

    trees = fit_trees(series, facts, CPU, DECISION_SAMPLES, DECISION_QUANTILE, seed)

    def decide(one: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        cores = one.usage[one.present, CPU]
        predicted = np.exp(trees.predict(facts(one)) + _level(cores, CPU)) - FLOORS[CPU]
        in_force, current = np.full(len(cores) + LEAD_SAMPLES + 1, np.nan), np.nan
        correction, gain, streak = 0.0, GAIN, 0.0
        for row, wanted in enumerate(predicted):
            if not np.isnan(in_force[row]):
                violated, short = (cores[row] > had * VIOLATION_TOLERANCE for had in (in_force[row], current))
                correction, gain, streak = updated_correction(correction, gain, streak, violated, short, TARGET[CPU])
            request = max(float(wanted) * np.exp(correction), FLOORS[CPU])
            if not abs(request - current) <= CHANGE_THRESHOLD * current or cores[row] > current:
                current = request
            in_force[row + LEAD_SAMPLES + 1] = current
        return in_force[: len(cores)]

    return decide


def losses(
    series: Sequence[UsageSeries], ways: Mapping[str, Phases], resource: int, *, by_program: bool, seed: int
) -> dict[str, float]:
    """Loss of trees that predict the coming peak of held-out containers from levels only, and from levels and phases
    of each of `ways`: the phase alone, and with the graph's forecast."""
    total: dict[str, float] = {}
    count = 0
    for training, kept_out in folds(series, by_program=by_program, seed=seed):
        learned = {way: learn(training, phases, by_program=by_program, seed=seed) for way, phases in ways.items()}
        for name, facts in _by_name(learned, resource).items():
            trees = fit_trees(training, facts, resource, LOSS_SAMPLES, QUANTILE, seed)
            for one in kept_out:
                ahead = _future_peak(one, resource, LOSS_SAMPLES)
                miss = ahead - trees.predict(facts(one))[: len(ahead)] if len(ahead) else ahead
                total[name] = total.get(name, 0.0) + float(np.maximum(QUANTILE * miss, (QUANTILE - 1) * miss).sum())
        count += sum(len(_future_peak(one, resource, LOSS_SAMPLES)) for one in kept_out)
    return {name: loss / count for name, loss in total.items()}


def _by_name(learned: Mapping[str, Learned], resource: int) -> dict[str, Facts]:
    found: dict[str, Facts] = {LEVELS_ONLY: lambda one: levels(one, resource)}
    for way, known in learned.items():
        found[f"{way}: the phase"] = _levels_and(resource, known.label)
        found[f"{way}: the phase and its forecast"] = _levels_and(resource, partial(phase_features, learned=known))
    return found


def _levels_and(resource: int, more: Callable[[UsageSeries], FloatArray | IntArray]) -> Facts:
    return lambda one: np.column_stack([levels(one, resource), more(one)])


def fit_trees(
    series: Sequence[UsageSeries], facts: Facts, resource: int, samples: int, quantile: float, seed: int
) -> HistGradientBoostingRegressor:
    """Fit trees that predict a quantile of the largest use among the `samples` that a decision covers."""
    known = [(facts(one), _future_peak(one, resource, samples)) for one in series]
    rows = np.concatenate([features[: len(ahead)] for features, ahead in known])
    trees = HistGradientBoostingRegressor(
        loss="quantile", quantile=quantile, max_iter=ITERATIONS, min_samples_leaf=MIN_SAMPLES_LEAF, random_state=seed
    )
    return trees.fit(rows, np.concatenate([ahead for _, ahead in known]))


def levels(series: UsageSeries, resource: int) -> FloatArray:
    """float64 (n, 6): present use; mean so far and recent maxima relative to it; age."""
    used = series.usage[series.present, resource]
    level, age = _level(used, resource), np.arange(1.0, len(used) + 1.0)
    mean = np.log(np.cumsum(used) / age + FLOORS[resource]) - level
    largest = [np.log(_largest(used, window) + FLOORS[resource]) - level for window in WINDOWS]
    return np.column_stack([level, mean, *largest, np.log(age)])


def phase_features(series: UsageSeries, learned: Learned) -> FloatArray:
    """float64 (n, f): the phase, the previous one, time in it so far, and the occupancy that the graph expects."""
    labels = learned.label(series)
    before, dwell = _context(labels)
    expected = learned.occupancy[before, labels, bucket_of(dwell)]
    return np.column_stack([labels, before, np.log(dwell), expected])


def _level(used: FloatArray, resource: int) -> FloatArray:
    level: FloatArray = np.log(used + FLOORS[resource])
    return level


def _largest(used: FloatArray, window: int) -> FloatArray:
    padded = np.concatenate([np.full(window - 1, -np.inf), used])
    largest: FloatArray = np.lib.stride_tricks.sliding_window_view(padded, window).max(axis=1)
    return largest


def _future_peak(series: UsageSeries, resource: int, samples: int) -> FloatArray:
    """Target of the prediction at each sample but the last: the peak after a change has taken effect."""
    used = series.usage[series.present, resource]
    if len(used) <= LEAD_SAMPLES + samples:
        return np.empty(0)
    ahead = np.lib.stride_tricks.sliding_window_view(used[LEAD_SAMPLES + 1 :], samples).max(axis=1)
    coming: FloatArray = np.log(ahead + FLOORS[resource]) - _level(used, resource)[: len(ahead)]
    return coming


def _context(labels: IntArray) -> tuple[IntArray, IntArray]:
    """int64 (n,) each: 1 + the previous phase, 0 for none; and samples in the present phase so far.

    Examples
    --------
    >>> [part.tolist() for part in _context(np.array([2, 2, 0, 0, 0, 2]))]
    [[0, 0, 3, 3, 3, 1], [1, 2, 1, 2, 3, 1]]
    """
    opens = np.flatnonzero(np.diff(labels, prepend=-1) != 0)
    run = np.searchsorted(opens, np.arange(len(labels)), side="right") - 1
    before = np.concatenate([[0], labels[opens[1:] - 1] + 1])[run]
    return before, np.arange(len(labels)) - opens[run] + 1
