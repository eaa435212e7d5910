"""What is published of targets: the band within which no update is worth its disturbance.

The updater acts when a request lies strictly outside [lowerBound, upperBound], and on pods older than twelve hours when
it differs by a tenth. So while little changes, the target stays what is applied and the band lies around it; a change
moves target and band together, and every request that is still the old one is outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.engine.group_arrays import LOWER, TARGET, UPPER, GroupArrays
from recommender.engine.groups import Groups
from recommender.engine.keys import Running
from recommender.engine.options import BandOptions, Options
from recommender.kernels.histogram import ESTIMATION
from recommender.policies.constraints import ROUNDING_TOLERANCE, WHOLE_UNITS
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, BoolArray, FloatArray

OLD_S = 10 * 3600.0
"""Pods that are older than twelve hours are updated whatever the bounds say: a tenth of difference is enough."""

CLOSELY = 0.02
"""By more than this share bounds are never off where a change evicts: they say when the default recommender would."""


def in_whole_units(amounts: FloatArray) -> FloatArray:
    """Cores and bytes, float64 (n, 2), rounded up to whole millicores and bytes.

    Examples
    --------
    >>> in_whole_units(np.array([[0.1234, 5.5]])).tolist()
    [[0.124, 6.0]]
    """
    whole: FloatArray = np.ceil(amounts * WHOLE_UNITS - ROUNDING_TOLERANCE) / WHOLE_UNITS
    return whole


def held(wanted: FloatArray, applied: FloatArray, options: BandOptions) -> FloatArray:
    """The targets to publish: `applied` for a resource whose change is not worth it, else `wanted`.

    Parameters
    ----------
    wanted, applied
        float64 (n, 2): cores and bytes; NaN in `applied` where nothing is in force.
    """
    cpu, memory, had_cpu, had_memory = wanted[:, CPU], wanted[:, MEMORY], applied[:, CPU], applied[:, MEMORY]
    keeps_cpu = (had_cpu * (1.0 - options.hold_cpu) <= cpu) & (cpu <= had_cpu * (1.0 + options.rise_cpu))
    keeps_memory = (had_memory * (1.0 - options.hold_memory) <= memory) & (
        memory <= had_memory * (1.0 + options.rise_memory)
    )
    # An update resizes everything anyway: then memory moves along, except downwards by a trifle.
    stays = keeps_memory & (keeps_cpu | (memory < had_memory))
    return np.column_stack([np.where(keeps_cpu, had_cpu, cpu), np.where(stays, had_memory, memory)])


def around(target: FloatArray, options: BandOptions) -> FloatArray:
    """Targets with their band around them, float64 (n, 3, 2)."""
    return np.stack([target * (1.0 - options.half_width), target, target * (1.0 + options.half_width)], axis=1)


def wide(
    target: FloatArray, evicts: BoolArray, estimate: FloatArray, before: FloatArray, options: BandOptions
) -> FloatArray:
    """Targets within the default recommender's own bounds, which narrow with history, float64 (n, 3, 2).

    Nobody is disturbed for a guess. Where rails have raised the target, the upper bound is raised as much. Bounds that
    differ too little from those `before` to be worth a write are as they were, of each resource by itself, but never
    narrower than the default recommender's: it would have let be whom they disturb. Where a change evicts, a target
    that is its own is followed at once, and its bounds closely: a pod made, or made anew, at another time is also due
    at another time.

    Parameters
    ----------
    evicts
        bool (n,): a change makes pods anew.
    estimate, before
        float64 (n, 3, 2): what the default recommender says, and what was published last; NaN where nothing was.
    """
    own = estimate[:, TARGET]
    raised = np.divide(np.fmax(target, own), own, out=np.ones_like(own), where=own > 0.0)
    upper = np.fmax(estimate[:, UPPER] * raised, target)
    bounds = np.stack([np.fmin(estimate[:, LOWER], target), target, upper], axis=1)
    same = (held(target, before[:, TARGET], options) == before[:, TARGET]).all(axis=1)
    hold = np.where(evicts, CLOSELY, options.hold_guess)
    near = np.abs(bounds - before) <= hold[:, np.newaxis, np.newaxis] * before
    no_narrower = (before[:, LOWER] <= bounds[:, LOWER]) & (bounds[:, UPPER] <= before[:, UPPER])
    same &= ~evicts | ((target == before[:, TARGET]) | (target != estimate[:, TARGET])).all(axis=1)
    stays = same[:, np.newaxis] & near[:, [LOWER, UPPER]].all(axis=1) & no_narrower
    return np.where(stays[:, np.newaxis], before, bounds)


def published(
    target: FloatArray, as_default: BoolArray, evicts: BoolArray, groups: GroupArrays, options: BandOptions
) -> FloatArray:
    """What is advised of all groups, float64 (n, 3, 2).

    Parameters
    ----------
    target
        float64 (n, 2), after all rails.
    as_default
        bool (n, 2): within the default recommender's bounds.
    evicts
        bool (n,): a change makes pods anew.
    """
    advised = around(held(in_whole_units(target), groups.published, options), options)
    if len(rows := np.flatnonzero(as_default.any(axis=1))):
        last = np.where(groups.said_wide[rows, np.newaxis, np.newaxis], groups.said[rows], np.nan)
        bounds = wide(target[rows], evicts[rows], groups.known[rows], last, options)
        advised[rows] = np.where(as_default[rows, np.newaxis], bounds, advised[rows])
    return advised


def safe_value(
    groups: Groups, slot: int, running: Sequence[Running], now_s: float, options: Options
) -> Estimate | None:
    """The default recommender's upper bound as target, up to what was ever used and its margin.

    A passing phase must not be what pods are made with while nobody watches. Those that run go on with what they have:
    the bounds hold it, or the next process would have to take back what this one has made of them.

    Parameters
    ----------
    running
        The containers that are there.

    Returns
    -------
    None where no less than that stands published, or so little less that an update would not be worth it; and where a
    container is so old that it would be updated all the same.
    """
    arrays = groups.arrays
    before, live = arrays.published[slot], [one for one in running if not one.finished]
    old = any(one.started_s is not None and now_s - one.started_s >= OLD_S for one in live)
    groups.ask_histograms(np.array([slot]), now_s)
    known = arrays.known[slot]
    if old or np.isnan(before).any() or np.isnan(known).any():
        return None
    used = groups.most_used(slot) * (1.0 + ESTIMATION.margin)
    most = np.fmin(known[UPPER], np.fmax(used, np.nan_to_num(arrays.had[slot])))
    most[MEMORY] = max(most[MEMORY], float(arrays.kill_floor(now_s)[slot]))
    target = in_whole_units(np.fmax(most, before)[np.newaxis])
    if (held(target, before[np.newaxis], options.band) == before).all():
        return None
    has = np.array([one.requests for one in live]).reshape(-1, 2)
    lower = np.fmin.reduce(np.concatenate([has, known[[LOWER]], before[np.newaxis], target]), axis=0)
    upper = np.fmax.reduce(np.concatenate([has, known[[UPPER]], target]), axis=0)
    return Estimate(lower, target[0], upper)
