"""What the rails know of all groups in a step: arrays, one row a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recommender.engine.container_arrays import NOBODY, SEEN_BEFORE, UNDECIDED
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.options import RailOptions
from recommender.engine.shares import SharedNode
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray

DOUBTS = (
    "",
    "no running container",
    "too little history",
    "phase unknown",
    "no samples lately",
    "violations although the margin was widened",
)
"""Why a forecast is not to be trusted, in the order of their numbers; 0: it is."""

SURE, NOBODY_RUNS, TOO_LITTLE, PHASE_UNKNOWN, SILENT, TOO_MANY_VIOLATIONS = range(len(DOUBTS))

FEW_SAMPLES = 40
"""A share of fewer samples than these is chance."""

PINNED_SAMPLES = 4
"""Fewer samples near the request are chance."""

SILENT_SAMPLES = 3
"""After so many that did not come, nothing is known of what a container does now."""

HEADROOM = 1.1
"""A stranger gets so much of what it uses itself while others of its group say what is needed."""


@dataclass
class Situation:
    """What is known of groups, and what their containers want."""

    groups: GroupArrays
    """What is remembered of each."""
    now_s: float
    """Unix seconds."""
    wanted: FloatArray
    """float64 (n, 2): the largest demand among their containers, cores and bytes; NaN where none could be forecast.
    Containers of one group may be in different phases; what the most demanding one needs is for all, per resource."""
    leading: IntArray
    """int64 (n,): the slot of the container whose demand in CPU that is; -1 where it is no running one's."""
    doubt: IntArray
    """int64 (n,): why the forecast is not to be trusted, a place in `DOUBTS`."""
    silent: BoolArray
    """bool (n,): containers run, and nothing was told of any of them lately; or none runs and none is expected."""
    working_set_bytes: FloatArray
    """float64 (n,): the largest present one; NaN where none is known."""
    pinned_cpu_cores: FloatArray
    """float64 (n,): the most CPU that a container has which has used just that for a while, as one does that gets no
    more; NaN where none has."""
    recent_cpu_cores: FloatArray
    """float64 (n,): the largest use in the latest cycles; NaN where there was none."""
    promised: BoolArray
    """bool (n,): the class of each of its containers promises what memory the rest of a run needs."""
    seen_before: BoolArray
    """bool (n,): what is wanted was seen before, in earlier runs of the class or in a container's own past."""
    spent: BoolArray
    """bool (n, 2): a resource violates more than is accepted."""
    leans: BoolArray
    """bool (n,): the CPU that is wanted is what stands, since that is enough for strangers to it."""
    deferred_s: FloatArray
    """float64 (n,): for how long a resize has waited for room on a node, for which a pod may be evicted; 0 where none
    does."""
    evicts: BoolArray
    """bool (n,): a change makes its pods, or starts its containers, anew; or may, since a node has no room for it."""
    keeps_peak: BoolArray
    """bool (n,): the most memory that one container used must be there also while less is needed, since a run may begin
    again, or come to it yet."""
    kill_floor_bytes: FloatArray
    """float64 (n,): what must be had since a container was killed for memory; 0 without such an event."""
    youngest_s: FloatArray
    """float64 (n,): the age of the container that was started last; infinite where none runs."""
    changed_enough: BoolArray
    """bool (n, 2): a resource of the target changed within the last hour as often as it may."""
    shared: Sequence[SharedNode]
    """Nodes whose containers share them."""

    @cached_property
    def guesses(self) -> BoolArray:
        """bool (n,): what is published is a guess, and says so."""
        guesses: BoolArray = self.doubt != SURE
        return guesses

    @cached_property
    def stands(self) -> BoolArray:
        """bool (n, 2): what stands goes on until containers have shown enough to doubt it."""
        untold = (self.doubt == TOO_LITTLE) & self.groups.taught
        stands = np.column_stack([untold | ((self.doubt == SURE) & self.leans), untold])
        return stands & ~np.isnan(self.groups.published)

    @property
    def standing_bytes(self) -> FloatArray:
        """float64 (n,): memory in force; where no target is, what containers request, unless the default decides."""
        applied, had = self.groups.published[:, MEMORY], self.groups.had[:, MEMORY]
        return np.where(np.isnan(applied) & ~self.as_default[:, MEMORY], had, applied)

    @cached_property
    def as_default(self) -> BoolArray:
        """bool (n, 2): published of a resource is what the default recommender would.

        Not memory that earlier runs promise, unless a change evicts: no doubt of the forecast of CPU touches that.
        """
        as_default = (self.guesses | self.evicts) & ~np.isnan(self.groups.known).any(axis=(1, 2))
        return np.column_stack([as_default, as_default & (self.evicts | ~self.promised)])

    @cached_property
    def disturbs_nobody(self) -> BoolArray:
        """bool (n, 2): and within its bounds, which are wide while there is little history.

        Not for one that has too little in place because of us: it would keep that for as long as its bounds are wide.
        """
        lets_be = self.evicts | (self.doubt != TOO_MANY_VIOLATIONS)
        disturbs_nobody: BoolArray = self.as_default & lets_be[:, np.newaxis]
        return disturbs_nobody


def look(
    fleet: Fleet,
    groups: GroupArrays,
    coming: FloatArray,
    coming_promised: BoolArray,
    shared: Sequence[SharedNode],
    now_s: float,
    options: RailOptions,
) -> Situation:
    """What there is of each group.

    Parameters
    ----------
    coming
        float64 (n, 2): what containers are to have that have not used anything yet; NaN where nobody knows.
    coming_promised
        bool (n,): see `Situation.promised`.
    """
    n, arrays = len(groups), fleet.arrays
    slots = np.flatnonzero(arrays.alive & (arrays.group != NOBODY))
    owner = arrays.group[slots]
    decided = arrays.decided_by[slots] != UNDECIDED
    seen_before = np.isin(arrays.decided_by[slots], SEEN_BEFORE)
    wanted, leans = _lean_on_the_grown_up(fleet, groups, slots, decided, seen_before)
    says_something = ~np.isnan(wanted).any(axis=1)
    foresees = decided & ~seen_before
    runs, says, unknown = (
        np.bincount(owner[which], minlength=n)
        for which in (slice(None), says_something, foresees & (arrays.phase[slots] == UNKNOWN_PHASE))
    )
    expected: BoolArray = np.logical_not(np.isnan(coming).any(axis=1))
    silent = np.where(runs > 0, _silent(fleet, slots, owner, n, now_s), ~expected)
    spent, by_far = _spent(groups, options)
    youngest_s = np.full(n, np.inf)
    np.fmin.at(youngest_s, owner, fleet.ages_s(slots, now_s))
    most = _most(wanted, owner, n)
    all_wanted = np.fmax(most, coming)
    promised = np.bincount(owner, ~arrays.promised[slots], minlength=n) == 0
    promised &= np.where(expected, coming_promised, runs > 0)
    evicts = groups.evicts | (groups.evictable & groups.lacks_room(now_s))
    experienced = (np.bincount(owner, seen_before, minlength=n) > 0) | expected
    return Situation(
        groups=groups,
        now_s=now_s,
        wanted=all_wanted,
        leading=_leading(slots, owner, wanted[:, CPU], most[:, CPU], coming[:, CPU]),
        doubt=_doubt(runs, says, unknown, expected, silent, by_far),
        silent=silent,
        working_set_bytes=_most(arrays.used[slots, MEMORY], owner, n),
        pinned_cpu_cores=_most(
            np.where(arrays.pinned[slots] >= PINNED_SAMPLES, arrays.had[slots, CPU], np.nan), owner, n
        ),
        recent_cpu_cores=_most(np.fmax.reduce(arrays.cycle_cpu_cores[slots], axis=1), owner, n),
        promised=promised,
        seen_before=experienced,
        spent=spent,
        leans=leans & (all_wanted[:, CPU] == groups.published[:, CPU]),
        deferred_s=np.where(groups.evictable, np.maximum(0.0, now_s - groups.deferred_since_s), 0.0),
        evicts=evicts,
        keeps_peak=_keeps_peak(groups, evicts, youngest_s, promised, fleet.lead_s),
        kill_floor_bytes=groups.kill_floor(now_s),
        youngest_s=youngest_s,
        changed_enough=groups.changed_so_often(options.resizes_per_hour, now_s),
        shared=shared,
    )


def _doubt(
    runs: IntArray, says: IntArray, unknown: IntArray, expected: BoolArray, silent: BoolArray, by_far: BoolArray
) -> IntArray:
    """int64 (n,): why what is said of each group is a guess, a place in `DOUBTS`; of several reasons the gravest.

    Parameters
    ----------
    runs, says, unknown
        int64 (n,): containers, those of which something can be said, and those in a phase that nobody knows.
    by_far
        bool (n, 2): see `_spent`.
    """
    doubt = np.full(len(runs), SURE)
    doubt[2 * unknown > says] = PHASE_UNKNOWN
    doubt[(says == 0) & ~expected] = TOO_LITTLE
    doubt[(runs == 0) & ~expected] = NOBODY_RUNS
    doubt[silent & (runs > 0)] = SILENT
    doubt[(doubt == SURE) & by_far.any(axis=1)] = TOO_MANY_VIOLATIONS
    return doubt


def _keeps_peak(
    groups: GroupArrays, evicts: BoolArray, youngest_s: FloatArray, promised: BoolArray, lead_s: float
) -> BoolArray:
    """Whether a run's largest need must be there while less is needed: it cannot be given when it comes.

    A limit that follows kills the run that begins again; one that is begun by somebody else gets what stands published.
    Where a request alone is moved, in place, it is given in time to what comes to its peak later than the lead time.
    """
    in_time = ~evicts & ~groups.limits_follow & (~groups.repeats | (groups.peak_age_s > lead_s))
    to_come = ~promised & (youngest_s <= groups.peak_age_s + lead_s)
    keeps: BoolArray = ~in_time | to_come
    return keeps


def _lean_on_the_grown_up(
    fleet: Fleet, groups: GroupArrays, slots: IntArray, decided: BoolArray, seen_before: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """What each of these wants, float64 (m, 2): a stranger does not replace what those that are none have taught.

    What CPU is forecast of a container that has just begun differs from what is forecast of it later. While another one
    of its group is no stranger any more, a stranger gets what it uses; while all are strangers to what others have
    taught, that stands as long as it is enough: in which groups, bool (n,).
    """
    arrays, owner = fleet.arrays, fleet.arrays.group[slots]
    grown_up = decided & (seen_before | (arrays.samples[slots] >= fleet.cycle_samples))
    groups.taught[owner[grown_up & ~seen_before]] = True
    has_grown_up = np.bincount(owner, grown_up, minlength=len(groups)) > 0
    leans = ~grown_up & (has_grown_up | groups.taught)[owner]
    wanted = np.where(np.column_stack([decided, decided | arrays.promised[slots]]), arrays.wanted[slots], np.nan)
    wanted[leans, CPU] = arrays.used[slots, CPU][leans] * HEADROOM
    stands = groups.published[owner, CPU]
    enough = leans & ~has_grown_up[owner] & (arrays.used[slots, CPU] <= stands * VIOLATION_TOLERANCE)
    wanted[enough, CPU] = stands[enough]
    return wanted, np.bincount(owner[enough], minlength=len(groups)) > 0


def _silent(fleet: Fleet, slots: IntArray, owner: IntArray, n: int, now_s: float) -> BoolArray:
    """bool (n,): of no container of a group anything was told lately."""
    arrays = fleet.arrays
    patience_s = SILENT_SAMPLES * np.maximum(arrays.every_s[slots], fleet.step_s)
    fresh = now_s - arrays.sampled_s[slots] <= patience_s
    silent: BoolArray = np.bincount(owner, fresh, minlength=n) == 0
    return silent


def _spent(groups: GroupArrays, options: RailOptions) -> tuple[BoolArray, BoolArray]:
    """Whether each resource violates more than is accepted, and so much more that even the wider margin does."""
    accepted, ratio = np.array(options.target_violation), groups.violation_ratio()
    enough = (groups.judged >= FEW_SAMPLES)[:, np.newaxis]
    return enough & (ratio > accepted), enough & (ratio > 2.0 * accepted)


def _most(amounts: FloatArray, owner: IntArray, n: int) -> FloatArray:
    """float64 (n, ...): the largest of each group, NaN where nothing is known."""
    most = np.full((n, *amounts.shape[1:]), np.nan)
    np.fmax.at(most, owner, amounts)
    return most


def _leading(slots: IntArray, owner: IntArray, cpu_cores: FloatArray, most: FloatArray, coming: FloatArray) -> IntArray:
    """int64 (n,): of each group the slot that wants most CPU, the first of equal ones; -1 where nobody running does."""
    leading = np.full(len(coming), -1)
    leads = np.flatnonzero(cpu_cores == most[owner])[::-1]
    leading[owner[leads]] = slots[leads]
    leading[coming > most] = -1
    return leading
