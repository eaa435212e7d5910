"""Samples compared with what their containers had, all of a step at once."""

from __future__ import annotations

import numpy as np

from recommender.base.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.engine.container_arrays import BY_CLASS
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.kernels.samples import IN_FORCE_TOLERANCE, JudgedArrays, SampledArrays, judge_samples

MUCH_WITHHELD_FACTOR = 1.5
"""So much more use, once there is more, shows that later runs of a class could be held back, too. A job that by chance
does more just then seldom does that much more."""


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
    are not applied, samples are compared with the target itself. The report counts every shortage, and samples of
    censored demand as such; the policies are charged only with shortages that they would have had without limits, and a
    class only by runs that tell something of it. A class also learns whether full nodes hold its jobs back.
    """
    arrays, allocated, unlimited = fleet.arrays, np.empty((len(slots), 2)), np.empty((len(slots), 2))
    is_judged, is_censored = np.empty((2, len(slots)), bool)
    withheld, held_cores = arrays.withheld[slots], arrays.censored_cpu_cores[slots]
    judge_samples(
        slots, arrays.group[slots], groups.lacks_room(now_s), VIOLATION_TOLERANCE,
        arrays.arrays(SampledArrays), groups.arrays(JudgedArrays), is_judged, is_censored, allocated, unlimited,
    )  # fmt: skip
    # Not of a service: what one of its pods met on a full node would stay with all that follow.
    differs = (arrays.withheld[slots] != withheld) & ~groups.repeats[arrays.group[slots]]
    much = arrays.used[slots, CPU] > MUCH_WITHHELD_FACTOR * held_cores
    for slot in slots[differs & (withheld | much)].tolist():
        if (of_class := fleet.by_slot[slot].runs) is not None:
            of_class.withheld = bool(arrays.withheld[slot])
    slots, allocated, unlimited = slots[is_judged], allocated[is_judged], unlimited[is_judged]
    used, decided_by = arrays.used[slots], arrays.decided_by[slots]
    report.judge(used, allocated, int(is_censored.sum()))
    ages_s = fleet.ages_s(slots, now_s)
    own = groups.target_violation[arrays.group[slots]]
    targets = np.where(np.isnan(own), target_violation[CPU], own)
    fleet.judge(slots, used, unlimited, targets)
    by_class = np.where(decided_by == BY_CLASS, unlimited[:, CPU], arrays.class_cores[slots, 1])
    for at in np.flatnonzero(~np.isnan(by_class)).tolist():
        if (runs := fleet.by_slot[int(slots[at])].runs) is not None and ages_s[at] >= runs.light_s:
            runs.judge(bool(used[at, CPU] > by_class[at] * VIOLATION_TOLERANCE), float(targets[at]))


def matches_in_force(allocated: FloatArray, in_force: FloatArray) -> BoolArray:
    """Whether requests match what was published, float64 (..., 2); False where nothing was."""
    same = (np.abs(allocated - in_force) <= IN_FORCE_TOLERANCE * in_force) | np.isnan(in_force)
    return np.asarray(same.all(axis=-1) & ~np.isnan(in_force).all(axis=-1))
