"""Boosted trees with the facts that the plan has: what more a forecast could make of them, and what stages would tell.

The loss is the pinball loss of the 95 % quantile of the coming peak, as a logarithm above the level now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from quality.cpu import TARGET, Learned, Phases, Rule, folds, learn
from recommender.kernels.plan_steps import GAIN, updated_correction
from recommender.phases.graph import bucket_of
from recommender.policies.phase_demand import FLOORS
from recommender.pricing import LEAD_SAMPLES
from recommender.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray, UsageSeries

DECIDED, PEAK = 6, 10
"""Samples whose largest use is foretold: to decide by, and to compare losses on."""

QUANTILE, FORETOLD = 0.9, 0.95
ROUNDS, LEAST_OF_A_LEAF = 200, 20
OFF = 0.15
"""What is asked for changes when it is off by this share, or was exceeded."""

WINDOWS = (3, 10, 40)
"""Samples of its own use whose largest is told."""

LEVELS_ONLY = "levels only"

Facts = Callable[[UsageSeries], FloatArray]
"""float64 (n, f): what is known at each sample that is there."""


def boosted(series: Sequence[UsageSeries], learned: Learned, seed: int) -> Rule:
    """What trees ask for that were fitted to these, corrected for the container's own violations as all else is."""

    def facts(one: UsageSeries) -> FloatArray:
        return np.column_stack([levels(one, CPU), phase_and_where_it_leads(one, learned)])

    trees = fitted(series, facts, CPU, DECIDED, QUANTILE, seed)

    def decide(one: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        cores = one.usage[one.present, CPU]
        foretold = np.exp(trees.predict(facts(one)) + _level(cores, CPU)) - FLOORS[CPU]
        in_force, current = np.full(len(cores) + LEAD_SAMPLES + 1, np.nan), np.nan
        correction, gain, streak = 0.0, GAIN, 0.0
        for row, wanted in enumerate(foretold):
            if not np.isnan(in_force[row]):
                violated, short = (cores[row] > had * VIOLATION_TOLERANCE for had in (in_force[row], current))
                correction, gain, streak = updated_correction(correction, gain, streak, violated, short, TARGET[CPU])
            asked = max(float(wanted) * np.exp(correction), FLOORS[CPU])
            if not abs(asked - current) <= OFF * current or cores[row] > current:
                current = asked
            in_force[row + LEAD_SAMPLES + 1] = current
        return in_force[: len(cores)]

    return decide


def losses(
    series: Sequence[UsageSeries], ways: Mapping[str, Phases], resource: int, *, by_program: bool, seed: int
) -> dict[str, float]:
    """How well trees foretell the coming peak of containers kept out: from levels only, and with the phase told in
    each of these ways besides, alone and with where it leads by the graph."""
    groups = folds(series, by_program=by_program, seed=seed)
    total: dict[str, float] = {}
    count = 0
    for group in sorted(set(groups)):
        taught_by = [one for one, of in zip(series, groups, strict=True) if of != group]
        kept_out = [one for one, of in zip(series, groups, strict=True) if of == group]
        learned = {way: learn(taught_by, phases, by_program=by_program, seed=seed) for way, phases in ways.items()}
        for name, facts in _by_name(learned, resource).items():
            trees = fitted(taught_by, facts, resource, PEAK, FORETOLD, seed)
            for one in kept_out:
                ahead = _coming(one, resource, PEAK)
                miss = ahead - trees.predict(facts(one))[: len(ahead)] if len(ahead) else ahead
                total[name] = total.get(name, 0.0) + float(np.maximum(FORETOLD * miss, (FORETOLD - 1) * miss).sum())
        count += sum(len(_coming(one, resource, PEAK)) for one in kept_out)
    return {name: loss / count for name, loss in total.items()}


def _by_name(learned: Mapping[str, Learned], resource: int) -> dict[str, Facts]:
    found: dict[str, Facts] = {LEVELS_ONLY: lambda one: levels(one, resource)}
    for way, known in learned.items():
        found[f"{way}: the phase"] = lambda one, known=known: np.column_stack([levels(one, resource), known.label(one)])
        found[f"{way}: the phase and where it leads"] = lambda one, known=known: np.column_stack(
            [levels(one, resource), phase_and_where_it_leads(one, known)]
        )
    return found


def fitted(
    series: Sequence[UsageSeries], facts: Facts, resource: int, samples: int, quantile: float, seed: int
) -> HistGradientBoostingRegressor:
    """Trees that foretell a quantile of the largest of so many samples that a decision is for."""
    known = [(facts(one), _coming(one, resource, samples)) for one in series]
    rows = np.concatenate([told[: len(ahead)] for told, ahead in known])
    trees = HistGradientBoostingRegressor(
        loss="quantile", quantile=quantile, max_iter=ROUNDS, min_samples_leaf=LEAST_OF_A_LEAF, random_state=seed
    )
    return trees.fit(rows, np.concatenate([ahead for _, ahead in known]))


def levels(series: UsageSeries, resource: int) -> FloatArray:
    """float64 (n, 6): the use now, the mean and the largest so far and lately against it, and the age."""
    used = series.usage[series.present, resource]
    level, age = _level(used, resource), np.arange(1.0, len(used) + 1.0)
    mean = np.log(np.cumsum(used) / age + FLOORS[resource]) - level
    largest = [np.log(_largest(used, window) + FLOORS[resource]) - level for window in WINDOWS]
    return np.column_stack([level, mean, *largest, np.log(age)])


def phase_and_where_it_leads(series: UsageSeries, learned: Learned) -> FloatArray:
    """float64 (n, f): the phase, the one before, how long it lasts, and the time that the graph expects in each."""
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


def _coming(series: UsageSeries, resource: int, samples: int) -> FloatArray:
    """What is to be foretold at each sample but the last ones: the peak of those after a change took effect."""
    used = series.usage[series.present, resource]
    if len(used) <= LEAD_SAMPLES + samples:
        return np.empty(0)
    ahead = np.lib.stride_tricks.sliding_window_view(used[LEAD_SAMPLES + 1 :], samples).max(axis=1)
    coming: FloatArray = np.log(ahead + FLOORS[resource]) - _level(used, resource)[: len(ahead)]
    return coming


def _context(labels: IntArray) -> tuple[IntArray, IntArray]:
    """int64 (n,) each: the phase before, 0 for none, else one more than it; and the samples in the phase now.

    Examples
    --------
    >>> [part.tolist() for part in _context(np.array([2, 2, 0, 0, 0, 2]))]
    [[0, 0, 3, 3, 3, 1], [1, 2, 1, 2, 3, 1]]
    """
    opens = np.flatnonzero(np.diff(labels, prepend=-1) != 0)
    run = np.searchsorted(opens, np.arange(len(labels)), side="right") - 1
    before = np.concatenate([[0], labels[opens[1:] - 1] + 1])[run]
    return before, np.arange(len(labels)) - opens[run] + 1
