"""Samples of live containers: counted, and compared with what their containers had."""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import BoolArray, FloatArray, IntArray

LIMIT_TOLERANCE = 0.01
"""Relative distance within which CPU usage counts as being at the limit, or as equal to the unthrottled usage."""

SATURATION_SHARE = 0.95
"""A container that uses this share of its CPU, or more, counts as using all of it."""

MAX_SATURATED_SAMPLES = 8
"""Cap of the count: twice the threshold, so that it soon shows when a container needs no more."""

UNSATURATED_FACTOR = 1.05
"""Usage up to this multiple of the unsaturated usage is what the container needs, even if it is all it has."""

DECAY = 0.001
"""Decay per sample of the unsaturated usage towards lower usage: it outlasts the time between two phases."""

GIVEN_TOLERANCE = 0.01
"""Relative difference up to which requests count as the published target."""

PEAK_FACTOR = 1.02
"""A memory peak that is exceeded by less is the same one."""

VIOLATION_DISCOUNT = 1.0 - 1.0 / 400.0
"""Weight of a judged sample after one more: the violation ratio rests on about the latest four hundred."""


SampledArrays = namedtuple(
    "SampledArrays",
    "last_cell rows_since_decision rows_since_history samples sampled_s sample_interval_s used cycle cycle_cpu_cores "
    "requests limits had_target saturated_samples unsaturated_cpu_cores throttled_samples phase since_cell",
)
JudgedArrays = namedtuple("JudgedArrays", "applied published given violations judged")
"""Arrays of containers and of groups, see `ContainerArrays` and `GroupArrays`."""


@njit(cache=True, nogil=True, inline="always")
def is_throttled(used_cores: float, limit_cores: float, unsaturated_cores: float) -> bool:
    """Whether CPU usage is cut off by the limit, and not just what was used below it. A NaN limit is none.

    Throttled usage hides the demand.
    """
    as_unsaturated = abs(used_cores - unsaturated_cores) <= LIMIT_TOLERANCE * used_cores
    return used_cores >= limit_cores * (1.0 - LIMIT_TOLERANCE) and not as_unsaturated


@njit(cache=True, nogil=True, inline="always")
def is_saturated(used_cores: float, request_cores: float, limit_cores: float, tolerance: float) -> bool:
    """Whether usage is all the CPU available: the request on a full node, or the limit."""
    just = request_cores * SATURATION_SHARE <= used_cores <= request_cores * tolerance
    return just or used_cores >= limit_cores * SATURATION_SHARE


@njit(cache=True, nogil=True)
def count_samples(
    slots: IntArray, usage: FloatArray, at_s: FloatArray, labels: IntArray, cycle: int, step_s: float,
    containers: SampledArrays, enters: BoolArray,
) -> None:  # fmt: skip
    """Take in the next sample of each container in the number `cycle` of the clock, each at most once.

    `enters`, bool (m,), is OUT: whether it enters another phase.
    """
    c = containers
    for k in range(len(slots)):
        slot, cpu_cores = slots[k], usage[k, 0]
        throttled = is_throttled(cpu_cores, c.limits[slot, 0], c.unsaturated_cpu_cores[slot])
        c.throttled_samples[slot] = c.throttled_samples[slot] + 1 if throttled else 0
        for counted in (c.last_cell, c.rows_since_decision, c.rows_since_history, c.samples):
            counted[slot] += 1
        c.used[slot, 0], c.used[slot, 1] = cpu_cores, usage[k, 1]  # assigning rows compiles for two more seconds
        passed = cycle - c.cycle[slot]
        if passed > 0:
            c.cycle_cpu_cores[slot, 1] = c.cycle_cpu_cores[slot, 0] if passed == 1 else math.nan
        if passed > 0 or not c.cycle_cpu_cores[slot, 0] >= cpu_cores:
            c.cycle_cpu_cores[slot, 0] = cpu_cores
        c.cycle[slot] = cycle
        passed_s = at_s[k] - c.sampled_s[slot]
        smoothed_s = 0.7 * c.sample_interval_s[slot] + 0.3 * passed_s
        c.sample_interval_s[slot] = smoothed_s if math.isfinite(passed_s) else step_s
        c.sampled_s[slot] = at_s[k]
        enters[k] = labels[k] != c.phase[slot]
        if enters[k]:
            c.phase[slot], c.since_cell[slot] = labels[k], c.last_cell[slot]


@njit(cache=True, nogil=True)
def append_rows(
    slots: IntArray, usage: FloatArray, labels: IntArray, kept_usage: FloatArray, kept_labels: NDArray[np.int16]
) -> None:
    """Append rows, float64 (m, 2) and int64 (m,), to those kept of each container; the oldest are dropped.

    `kept_usage` and `kept_labels` are IN OUT float64 (n, width, 2) and int16 (n, width). A slot may repeat.
    """
    newest = kept_usage.shape[1] - 1
    for k in range(len(slots)):
        slot = slots[k]
        for row in range(newest):
            kept_labels[slot, row] = kept_labels[slot, row + 1]
            for resource in range(2):
                kept_usage[slot, row, resource] = kept_usage[slot, row + 1, resource]
        kept_usage[slot, newest, 0], kept_usage[slot, newest, 1] = usage[k, 0], usage[k, 1]
        kept_labels[slot, newest] = labels[k]


@njit(cache=True, nogil=True, inline="always")
def count_saturated(slot: int, tolerance: float, containers: SampledArrays) -> None:
    """Count the latest sample if it uses all the CPU of its container; each other sample takes one back.

    A count of consecutive samples would ask for more and withdraw it with each dip, before it could be applied.
    """
    c, used, limit = containers, containers.used[slot, 0], containers.limits[slot, 0]
    saturated = is_saturated(used, c.requests[slot, 0], limit, tolerance)
    if not saturated:
        decayed = c.unsaturated_cpu_cores[slot] + DECAY * (used - c.unsaturated_cpu_cores[slot])
        c.unsaturated_cpu_cores[slot] = decayed if decayed > used else used
    unsaturated = c.unsaturated_cpu_cores[slot]
    enough = used <= UNSATURATED_FACTOR * unsaturated and not is_throttled(used, limit, unsaturated)
    count = c.saturated_samples[slot] + (1 if saturated and not enough else -1)
    c.saturated_samples[slot] = min(max(count, 0), MAX_SATURATED_SAMPLES)


@njit(cache=True, nogil=True)
def judge_samples(
    slots: IntArray, owner: IntArray, lacks_room: BoolArray, tolerance: float,
    containers: SampledArrays, groups: JudgedArrays, judged: BoolArray, allocated: FloatArray, intended: FloatArray,
) -> None:  # fmt: skip
    """Compare the latest samples of containers with what their groups were given, see `engine.judging`.

    `judged`, bool (m,), and `allocated` and `intended`, float64 (m, 2), are OUT: what each is compared with, and what
    it would have without limits; NaN for a resource without a target.
    """
    for k in range(len(slots)):
        slot, group = slots[k], owner[k]
        count_saturated(slot, tolerance, containers)
        has_target, has_it, has_request = False, True, False
        for resource in range(2):
            request, given = containers.requests[slot, resource], groups.given[group, resource]
            has_target |= not math.isnan(given)
            has_it &= math.isnan(given) or abs(request - given) <= GIVEN_TOLERANCE * given
            has_request |= not math.isnan(request)
        containers.had_target[slot] |= has_target and has_it
        advisory = has_target and not groups.applied[group]
        judged[k] = advisory or (containers.had_target[slot] and has_request and not lacks_room[group])
        groups.judged[group] = groups.judged[group] * VIOLATION_DISCOUNT + 1.0 if judged[k] else groups.judged[group]
        for resource in range(2):
            given, published = groups.given[group, resource], groups.published[group, resource]
            had = given if advisory else containers.requests[slot, resource]
            # Where a container has what was given, and that is less than what was published, a user, a quota or a node
            # limits it. Where it does not have it yet, the target came too late, which counts against the policy.
            limited = had >= given * (1.0 - GIVEN_TOLERANCE) and published > had
            allocated[k, resource] = had
            intended[k, resource] = math.nan if math.isnan(given) else (published if limited else had)
            if judged[k]:
                violates = containers.used[slot, resource] > intended[k, resource] * tolerance
                violations = groups.violations[group, resource] * VIOLATION_DISCOUNT + violates
                groups.violations[group, resource] = violations


@njit(cache=True, nogil=True)
def record_peaks(
    groups: IntArray, used_bytes: FloatArray, ages_s: FloatArray, peak_bytes: FloatArray, peak_age_s: FloatArray
) -> None:
    """Record memory usage, float64 (m,), of containers of these ages.

    `peak_bytes` and `peak_age_s` are IN OUT float64 (n, days) and (n,): peaks of each day, today's first, and the age
    at the largest.
    """
    for k in range(len(groups)):
        group = groups[k]
        if used_bytes[k] > peak_bytes[group].max() * PEAK_FACTOR:
            peak_age_s[group] = ages_s[k]
        peak_bytes[group, 0] = max(peak_bytes[group, 0], used_bytes[k])
