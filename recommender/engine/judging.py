"""Samples held against what their containers have: all of a step at once."""

from __future__ import annotations

import numpy as np

from recommender.engine.container_arrays import BY_CLASS, SEEN_BEFORE
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray

PINNED_FROM = 0.95
"""From this share of what it has on, a container is taken to use all of it."""

MOST_PINNED = 8
"""Twice what more is asked for by: so many samples later at most it is known that a container wants no more."""

NO_MORE = 1.05
"""A container that used no less when it had room does not use more because it has none."""

FADES = 0.001
"""What a container used when it had room comes this share closer to what it uses in each such sample, when less: so it
is still known when the next phase that uses as much comes."""

SAME = np.array([0.01, 0.01])
"""What a container has differs from what was published for it by no more than this share: it is ours."""


def judge(
    fleet: Fleet,
    groups: GroupArrays,
    slots: IntArray,
    target_violation: tuple[float, float],
    report: Report,
    now_s: float,
) -> None:
    """Take the latest samples of containers; what is not ours to answer for is not judged.

    That is a container for which nothing is published, one that has never had what was, and one whose resize waits for
    room on its node. Where nobody applies what is published, samples are held against that. The report counts whatever
    was short; against what decided counts only what would have been without limits, see `_meant`.

    Parameters
    ----------
    slots
        int64 (m,): whose they are, each once.
    target_violation
        Share of samples above allocation x 1.05 that is accepted, per resource.
    """
    arrays, owner = fleet.arrays, fleet.arrays.group[slots]
    used, had, given = arrays.used[slots], arrays.had[slots], groups.given[owner]
    _see_pinned(fleet, slots)
    arrays.given[slots] |= is_given(had, given)
    ours = arrays.given[slots] & ~np.isnan(had).all(axis=1) & ~groups.lacks_room(now_s)[owner]
    looked_at = ~groups.applied[owner] & ~np.isnan(given).all(axis=1)
    had = np.where(looked_at[:, np.newaxis], given, had)
    judged = np.flatnonzero(ours | looked_at)
    report.judge(used[judged], had[judged])
    meant, demand = _meant(had, given, groups.published[owner]), arrays.demand(slots, used)
    groups.judge(owner[judged], used[judged] > meant[judged] * VIOLATION_TOLERANCE)
    forecast = judged[~np.isin(arrays.decided_by[slots[judged]], SEEN_BEFORE)]
    fleet.hold(slots[forecast], demand[forecast], meant[forecast])
    short, says = demand[:, CPU] > meant[:, CPU] * VIOLATION_TOLERANCE, ~np.isnan(meant[:, CPU])
    for at in judged[(says & (arrays.decided_by[slots] == BY_CLASS))[judged]].tolist():
        if (runs := fleet.by_slot[int(slots[at])].runs) is not None:
            runs.judge(bool(short[at]), target_violation[CPU])


def _meant(had: FloatArray, given: FloatArray, published: FloatArray) -> FloatArray:
    """What containers would have by our word alone, float64 (m, 2) each; NaN of a resource that is not ours to say.

    Where one has what it was given, and that is less than what was published before all limits, a user, a quota or a
    node keeps it there. What it does not have yet came too late, which is held against us.
    """
    heeded = had >= given * (1.0 - SAME)
    meant = np.where(heeded, np.fmax(had, published), had)
    return np.where(np.isnan(given), np.nan, meant)


def is_given(had: FloatArray, given: FloatArray) -> BoolArray:
    """Whether containers have what was published, float64 (..., 2); not where nothing was."""
    same = (np.abs(had - given) <= SAME * given) | np.isnan(given)
    return np.asarray(same.all(axis=-1) & ~np.isnan(given).all(axis=-1))


def _see_pinned(fleet: Fleet, slots: IntArray) -> None:
    """Count samples in which a container used just the CPU that it has; each other one takes one back.

    Counted in a row, more would be asked for and taken back with each dip, before anybody gives it.
    """
    arrays = fleet.arrays
    used, had = arrays.used[slots, CPU], arrays.had[slots, CPU]
    all_of_it = uses_all(used, had, arrays.limits[slots, CPU])
    free = slots[~all_of_it]
    before, now = arrays.free_cpu_cores[free], arrays.used[free, CPU]
    arrays.free_cpu_cores[free] = np.fmax(now, before + FADES * (now - before))
    no_more = used <= NO_MORE * arrays.free_cpu_cores[slots]
    no_more &= ~arrays.cut_off(slots, used)
    more = all_of_it & ~no_more
    arrays.pinned[slots] = np.clip(arrays.pinned[slots] + np.where(more, 1, -1), 0, MOST_PINNED)


def uses_all(cpu_cores: FloatArray, requests: FloatArray, limits: FloatArray) -> BoolArray:
    """Whether that is just the CPU that containers have: their request on a full node, or their limit; float64 (m,)."""
    just = (requests * PINNED_FROM <= cpu_cores) & (cpu_cores <= requests * VIOLATION_TOLERANCE)
    found: BoolArray = just | (cpu_cores >= limits * PINNED_FROM)
    return found
