"""Guard rails between a forecast and what is published: functions of one shape, each reported when it acts.

A rail gets the targets of all groups, float64 (n, 2), with what is known of them, and returns the targets. They run in
the order of `RAILS`, from scratch in each step. The fallback comes first: its target must pass the other rails, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recommender.base.records import CPU, MEMORY, VIOLATION_TOLERANCE, BoolArray, FloatArray, in_either
from recommender.base.units import BYTES_PER_MIB, counted
from recommender.engine.group_arrays import TARGET, UPPER
from recommender.engine.options import RailOptions
from recommender.engine.shares import divide_cores
from recommender.engine.situation import DOUBTS, LITTLE_HISTORY, NO_DOUBT, Situation
from recommender.kernels.group_demand import YOUNG_HEADROOM
from recommender.kernels.samples import LIMIT_HEADROOM

MIN_HISTORY_DAYS = 1.0 / 24.0

POD_LIFETIME_THRESHOLD_S = 12 * 3600.0
"""From this age on the updater may update a pod within its bounds (upstream:
`--in-recommendation-bounds-eviction-lifetime-threshold`)."""


class Rail(NamedTuple):
    """One rail: `move` returns the targets, `explain` says why that of a group, by its slot, was moved."""

    name: str
    move: Callable[[FloatArray, Situation, RailOptions], FloatArray]
    explain: Callable[[int, Situation, RailOptions], str] | str


def apply_rails(situation: Situation, options: RailOptions) -> list[FloatArray]:
    """The forecasts, and the targets after each rail: float64 (n, 2) each, NaN where there is no target."""
    stages = [situation.wanted]
    for rail in RAILS:
        stages.append(rail.move(stages[-1], situation, options))
    return stages


def rails_acted(stages: Sequence[FloatArray]) -> BoolArray:
    """bool (rails, n): which rail moved whose target."""
    before, after = np.stack(stages[:-1]), np.stack(stages[1:])
    acted: BoolArray = ((before != after) & ~(np.isnan(before) & np.isnan(after))).any(axis=2)
    return acted


def rail_notes(
    stages: Sequence[FloatArray], group: int, situation: Situation, options: RailOptions
) -> Sequence[tuple[str, str]]:
    """What each rail did to a group, by its slot: name and explanation."""
    notes = []
    for rail, (acted,) in zip(RAILS, rails_acted([stage[[group]] for stage in stages]), strict=True):
        if acted:
            why = rail.explain
            notes.append((rail.name, why if isinstance(why, str) else why(group, situation, options)))
    if situation.doubtful[group] and not situation.as_default[group, CPU]:
        notes.insert(0, (RAILS[0].name, f"{DOUBTS[situation.doubt[group]]}; no history to fall back on"))
    return notes


# -- the rails -----------------------------------------------------------------------------------------------------


def _fall_back(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Fall back to the default recommender in doubt, or when even the wider margin violates.

    An established target stays until the containers have enough history.
    """
    falls = s.doubtful[:, np.newaxis] & s.as_default
    return np.where(
        falls, np.where(s.keeps_published, s.groups.published, s.groups.default_estimate[:, TARGET]), target
    )


def _explain_fallback(group: int, s: Situation, _: RailOptions) -> str:
    doubt = DOUBTS[s.doubt[group]]
    established = s.doubt[group] == LITTLE_HISTORY and s.groups.established[group]
    but = "" if s.as_default[group, MEMORY] else ", except for memory, which earlier runs bound"
    return f"{doubt}: {'unchanged' if established else 'as the default recommender'}{but}"


def _no_needless_restart(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Use the default recommender's target where each change restarts pods: no single phase is worth that."""
    return np.where(s.evicts[:, np.newaxis] & s.as_default, s.groups.default_estimate[:, TARGET], target)


def _no_guess_at_a_limit(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Use the default recommender's CPU for a service that a limit would hold to less than it needs, unseen."""
    moved = target.copy()
    moved[:, CPU] = np.where(s.unforeseen_at_limit, s.groups.default_estimate[:, TARGET, CPU], target[:, CPU])
    return moved


def _own_use(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Cap CPU that other containers needed at this one's own usage once it has history, at what is declared before.

    Memory is not capped: only earlier runs of the class predict it, and their last stage may need more than all before.
    """
    own_cores = np.fmax(YOUNG_HEADROOM * s.recent_cpu_cores, s.groups.default_estimate[:, TARGET, CPU])
    declared = np.where(np.isnan(s.groups.declared_cores), np.inf, np.fmax(own_cores, s.groups.declared_cores))
    cap, moved = np.where(s.groups.history_days >= MIN_HISTORY_DAYS, own_cores, declared), target.copy()
    moved[:, CPU] = np.where((s.doubt == NO_DOUBT) & ~s.from_experience, np.fmin(target[:, CPU], cap), target[:, CPU])
    return moved


def _room_to_show(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Give CPU that can be held back some headroom, and try more while demand is censored.

    Use at a limit, or at the request on a full node, neither violates nor shows what is wanted. What was seen before
    may come again as it was, so it needs the headroom of use, up to what its owner declares.
    """
    shows = s.groups.applied & ~s.evicts
    foreseen = s.groups.cpu_limit_follows & s.from_experience & ~(s.keeps_published | s.as_default)[:, CPU]
    declared_cores = np.where(np.isnan(s.groups.declared_cores), np.inf, s.groups.declared_cores)
    with_headroom = np.fmin(LIMIT_HEADROOM * target[:, CPU], np.fmax(target[:, CPU], declared_cores))
    more = np.fmax(s.headroom_cpu_cores, np.where(foreseen, with_headroom, np.nan))
    return _at_least(target, np.where(shows, np.fmax(more, s.probe_cpu_cores), np.nan), CPU)


def _no_shrinking_on_a_guess(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Keep the requests in doubt with little history: the updater updates old pods whatever the bounds."""
    guesses = s.doubtful & (s.groups.history_days < MIN_HISTORY_DAYS) & ~in_either(np.isnan(target))
    return np.where(guesses[:, np.newaxis], np.fmax(target, s.groups.requests), target)


def _limit(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Where the limit follows the request, neither go below the default recommender's target nor shrink earlier.

    An unseen peak of memory kills there, and after a kill the default's target has a margin above the bump. Only enough
    earlier runs of the class can rule out a peak; a quiet half day cannot. Too low a CPU limit holds a training back
    for as long as nobody sees it, unless its own past or such runs tell what comes; so does a request on a full node.
    What is no violation is enough of CPU, and what its owner declares is. That the updater would change a pod of a job
    for its memory shows nothing of its CPU.
    """
    cpu_keeps = s.cpu_needs_experience & ~s.unforeseen_at_limit
    keeps = np.column_stack([cpu_keeps, s.groups.limits_follow & ~s.promised]) & ~s.evicts[:, np.newaxis]
    default, upper = s.groups.default_estimate[:, TARGET], s.groups.default_estimate[:, UPPER]
    # The updater changes all containers of a pod once one of them requests too much of anything.
    too_large = s.groups.with_others_of_vpa(in_either(s.groups.requests > upper))
    old = s.youngest_s >= POD_LIFETIME_THRESHOLD_S
    would_shrink = np.column_stack([old | (too_large & s.groups.repeats), old | too_large])
    held = s.groups.requests.copy()  # beyond what is declared, it was raised for use that has passed
    held[:, CPU] = np.where(held[:, CPU] > s.groups.declared_cores, s.groups.declared_cores, held[:, CPU])
    floor = np.where(would_shrink, default / (VIOLATION_TOLERANCE, 1.0), np.fmax(held, default))
    return np.where(keeps, np.fmax(target, np.where(np.isnan(target), np.nan, floor)), target)


def _shares(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Divide the CPU of a node whose containers want more than it has."""
    moved, declared_cores = target.copy(), s.groups.declared_cores
    cap_cores = np.where(s.groups.shares & ~np.isnan(declared_cores), declared_cores, np.inf)  # before it has a node
    moved[:, CPU] = np.where(s.evicts, target[:, CPU], divide_cores(s.shared, target[:, CPU], cap_cores))
    return moved


def _working_set(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Keep memory above the present working set by a margin."""
    return _at_least(target, s.working_set_bytes * (1.0 + options.memory_margin))


def _start_again(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Keep the peak memory of a run where it may start again, or come to its peak, before it could be given more."""
    return _at_least(target, np.where(s.keeps_peak, s.groups.peak() * (1.0 + options.memory_margin), np.nan))


def _slow_shrink(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Raise memory at once; lower it late and in steps, unless earlier runs bound what the rest of a run needs.

    Where limits follow it has already waited much longer, and shrinks in one step instead of halfway for as long again.
    """
    applied, moved = s.groups.published[:, MEMORY], target.copy()
    applied = np.where(np.isnan(applied) & ~s.as_default[:, MEMORY], s.groups.requests[:, MEMORY], applied)
    falls = (target[:, MEMORY] < applied) & ~s.promised
    waits = ~(s.now_s - s.groups.less_memory_since_s >= options.shrink_after_s)
    step = np.where(s.groups.limits_follow, target[:, MEMORY], applied * (1.0 - options.shrink_step))
    floor = np.where(waits, applied, np.fmax(target[:, MEMORY], step))
    moved[:, MEMORY] = np.where(falls, floor, target[:, MEMORY])
    return moved


def _explain_slow_shrink(group: int, s: Situation, options: RailOptions) -> str:
    if s.now_s - s.groups.less_memory_since_s[group] >= options.shrink_after_s:
        return f"{options.shrink_step:.0%} at a time"
    return f"kept until less has been wanted for {options.shrink_after_s:.0f} s"


def _silence(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Keep the published target while there are no samples, or no container; a kill still raises memory."""
    stays = s.silent[:, np.newaxis] & ~np.isnan(s.groups.published)
    stays[:, MEMORY] &= ~(s.kill_floor_bytes > s.groups.published[:, MEMORY])
    return np.where(stays, s.groups.published, target)


def _kill_floor(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Keep memory above the floor after an OOM kill."""
    return _at_least(target, s.kill_floor_bytes)


def _explain_kill_floor(group: int, s: Situation, _: RailOptions) -> str:
    return f"a container was killed for memory: at least {s.kill_floor_bytes[group] / BYTES_PER_MIB:.0f} MiB"


def _resize_limit(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Limit changes of memory per hour, but for increases and where changes restart pods, as the default does.

    CPU keeps within its budget by itself.
    """
    limited = s.resizes_exhausted[:, MEMORY] & ~(s.evicts & s.as_default[:, MEMORY])
    return _at_least(target, np.where(limited, s.groups.published[:, MEMORY], np.nan))


def _explain_resize_limit(_: int, __: Situation, options: RailOptions) -> str:
    return f"{counted(options.resizes_per_hour, 'change')} within the last hour, as many as allowed"


def _room(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Withdraw a resize that a full node keeps deferring, before the updater evicts the pod for it.

    Unless the container needs the memory to survive: another node may have room.
    """
    withdraws = (s.deferred_s >= options.wait_for_room_s) & ~(s.kill_floor_bytes > s.groups.requests[:, MEMORY])
    return np.where(withdraws[:, np.newaxis], np.fmin(target, s.groups.requests), target)


def _explain_room(group: int, s: Situation, _: RailOptions) -> str:
    return f"no room on the node for {s.deferred_s[group]:.0f} s: not above its present requests"


RAILS: tuple[Rail, ...] = (
    Rail("fallback", _fall_back, _explain_fallback),
    Rail("no needless restart", _no_needless_restart, "a change restarts it: as the default recommender"),
    Rail(
        "no guess at a limit",
        _no_guess_at_a_limit,
        "a limit could hold it to less CPU than it needs, and nothing foresees that: as the default recommender",
    ),
    Rail(
        "own use",
        _own_use,
        "CPU capped at its own usage, at first at what it declares, or at the default recommender's",
    ),
    Rail("room to show", _room_to_show, "CPU use may be held back: some headroom, and more while all of it is used"),
    Rail(
        "no shrinking on a guess", _no_shrinking_on_a_guess, "not below its requests until there is an hour of history"
    ),
    Rail("limit", _limit, "too little would hold it back, or kill it: no less and no sooner than the default"),
    Rail("shares", _shares, "its share of a node whose containers want more CPU than it has"),
    Rail(
        "working set", _working_set, lambda _, __, options: f"{options.memory_margin:.0%} above the present working set"
    ),
    Rail(
        "start again",
        _start_again,
        lambda _, __, options: f"the peak of a run and {options.memory_margin:.0%}: it may start again",
    ),
    Rail("slow shrink", _slow_shrink, _explain_slow_shrink),
    Rail("silence", _silence, "unchanged while there are no samples"),
    Rail("OOM bump", _kill_floor, _explain_kill_floor),
    Rail("resize limit", _resize_limit, _explain_resize_limit),
    Rail("room", _room, _explain_room),
)


def _at_least(target: FloatArray, amount: FloatArray, resource: int = MEMORY) -> FloatArray:
    """Raise a resource, by default memory, to a minimum where there is one, float64 (n,)."""
    moved = target.copy()
    moved[:, resource] = np.where(amount > target[:, resource], amount, target[:, resource])
    return moved
