"""State of the groups between steps, as arrays by slot: published targets, their violations, memory peaks.

A group is the containers that share a target: those of one name under one VPA. It outlives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recommender.base.records import MEMORY, Amounts, BoolArray, FloatArray, IntArray
from recommender.base.slots import SlotArrays, fresh
from recommender.base.units import SECONDS_PER_HOUR
from recommender.engine.container_arrays import NO_GROUP, UNKNOWN
from recommender.kernels.histogram import DAY_S
from recommender.kernels.samples import record_peaks

KILL_FLOOR_TTL_S = 7 * DAY_S
"""How long the floor after an OOM kill holds: a weekly job meets the same stage again."""

PEAK_DAYS = 8
"""Days of memory peaks that are kept, as many as the default recommender's."""

NODE_FULL_S = SECONDS_PER_HOUR
"""How long a node counts as full after a deferred resize, where the updater evicts the pod for it."""

KEPT_CHANGES = 64
"""Latest changes kept per resource; no limit on resizes an hour can be larger."""

LOWER, TARGET, UPPER = 0, 1, 2
"""Rows of an estimate, float64 (3, 2)."""

_NO_ESTIMATE = np.full((3, 2), np.nan)


class GroupArrays(SlotArrays):
    """By slot; arrays of shape (n, 2) hold cores and bytes."""

    alive: BoolArray = fresh(False)
    """The slot is taken."""
    vpa: IntArray = fresh(0)
    """Stands for its VPA: that of another group is the same only if it is of the same VPA."""
    applied: BoolArray = fresh(False)
    evicts: BoolArray = fresh(False)
    limits_follow: BoolArray = fresh(False)
    repeats: BoolArray = fresh(False)
    declared_cores: FloatArray = fresh(np.nan)
    declared_bytes: FloatArray = fresh(np.nan)
    shares: BoolArray = fresh(False)
    evictable: BoolArray = fresh(True)
    cpu_limit_follows: BoolArray = fresh(False)
    target_violation: FloatArray = fresh(np.nan)
    target_kills: FloatArray = fresh(np.nan)
    """See `keys.Rules`."""
    published: FloatArray = fresh(UNKNOWN)
    """(n, 2): the published target, before limits of users and operators; NaN for none."""
    in_force: FloatArray = fresh(UNKNOWN)
    """(n, 2): the same after all limits, which containers get."""
    changed_s: FloatArray = fresh(np.full((2, KEPT_CHANGES), np.nan))
    """(n, 2, KEPT_CHANGES): when each resource of it changed, latest first, unix seconds; NaN before."""
    less_memory_since_s: FloatArray = fresh(np.nan)
    """Since when less memory is wanted than is in force; NaN while it is not."""
    violations: FloatArray = fresh(np.zeros(2))
    judged: FloatArray = fresh(0.0)
    """(n, 2) and (n,): discounted counts of violating samples per resource, and of samples."""
    kill_floor_bytes: FloatArray = fresh(0.0)
    killed_s: FloatArray = fresh(-np.inf)
    """Memory floor after the last OOM kill, and when that was."""
    peak_bytes: FloatArray = fresh(np.zeros(PEAK_DAYS))
    peak_day: IntArray = fresh(0)
    """(n, PEAK_DAYS): peak memory of one container on each of the latest days, and the number of the latest day."""
    peak_age_s: FloatArray = fresh(0.0)
    """Age of a container when it reached the known peak: a younger run may still come to it."""
    established: BoolArray = fresh(False)
    """A mature container has determined the CPU target."""
    costly: BoolArray = fresh(False)
    """A kill of one of its containers, or of its last one, costs more than usual."""
    requests: FloatArray = fresh(UNKNOWN)
    """(n, 2): largest requests among its containers."""
    deferred_since_s: FloatArray = fresh(np.inf)
    last_deferred_s: FloatArray = fresh(-np.inf)
    """Since when a resize has been deferred for lack of room, and when the last deferral began."""
    default_estimate: FloatArray = fresh(_NO_ESTIMATE)
    history_days: FloatArray = fresh(0.0)
    default_asked_s: FloatArray = fresh(-np.inf)
    """(n, 3, 2): latest estimate of the default recommender, its days of history, and when it was computed."""
    targets: FloatArray = fresh(_NO_ESTIMATE)
    """(n, 3, 2): last target with its band."""
    revision: IntArray = fresh(0)
    durable_revision: IntArray = fresh(0)
    """Count changes that a person would be shown (target, phase, container), and those of them that must survive a
    restart (a first decision, a kill)."""
    target_doubt: IntArray = fresh(-1)
    """Index into `situation.DOUBTS`; -1 before the first target."""
    target_in_default_bounds: BoolArray = fresh(False)
    """The CPU of its target lay within the default recommender's bounds."""

    def violation_ratio(self) -> FloatArray:
        """float64 (n, 2): discounted share of judged samples that violated."""
        return self.violations / np.maximum(self.judged, 1.0)[:, np.newaxis]

    def with_others_of_vpa(self, groups: BoolArray) -> BoolArray:
        """bool (n,): some groups, bool (n,), and the others of their VPAs."""
        of_same: BoolArray = np.isin(self.vpa, self.vpa[groups])
        return of_same

    def record_memory(self, groups: IntArray, used_bytes: FloatArray, ages_s: FloatArray, now_s: float) -> None:
        """Record memory usage of containers of these ages, float64 (m,) each. Groups may repeat."""
        today = int(now_s // DAY_S)
        for slot in set(groups[self.peak_day[groups] < today].tolist()):
            passed = today - int(self.peak_day[slot])
            passed = passed if passed < PEAK_DAYS else 1  # or a clock that runs ahead for a moment forgets all
            self.peak_bytes[slot] = np.concatenate([np.zeros(passed), self.peak_bytes[slot, : PEAK_DAYS - passed]])
            self.peak_day[slot] = today
        record_peaks(groups, used_bytes, ages_s, self.peak_bytes, self.peak_age_s)

    def follow_clock(self, slots: int | slice, now_s: float) -> None:
        """After a clock was set back, move times that now lie in the future to now, or they would hold until then."""
        for times in (self.changed_s, self.less_memory_since_s, self.killed_s, self.last_deferred_s):
            times[slots] = np.minimum(times[slots], now_s)
        self.peak_day[slots] = np.minimum(self.peak_day[slots], int(now_s // DAY_S))
        self.default_asked_s[slots] = -np.inf

    def peak(self) -> FloatArray:
        """float64 (n,): known peak memory of one container; 0 if none."""
        peak: FloatArray = self.peak_bytes.max(axis=1, initial=0.0)
        return peak

    def kill_floor(self, now_s: float) -> FloatArray:
        """float64 (n,): bytes below which memory must not fall; 0 without a recent kill."""
        return np.where(now_s - self.killed_s < KILL_FLOOR_TTL_S, self.kill_floor_bytes, 0.0)

    def lacks_room(self, now_s: float) -> BoolArray:
        """bool (n,): a resize is deferred for lack of room, or was lately and the updater evicts for the next one."""
        recently: BoolArray = self.evictable & (now_s - self.last_deferred_s < NODE_FULL_S)
        return recently | (self.deferred_since_s < np.inf)

    def changed_at_least(self, number: int, now_s: float) -> BoolArray:
        """bool (n, 2): a resource of the target changed at least so many times within the last hour.

        Each resource by itself: memory that rises step by step during a run must not freeze CPU.
        """
        if number <= 0:
            return np.ones((len(self), 2), bool)
        return now_s - self.changed_s[:, :, min(number, KEPT_CHANGES) - 1] <= SECONDS_PER_HOUR

    def track_memory_demand(self, memory_bytes: FloatArray, now_s: float) -> None:
        """Record the memory wanted now, float64 (n,), to know for how long less has been wanted."""
        published, requests = self.published[:, MEMORY], self.requests[:, MEMORY]
        less = memory_bytes < np.where(np.isnan(published), requests, published)
        self.less_memory_since_s[~less] = np.nan
        self.less_memory_since_s[less & np.isnan(self.less_memory_since_s)] = now_s

    def publish(self, slot: int, target: Amounts, in_force: Amounts, now_s: float) -> bool:
        """Record a published target, before and after all limits; True when it changed."""
        self.in_force[slot] = in_force
        before = self.published[slot].tolist()
        moved = [
            resource
            for resource, (new, old) in enumerate(zip(target, before, strict=True))
            if new != old and not (math.isnan(new) and math.isnan(old))
        ]
        if not moved:
            return False
        if not all(map(math.isnan, before)):
            for resource in moved:
                times = self.changed_s[slot, resource]
                times[1:], times[0] = times[:-1].copy(), now_s
        if target[MEMORY] < before[MEMORY]:
            self.less_memory_since_s[slot] = now_s  # the next step down waits again
        self.published[slot] = target
        return True

    def bump_revision(self, slots: IntArray | Sequence[int], *, durable: bool = False) -> None:
        """Mark groups as changed; `NO_GROUP` is ignored."""
        if not len(slots):  # as in most steps
            return
        changed = np.asarray(slots, np.int64)
        changed = changed[changed != NO_GROUP]
        np.add.at(self.revision, changed, 1)
        if durable:
            np.add.at(self.durable_revision, changed, 1)
