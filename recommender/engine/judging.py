"""Samples compared with what their containers had, all of a step at once."""

from __future__ import annotations

import numpy as np

from recommender.engine.container_arrays import BY_CLASS, BY_EXPERIENCE
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray

SATURATION_SHARE = 0.95
"""A container that uses this share of its CPU, or more, counts as using all of it."""

MAX_SATURATED_SAMPLES = 8
"""Cap of the count: twice the threshold, so that it soon shows when a container needs no more."""

UNSATURATED_FACTOR = 1.05
"""Usage up to this multiple of the unsaturated usage is what the container needs, even if it is all it has."""

DECAY = 0.001
"""Decay per sample of the unsaturated usage towards lower usage: it outlasts the time between two phases."""

GIVEN_TOLERANCE = np.array([0.01, 0.01])
"""Relative difference up to which requests count as the published target."""


def judge(
    fleet: Fleet,
    groups: GroupArrays,
    slots: IntArray,
    target_violation: tuple[float, float],
    report: Report,
    now_s: float,
) -> None:
    """Judge the latest samples of containers, int64 (m,), each once, that have what we published.

    Left out are containers without a target, those that never had it, and those whose resize is deferred. Where targets
    are not applied, samples are compared with the target itself. The report counts every shortage; the policies are
    charged only with those that they would have had without limits, see `_intended`.
    """
    arrays, owner = fleet.arrays, fleet.arrays.group[slots]
    used, allocated, given = arrays.used[slots], arrays.requests[slots], groups.given[owner]
    _count_saturated(fleet, slots)
    arrays.had_target[slots] |= matches_given(allocated, given)
    ours = arrays.had_target[slots] & ~np.isnan(allocated).all(axis=1) & ~groups.lacks_room(now_s)[owner]
    advisory = ~groups.applied[owner] & ~np.isnan(given).all(axis=1)
    allocated = np.where(advisory[:, np.newaxis], given, allocated)
    judged = np.flatnonzero(ours | advisory)
    report.judge(used[judged], allocated[judged])
    intended, demand = _intended(allocated, given, groups.published[owner]), arrays.demand(slots, used)
    groups.judge(owner[judged], used[judged] > intended[judged] * VIOLATION_TOLERANCE)
    forecast = judged[arrays.decided_by[slots[judged]] < BY_EXPERIENCE]
    fleet.judge(slots[forecast], demand[forecast], intended[forecast])
    short, has_target = demand[:, CPU] > intended[:, CPU] * VIOLATION_TOLERANCE, ~np.isnan(intended[:, CPU])
    for at in judged[(has_target & (arrays.decided_by[slots] == BY_CLASS))[judged]].tolist():
        if (runs := fleet.by_slot[int(slots[at])].runs) is not None:
            runs.judge(bool(short[at]), target_violation[CPU])


def _intended(allocated: FloatArray, given: FloatArray, published: FloatArray) -> FloatArray:
    """What containers would have without limits, float64 (m, 2) each; NaN for a resource without a target.

    Where a container has what was given, and that is less than what was published, a user, a quota or a node limits it.
    Where it does not have it yet, the target came too late, which counts against the policy.
    """
    applied = allocated >= given * (1.0 - GIVEN_TOLERANCE)
    return np.where(np.isnan(given), np.nan, np.where(applied, np.fmax(allocated, published), allocated))


def matches_given(allocated: FloatArray, given: FloatArray) -> BoolArray:
    """Whether requests match what was published, float64 (..., 2); False where nothing was."""
    same = (np.abs(allocated - given) <= GIVEN_TOLERANCE * given) | np.isnan(given)
    return np.asarray(same.all(axis=-1) & ~np.isnan(given).all(axis=-1))


def _count_saturated(fleet: Fleet, slots: IntArray) -> None:
    """Count samples that use all the CPU of their container; each other sample takes one back.

    A count of consecutive samples would ask for more and withdraw it with each dip, before it could be applied.
    """
    arrays = fleet.arrays
    used, allocated = arrays.used[slots, CPU], arrays.requests[slots, CPU]
    saturated = is_saturated(used, allocated, arrays.limits[slots, CPU])
    free = slots[~saturated]
    before, now = arrays.unsaturated_cpu_cores[free], arrays.used[free, CPU]
    arrays.unsaturated_cpu_cores[free] = np.fmax(now, before + DECAY * (now - before))
    enough = used <= UNSATURATED_FACTOR * arrays.unsaturated_cpu_cores[slots]
    enough &= ~arrays.is_throttled(slots, used)
    counts = arrays.saturated_samples[slots] + np.where(saturated & ~enough, 1, -1)
    arrays.saturated_samples[slots] = np.minimum(np.maximum(counts, 0), MAX_SATURATED_SAMPLES)


def is_saturated(cpu_cores: FloatArray, requests: FloatArray, limits: FloatArray) -> BoolArray:
    """Whether usage, float64 (m,), is all the CPU available: the request on a full node, or the limit."""
    just = (requests * SATURATION_SHARE <= cpu_cores) & (cpu_cores <= requests * VIOLATION_TOLERANCE)
    return just | (cpu_cores >= limits * SATURATION_SHARE)
