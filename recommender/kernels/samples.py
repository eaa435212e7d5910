"""Samples of live containers: counted, and compared with what their containers had."""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import BoolArray, FloatArray, IntArray

CENSORED_SHARE, FULL_NODE_FACTOR = 0.95, 1.25
"""CPU use of at least the first share of what a container can get is *censored*: it wanted at least that much. A full
node shares what nobody requests, so that it gives somewhat more than the request, up to the second multiple of it."""

MIN_CENSORED_SAMPLES, AT_LIMIT = 4, 2
"""Consecutive censored samples from which on more is tried, fewer may be chance; each at a limit counts as so many.
Nodes enforce limits, but requests only while they are full."""

HEADROOM, LIMIT_HEADROOM = 1.06, 1.1
"""CPU as a multiple of the latest uncensored use: steady use with some noise is then no censored use. The second is for
limits, which cut off each peak within a sample."""

FREE_DECAY, SAME_STAGE_SHARE = 0.99, 0.7
"""Decay per sample, of every kind, of the use seen with room: what was enough a while ago proves nothing now. Use of
less than this share of it is a new stage."""

WITHHELD_FACTOR = 1.25
"""CPU was withheld if, once there is more, this multiple of what there was is used."""

IN_FORCE_TOLERANCE = 0.01
"""Relative difference up to which requests count as the published target."""

PEAK_FACTOR = 1.02
"""A memory peak that is exceeded by less is the same one."""

VIOLATION_DISCOUNT = 1.0 - 1.0 / 400.0
"""Weight of a judged sample after one more: the violation ratio rests on about the latest four hundred."""


SampledArrays = namedtuple(
    "SampledArrays",
    "last_cell rows_since_decision rows_since_history samples sampled_s sample_interval_s used cycle cycle_cpu_cores "
    "requests limits previous_bounds had_target censored_samples censored_cpu_cores free_cpu_cores tested withheld "
    "phase since_cell",
)
JudgedArrays = namedtuple("JudgedArrays", "applied published in_force violations judged")
"""Arrays of containers and of groups, see `ContainerArrays` and `GroupArrays`."""


@njit(cache=True, nogil=True, inline="always")
def censored_samples(used_cores: float, request_cores: float, limit_cores: float) -> int:
    """As how many censored samples one counts: those of all that can be had, the limit, or the request on a full node.

    Such a sample says "at least this", and never that it was enough. NaN is no request and no limit.
    """
    if used_cores >= limit_cores * CENSORED_SHARE:
        return AT_LIMIT
    return int(request_cores * CENSORED_SHARE <= used_cores <= request_cores * FULL_NODE_FACTOR)


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
def count_censored(slot: int, applied: bool, containers: SampledArrays) -> bool:
    """Count the latest sample if it is censored, else learn from it how much CPU is used where there is room.

    Requests count where they are ours, so that more can be tried. Returns whether demand counts as censored.
    """
    c, used = containers, containers.used[slot, 0]
    request, limit = c.requests[slot, 0] if applied else math.nan, c.limits[slot, 0]
    before = c.previous_bounds[slot]
    least_request, least_limit = np.fmin(request, before[0]), np.fmin(limit, before[1])  # it may be older than a resize
    before[0], before[1] = request, limit
    if used > request * FULL_NODE_FACTOR:  # no full node gives so much more
        c.tested[slot] = c.withheld[slot] = False
    elif used > c.censored_cpu_cores[slot] * WITHHELD_FACTOR:
        c.withheld[slot] = True
    c.free_cpu_cores[slot] *= FREE_DECAY if used >= SAME_STAGE_SHARE * c.free_cpu_cores[slot] else 0.0
    counts = censored_samples(used, least_request, least_limit)
    if counts == 0:
        c.censored_samples[slot], c.censored_cpu_cores[slot] = 0, math.nan
        c.free_cpu_cores[slot] = np.fmax(c.free_cpu_cores[slot], used)
        return False
    c.censored_samples[slot] += counts
    if c.censored_samples[slot] < MIN_CENSORED_SAMPLES:
        return False
    c.tested[slot] = True
    c.censored_cpu_cores[slot] = np.fmin(c.censored_cpu_cores[slot], used)
    return True


@njit(cache=True, nogil=True)
def judge_samples(
    slots: IntArray, owner: IntArray, lacks_room: BoolArray, tolerance: float,
    containers: SampledArrays, groups: JudgedArrays, judged: BoolArray, censored: BoolArray, allocated: FloatArray,
    unlimited: FloatArray,
) -> None:  # fmt: skip
    """Compare the latest samples of containers with what is in force for their groups, see `engine.judging`.

    `judged` and `censored`, bool (m,), and `allocated` and `unlimited`, float64 (m, 2), are OUT: which are compared,
    and which cannot be since demand is censored; what each is compared with, and what it would have without limits, NaN
    for a resource without a target.
    """
    for k in range(len(slots)):
        slot, group = slots[k], owner[k]
        censored[k] = count_censored(slot, groups.applied[group], containers)
        has_target, has_it, has_request = False, True, False
        for resource in range(2):
            request, in_force = containers.requests[slot, resource], groups.in_force[group, resource]
            has_target |= not math.isnan(in_force)
            has_it &= math.isnan(in_force) or abs(request - in_force) <= IN_FORCE_TOLERANCE * in_force
            has_request |= not math.isnan(request)
        containers.had_target[slot] |= has_target and has_it
        advisory = has_target and not groups.applied[group]
        ours = containers.had_target[slot] and has_request and not lacks_room[group]
        censored[k] &= advisory or ours
        judged[k] = not censored[k] and (advisory or ours)
        groups.judged[group] = groups.judged[group] * VIOLATION_DISCOUNT + 1.0 if judged[k] else groups.judged[group]
        for resource in range(2):
            in_force, published = groups.in_force[group, resource], groups.published[group, resource]
            had = in_force if advisory else containers.requests[slot, resource]
            # Where a container has what is in force, and that is less than what was published, a user, a quota or a
            # node limits it. Where it does not have it yet, the target came too late, which counts against the policy.
            limited = had >= in_force * (1.0 - IN_FORCE_TOLERANCE) and published > had
            allocated[k, resource] = had
            unlimited[k, resource] = math.nan if math.isnan(in_force) else (published if limited else had)
            if judged[k]:
                violates = containers.used[slot, resource] > unlimited[k, resource] * tolerance
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
