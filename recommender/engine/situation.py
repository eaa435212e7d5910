"""What the guard rails know of all groups in a step: arrays with one row per group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recommender.base.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray, in_either
from recommender.engine.container_arrays import BY_EXPERIENCE, NO_GROUP, UNDECIDED
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import TARGET, GroupArrays
from recommender.engine.options import RailOptions
from recommender.engine.shares import SharedNode
from recommender.kernels import group_demand as kernel

DOUBTS = (
    "",
    "no running container",
    "too little history",
    "no samples lately",
)
"""Why a forecast is not trusted, by number; 0 if it is."""

NO_DOUBT, NO_CONTAINER, LITTLE_HISTORY, SILENT = range(len(DOUBTS))

MIN_JUDGED_SAMPLES = 40
"""Fewer samples tell neither a violation ratio nor which rule is the cheapest for a container."""


@dataclass
class Situation:
    """What is known of the groups, and what their containers want."""

    groups: GroupArrays
    """State between steps."""
    now_s: float
    """Unix seconds."""
    wanted: FloatArray
    """float64 (n, 2): per resource the largest demand among the containers of a group, which may be in different
    phases; NaN where none could be forecast."""
    leading: IntArray
    """int64 (n,): slot of the running container with that CPU demand; -1 if it is none of them."""
    doubt: IntArray
    """int64 (n,): why the forecast is not trusted, an index into `DOUBTS`."""
    silent: BoolArray
    """bool (n,): no recent sample of any running container; or none runs and none is expected."""
    working_set_bytes: FloatArray
    """float64 (n,): largest present working set; NaN if unknown."""
    cpu_needs_experience: BoolArray
    """bool (n,): a container could be held to less CPU than it needs, and nothing tells yet what it needs next."""
    probe_cpu_cores: FloatArray
    """float64 (n,): CPU to try where demand is censored; NaN where it is not."""
    headroom_cpu_cores: FloatArray
    """float64 (n,): least CPU with which a container's present use would not count as censored; NaN where nothing could
    be held back."""
    recent_cpu_cores: FloatArray
    """float64 (n,): peak usage in the latest cycles; NaN if there was none."""
    promised: BoolArray
    """bool (n,): the classes of all its containers bound the memory that the rest of a run needs."""
    from_experience: BoolArray
    """bool (n,): the demand was seen before, in earlier runs of the class or in a container's own past."""
    keeps_published_cpu: BoolArray
    """bool (n,): the CPU wanted is the published one, since that is enough for its young containers."""
    deferred_s: FloatArray
    """float64 (n,): for how long a resize for which a pod may be evicted has been deferred; 0 if none is."""
    evicts: BoolArray
    """bool (n,): a change recreates pods or restarts containers; or may, since a node has no room for it."""
    keeps_peak: BoolArray
    """bool (n,): a run's peak memory must always be available, since a run may start again or still come to it."""
    kill_floor_bytes: FloatArray
    """float64 (n,): memory floor after an OOM kill, in the group or in the classes of its containers; 0 without one."""
    youngest_s: FloatArray
    """float64 (n,): age of the container started last; infinite if none runs."""
    resizes_exhausted: BoolArray
    """bool (n, 2): a resource of the target changed as often within the last hour as is allowed."""
    shared: Sequence[SharedNode]
    """Nodes whose containers share CPU."""

    @cached_property
    def doubtful(self) -> BoolArray:
        """bool (n,): the forecast is not trusted."""
        doubtful: BoolArray = self.doubt != NO_DOUBT
        return doubtful

    @cached_property
    def keeps_published(self) -> BoolArray:
        """bool (n, 2): the published target of established groups stays until their containers have enough history."""
        young = (self.doubt == LITTLE_HISTORY) & self.groups.established
        keeps = np.column_stack([young | (~self.doubtful & self.keeps_published_cpu), young])
        return keeps & ~np.isnan(self.groups.published)

    @cached_property
    def as_default(self) -> BoolArray:
        """bool (n, 2): the target of a resource is the default recommender's.

        Unless a change evicts, not memory that earlier runs bound: a doubtful CPU forecast does not affect it.
        """
        as_default = (self.doubtful | self.evicts) & self._default_known
        return np.column_stack([as_default | self.unforeseen_at_limit, as_default & (self.evicts | ~self.promised)])

    @cached_property
    def unforeseen_at_limit(self) -> BoolArray:
        """bool (n,): services whose CPU limit follows, and nothing but the default recommender tells what they need.

        A job keeps what it declares until it ends. Pods of a service come and go, and each would be created with what
        the last ones had.
        """
        unforeseen = self.groups.repeats & self.groups.cpu_limit_follows & self.cpu_needs_experience
        return unforeseen & self._default_known

    @property
    def _default_known(self) -> BoolArray:
        return ~in_either(np.isnan(self.groups.default_estimate[:, TARGET]))


def assess(
    fleet: Fleet,
    groups: GroupArrays,
    cold_start: FloatArray,
    cold_start_promised: BoolArray,
    shared: Sequence[SharedNode],
    now_s: float,
    options: RailOptions,
) -> Situation:
    """Assess each group.

    `cold_start`, float64 (n, 2): what containers without samples are to have, NaN where that is unknown; for
    `cold_start_promised`, bool (n,), see `Situation.promised`.
    """
    n, arrays, mature_samples = len(groups), fleet.arrays, max(fleet.cycle_samples, MIN_JUDGED_SAMPLES)
    slots = np.flatnonzero(arrays.alive & (arrays.group != NO_GROUP))
    decided_by, keeps_published_cpu = arrays.decided_by[slots], np.zeros(n, bool)
    wanted, leading, youngest_s = np.full((n, 2), np.nan), np.full(n, -1), np.full(n, np.inf)
    counts, largest = np.zeros((6, n), np.int64), np.full((5, n), np.nan)
    kernel.demand_of_groups(
        slots, decided_by != UNDECIDED, decided_by >= BY_EXPERIENCE, mature_samples,
        VIOLATION_TOLERANCE, now_s, fleet.step_s, arrays.arrays(kernel.DemandArrays), groups.published,
        groups.cpu_limit_follows, groups.established, keeps_published_cpu, wanted, leading, youngest_s, counts, largest,
    )  # fmt: skip
    working_set_bytes, probe_cpu_cores, headroom_cpu_cores, recent_cpu_cores, least_bytes = largest
    expected = ~in_either(np.isnan(cold_start))
    silent = np.where(counts[kernel.RUNNING] > 0, counts[kernel.HEARD] == 0, ~expected)
    leading[cold_start[:, CPU] > wanted[:, CPU]] = -1
    wanted = np.fmax(wanted, cold_start)
    promised = (counts[kernel.UNPROMISED] == 0) & np.where(expected, cold_start_promised, counts[kernel.RUNNING] > 0)
    evicts = groups.evicts | (groups.evictable & groups.lacks_room(now_s))
    return Situation(
        groups=groups,
        now_s=now_s,
        wanted=wanted,
        leading=leading,
        doubt=_doubt(counts, expected, silent),
        silent=silent,
        working_set_bytes=working_set_bytes,
        cpu_needs_experience=counts[kernel.UNFORESEEN] > 0,
        probe_cpu_cores=np.fmax(probe_cpu_cores, np.where(np.isnan(probe_cpu_cores), np.nan, groups.declared_cores)),
        headroom_cpu_cores=headroom_cpu_cores,
        recent_cpu_cores=recent_cpu_cores,
        promised=promised,
        from_experience=(counts[kernel.EXPERIENCED] > 0) | expected,
        keeps_published_cpu=keeps_published_cpu & (wanted[:, CPU] == groups.published[:, CPU]),
        deferred_s=np.where(groups.evictable, np.maximum(0.0, now_s - groups.deferred_since_s), 0.0),
        evicts=evicts,
        keeps_peak=_keeps_peak(groups, evicts, youngest_s, promised, fleet.lead_s),
        # Another run was killed for what the classes know: no reason to evict one that may not come to that.
        kill_floor_bytes=np.fmax(groups.kill_floor(now_s), np.where(evicts, 0.0, least_bytes)),
        youngest_s=youngest_s,
        resizes_exhausted=groups.changed_at_least(options.resizes_per_hour, now_s),
        shared=shared,
    )


def _doubt(counts: IntArray, expected: BoolArray, silent: BoolArray) -> IntArray:
    """int64 (n,): the gravest reason not to trust the forecast of each group, an index into `DOUBTS`; see `assess`."""
    running, demands = counts[: kernel.DEMANDS + 1]
    doubt = np.full(len(running), NO_DOUBT)
    doubt[(demands == 0) & ~expected] = LITTLE_HISTORY
    doubt[(running == 0) & ~expected] = NO_CONTAINER
    doubt[silent & (running > 0)] = SILENT
    return doubt


def _keeps_peak(
    groups: GroupArrays, evicts: BoolArray, youngest_s: FloatArray, promised: BoolArray, lead_s: float
) -> BoolArray:
    """Whether the peak memory of a run must be available while less is needed, because it cannot be provided in time.

    A limit that follows would kill a run that starts again; a run started from outside gets the published target. A
    request that is resized in place is raised in time if the peak comes later than the lead time.
    """
    in_time = ~evicts & ~groups.limits_follow & (~groups.repeats | (groups.peak_age_s > lead_s))
    to_come = ~promised & (youngest_s <= groups.peak_age_s + lead_s)
    return ~in_time | to_come
