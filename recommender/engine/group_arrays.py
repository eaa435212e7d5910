"""What is remembered of groups between steps, side by side: what was published, how that went, what was ever used.

A group is what shares one target: the containers of one name under one VPA. It outlives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recommender.engine.container_arrays import NOBODY
from recommender.records import MEMORY, Amounts, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays, fresh

HOUR_S, DAY_S = 3600.0, 86400.0

FORGETTING = 1.0 - 1.0 / 400.0
"""What a judged sample counts for after one more: some four hundred of the latest ones make up the share."""

KILL_MEMORY_S = 7 * DAY_S
"""How long a kill for memory binds: a weekly job meets the same stage again."""

PEAK_DAYS = 8
"""For so many days the most memory that was used is known: as long as the default recommender looks back."""

FULL_S = HOUR_S
"""A node that had no room is taken for full for so long, where the updater evicts what it has no room for."""

ABOUT = 1.02
"""A peak that is exceeded by less is the same one."""

CHANGES = 64
"""So many of the latest changes of each resource are known; more an hour are not allowed to anybody."""

LOWER, TARGET, UPPER = 0, 1, 2
"""Rows of an estimate, float64 (3, 2)."""

_NOTHING = np.full(2, np.nan)
_NO_ESTIMATE = np.full((3, 2), np.nan)


class GroupArrays(SlotArrays):
    """By slot; in twos: cores and bytes."""

    alive: BoolArray = fresh(False)
    """A group is there."""
    applied: BoolArray = fresh(False)
    evicts: BoolArray = fresh(False)
    limits_follow: BoolArray = fresh(False)
    repeats: BoolArray = fresh(False)
    declared_cores: FloatArray = fresh(np.nan)
    shares: BoolArray = fresh(False)
    evictable: BoolArray = fresh(True)
    """See `keys.Rules`."""
    published: FloatArray = fresh(_NOTHING)
    """(n, 2): the target in force, before the limits of users and operators; NaN where there is none."""
    given: FloatArray = fresh(_NOTHING)
    """(n, 2): the same within all limits, as containers get it."""
    changed_s: FloatArray = fresh(np.full((2, CHANGES), -np.inf))
    """(n, 2, CHANGES): when each resource of it changed, the latest first, unix seconds."""
    less_memory_since_s: FloatArray = fresh(np.nan)
    """Since when less memory is wanted than stands; NaN while it is not."""
    violations: FloatArray = fresh(np.zeros(2))
    judged: FloatArray = fresh(0.0)
    """(n, 2) and (n,): of CPU and memory, and a number of samples, all fading."""
    kill_floor_bytes: FloatArray = fresh(0.0)
    killed_s: FloatArray = fresh(-np.inf)
    """What a kill for memory showed to be needed, and when that was."""
    peak_bytes: FloatArray = fresh(np.zeros(PEAK_DAYS))
    peak_day: IntArray = fresh(0)
    """(n, PEAK_DAYS): the most memory that one container used on each of the latest days, and which day that is."""
    peak_age_s: FloatArray = fresh(0.0)
    """How old a container was when it had reached the most that is known: before, a run may still come to it."""
    taught: BoolArray = fresh(False)
    """A container that is no stranger any more has said what it needs."""
    costly: BoolArray = fresh(False)
    """A kill costs one of its containers, or the last that it had, more than others."""
    had: FloatArray = fresh(_NOTHING)
    """(n, 2): the most that one of its containers requests."""
    deferred_since_s: FloatArray = fresh(np.inf)
    last_deferred_s: FloatArray = fresh(-np.inf)
    """Since when a resize has waited for room, and since when the last one did that had to."""
    known: FloatArray = fresh(_NO_ESTIMATE)
    known_days: FloatArray = fresh(0.0)
    known_s: FloatArray = fresh(-np.inf)
    """(n, 3, 2): what the default recommender said when it was asked last; on how many days of history that rested, and
    when that was."""
    said: FloatArray = fresh(_NO_ESTIMATE)
    """(n, 3, 2): what was advised last, with its band."""
    news: IntArray = fresh(0)
    vital: IntArray = fresh(0)
    """Count what a person would be told of: another target, phase or container; and of that what must not be lost at a
    restart: a container that was decided for, a kill."""
    said_doubt: IntArray = fresh(-1)
    """What it was doubted for, a place in `situation.DOUBTS`; -1 before anything was advised."""
    said_wide: BoolArray = fresh(False)
    """Its CPU was within the default recommender's bounds."""

    def violation_ratio(self) -> FloatArray:
        """float64 (n, 2): share of the judged samples that violated, the latest counting most."""
        ratio: FloatArray = self.violations / np.maximum(self.judged, 1.0)[:, np.newaxis]
        return ratio

    def judge(self, groups: IntArray, violates: BoolArray) -> None:
        """Count samples, bool (m, 2): whether each was above what its container had at the time. Groups may repeat."""
        for turn in _turns(groups):
            slots = groups[turn]
            self.violations[slots] = self.violations[slots] * FORGETTING + violates[turn]
            self.judged[slots] = self.judged[slots] * FORGETTING + 1.0

    def see_memory(self, groups: IntArray, used_bytes: FloatArray, ages_s: FloatArray, now_s: float) -> None:
        """Note what containers of these ages use, float64 (m,) each. Groups may repeat."""
        today = int(now_s // DAY_S)
        for slot in set(groups[self.peak_day[groups] < today].tolist()):
            passed = min(today - int(self.peak_day[slot]), PEAK_DAYS)
            self.peak_bytes[slot] = np.concatenate([np.zeros(passed), self.peak_bytes[slot, : PEAK_DAYS - passed]])
            self.peak_day[slot] = today
        for turn in _turns(groups):
            slots, used, age_s = groups[turn], used_bytes[turn], ages_s[turn]
            higher = used > self.peak_bytes[slots].max(axis=1) * ABOUT
            self.peak_age_s[slots[higher]] = age_s[higher]
            self.peak_bytes[slots, 0] = np.maximum(self.peak_bytes[slots, 0], used)

    def follow_clock(self, slots: int | slice, now_s: float) -> None:
        """After a clock was set back: what lies ahead of it now counts as of now, or it would hold until then."""
        for times in (self.changed_s, self.less_memory_since_s, self.killed_s, self.last_deferred_s):
            times[slots] = np.minimum(times[slots], now_s)
        self.peak_day[slots] = np.minimum(self.peak_day[slots], int(now_s // DAY_S))
        self.known_s[slots] = -np.inf

    def standing(self) -> FloatArray:
        """float64 (n, 2): the target in force, and what containers request where there is none; NaN without either."""
        return np.where(np.isnan(self.published), self.had, self.published)

    def peak(self) -> FloatArray:
        """float64 (n,): the most memory that one container is known to have used; 0 where nothing is known."""
        peak: FloatArray = self.peak_bytes.max(axis=1, initial=0.0)
        return peak

    def kill_floor(self, now_s: float) -> FloatArray:
        """float64 (n,): bytes below which memory must not fall; 0 where no kill is remembered."""
        return np.where(now_s - self.killed_s < KILL_MEMORY_S, self.kill_floor_bytes, 0.0)

    def lacks_room(self, now_s: float) -> BoolArray:
        """bool (n,): a resize waits for room on a node, or one lately had to of a pod that is evicted for the next."""
        lately: BoolArray = self.evictable & (now_s - self.last_deferred_s < FULL_S)
        return lately | (self.deferred_since_s < np.inf)

    def changed_so_often(self, number: int, now_s: float) -> BoolArray:
        """bool (n, 2): a resource of the target changed so many times within the last hour, or more often.

        Each by itself: memory that rises step by step with a run must not keep CPU where it is.
        """
        if number <= 0:
            return np.ones((len(self), 2), bool)
        often: BoolArray = now_s - self.changed_s[:, :, min(number, CHANGES) - 1] <= HOUR_S
        return often

    def want(self, memory_bytes: FloatArray, now_s: float) -> None:
        """Note how much memory is wanted now, float64 (n,), so that less of it is had only after a while."""
        less = memory_bytes < self.standing()[:, MEMORY]
        self.less_memory_since_s[~less] = np.nan
        self.less_memory_since_s[less & np.isnan(self.less_memory_since_s)] = now_s

    def publish(self, slot: int, target: Amounts, given: Amounts, now_s: float) -> bool:
        """Note a target, before and within all limits; True when it is another one than before."""
        self.given[slot] = given
        before = self.published[slot].tolist()
        moved = [
            resource
            for resource, (new, old) in enumerate(zip(target, before, strict=True))
            if new != old and not (math.isnan(new) and math.isnan(old))
        ]
        if not moved:
            return False
        if not all(map(math.isnan, before)):
            self.changed_s[slot, moved, 1:] = self.changed_s[slot, moved, :-1].copy()
            self.changed_s[slot, moved, 0] = now_s
        if target[MEMORY] < before[MEMORY]:
            self.less_memory_since_s[slot] = now_s  # the next step down waits anew
        self.published[slot] = target
        return True

    def tell(self, slots: IntArray | Sequence[int], *, vital: bool = False) -> None:
        """There is news of these groups; `NOBODY` is none."""
        told = np.asarray(slots, np.int64)
        told = told[told != NOBODY]
        np.add.at(self.news, told, 1)
        if vital:
            np.add.at(self.vital, told, 1)


def _turns(groups: IntArray) -> list[IntArray]:
    """Positions, so that in each turn every group is there once at most; int64 (m_i,) each."""
    if len(groups) and np.bincount(groups).max() == 1:  # as most often
        return [np.arange(len(groups))]
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(groups) else order
    number = np.arange(len(order)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(order)]])))
    return [order[number == turn] for turn in range(int(number.max(initial=-1)) + 1)]
