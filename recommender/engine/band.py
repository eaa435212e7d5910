"""What is published of a target: the band within which no update is worth its disruption.

The updater acts on a request strictly outside [lowerBound, upperBound], and on pods older than twelve hours when it
differs by a tenth. So while little changes, the target stays the one in force with the band around it; a change moves
both, and every old request lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.base.records import CPU, MEMORY, BoolArray, FloatArray, in_both, in_either
from recommender.engine.group_arrays import LOWER, TARGET, UPPER, GroupArrays
from recommender.engine.groups import Groups
from recommender.engine.keys import Running
from recommender.engine.options import BandOptions, Options
from recommender.kernels.histogram import MARGIN
from recommender.policies.constraints import ROUNDING_TOLERANCE, WHOLE_UNITS
from recommender.policies.histogram import Estimate

MAX_POD_AGE_S = 10 * 3600.0
"""Older pods get no safe value: from twelve hours on the updater ignores the bounds, and acts on a tenth."""

EVICTING_TOLERANCE = 0.02
"""Tolerated relative deviation of bounds where a change evicts: they decide when the default would."""


def in_whole_units(amounts: FloatArray) -> FloatArray:
    """Round cores and bytes, float64 (n, 2), up to whole millicores and bytes.

    Examples
    --------
    >>> in_whole_units(np.array([[0.1234, 5.5]])).tolist()
    [[0.124, 6.0]]
    """
    return np.ceil(amounts * WHOLE_UNITS - ROUNDING_TOLERANCE) / WHOLE_UNITS


def with_deadband(wanted: FloatArray, applied: FloatArray, options: BandOptions) -> FloatArray:
    """Targets to publish: per resource `applied` if the change is not worth it, else `wanted`; float64 (n, 2) each.

    `applied` is NaN where nothing is in force.
    """
    cpu, memory, had_cpu, had_memory = wanted[:, CPU], wanted[:, MEMORY], applied[:, CPU], applied[:, MEMORY]
    keeps_cpu = (had_cpu * (1.0 - options.hold_cpu) <= cpu) & (cpu <= had_cpu * (1.0 + options.rise_cpu))
    keeps_memory = (had_memory * (1.0 - options.hold_memory) <= memory) & (
        memory <= had_memory * (1.0 + options.rise_memory)
    )
    # An update resizes both, so the other one follows: CPU if it falls, memory if it rises, since that is safer.
    keeps_cpu, keeps_memory = (
        keeps_cpu & (keeps_memory | (cpu > had_cpu)),
        keeps_memory & (keeps_cpu | (memory < had_memory)),
    )
    return np.column_stack([np.where(keeps_cpu, had_cpu, cpu), np.where(keeps_memory, had_memory, memory)])


def with_band(target: FloatArray, options: BandOptions) -> FloatArray:
    """Targets with their band, float64 (n, 3, 2)."""
    band = np.empty((len(target), 3, 2))
    band[:, LOWER], band[:, UPPER] = target * (1.0 - options.half_width), target * (1.0 + options.half_width)
    band[:, TARGET] = target
    return band


def with_default_bounds(
    target: FloatArray, evicts: BoolArray, estimate: FloatArray, before: FloatArray, options: BandOptions
) -> FloatArray:
    """Targets within the default recommender's bounds, which narrow with history, float64 (n, 3, 2).

    So no pod is disrupted for a guess. The upper bound is raised by as much as rails have raised the target. Bounds
    within tolerance of those `before`, which were last published (NaN for nothing), are kept, per resource, but never
    narrower than the default recommender's, or pods would be disrupted that it leaves alone. Where a change evicts, the
    default's own target is followed at once and its bounds closely: a pod recreated at another time is due at another
    time, too.
    """
    own = estimate[:, TARGET]
    raised = np.divide(np.fmax(target, own), own, out=np.ones_like(own), where=own > 0.0)
    upper = np.fmax(estimate[:, UPPER] * raised, target)
    bounds = np.stack([np.fmin(estimate[:, LOWER], target), target, upper], axis=1)
    same = in_both(with_deadband(target, before[:, TARGET], options) == before[:, TARGET])
    tolerance = np.where(evicts, EVICTING_TOLERANCE, options.hold_guess)
    near = np.abs(bounds - before) <= tolerance[:, np.newaxis, np.newaxis] * before
    no_narrower = (before[:, LOWER] <= bounds[:, LOWER]) & (bounds[:, UPPER] <= before[:, UPPER])
    same &= ~evicts | in_both((target == before[:, TARGET]) | (target != estimate[:, TARGET]))
    stays = same[:, np.newaxis] & near[:, LOWER] & near[:, UPPER] & no_narrower
    return np.where(stays[:, np.newaxis], before, bounds)


def banded_targets(
    target: FloatArray,
    as_default: BoolArray,
    keeps: BoolArray,
    evicts: BoolArray,
    groups: GroupArrays,
    options: BandOptions,
) -> FloatArray:
    """Advised targets of all groups with their bands, float64 (n, 3, 2), from those after all rails, float64 (n, 2).

    `as_default`, bool (n, 2): within the default recommender's bounds; `evicts`, bool (n,): a change recreates pods.
    `keeps`, bool (n, 2): the target in force stays for lack of history, as after a restart without a profile. There,
    unless a change evicts, the upper bound is no further above it than what containers request.
    """
    targets = with_band(with_deadband(in_whole_units(target), groups.published, options), options)
    near = np.fmax(targets[:, UPPER], groups.requests * (1.0 + options.half_width))
    near[~keeps | evicts[:, np.newaxis]] = np.inf
    if len(rows := np.flatnonzero(in_either(as_default))):
        last = np.where(groups.target_in_default_bounds[rows, np.newaxis, np.newaxis], groups.targets[rows], np.nan)
        bounds = with_default_bounds(target[rows], evicts[rows], groups.default_estimate[rows], last, options)
        bounds[:, UPPER] = np.fmin(bounds[:, UPPER], near[rows])
        targets[rows] = np.where(as_default[rows, np.newaxis], bounds, targets[rows])
    # What earlier runs of its class needed is for the next pod: no reason to recreate one that has just begun.
    unknown = evicts & in_either(np.isnan(groups.default_estimate[:, TARGET]))
    targets[unknown, LOWER] = np.fmin(targets[unknown, LOWER], groups.requests[unknown])
    targets[unknown, UPPER] = np.fmax(targets[unknown, UPPER], groups.requests[unknown])
    return targets


def safe_value(
    groups: Groups, slot: int, running: Sequence[Running], now_s: float, options: Options
) -> Estimate | None:
    """The value to leave behind at shutdown: the default recommender's upper bound, up to the known peak and margin.

    Pods must not be created for a passing phase while no recommender runs. Running pods keep what they have: the bounds
    contain it, or the next process would have to undo the updates.

    None if the published target is as large already, or so close that an update is not worth it; and if a container is
    so old that it would be updated all the same.
    """
    arrays = groups.arrays
    before, live = arrays.published[slot], [one for one in running if not one.finished]
    old = any(one.started_s is not None and now_s - one.started_s >= MAX_POD_AGE_S for one in live)
    groups.query_default(np.array([slot]), now_s)
    default = arrays.default_estimate[slot]
    if old or np.isnan(before).any() or np.isnan(default).any():
        return None
    used = groups.most_used(slot) * (1.0 + MARGIN)
    safe = np.fmin(default[UPPER], np.fmax(used, np.nan_to_num(arrays.requests[slot])))
    safe[MEMORY] = max(safe[MEMORY], float(arrays.kill_floor(now_s)[slot]))
    target = in_whole_units(np.fmax(safe, before)[np.newaxis])
    if (with_deadband(target, before[np.newaxis], options.band) == before).all():
        return None
    requests = np.array([one.requests for one in live]).reshape(-1, 2)
    lower = np.fmin.reduce(np.concatenate([requests, default[[LOWER]], before[np.newaxis], target]), axis=0)
    upper = np.fmax.reduce(np.concatenate([requests, default[[UPPER]], target]), axis=0)
    return Estimate(lower, target[0], upper)
