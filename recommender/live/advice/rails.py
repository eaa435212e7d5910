"""Guard rails: what stands between a forecast and what is published, each of one shape and each visible.

A rail takes a draft and what is known of the containers behind it, and gives back the draft, changed and with a note,
or as it was. They run in the order of `RAILS`. The fallback comes first: what takes the forecast's place must pass the
rails after it like the forecast itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, RESOURCES, Amounts, FloatArray
from recommender.units import BYTES_PER_MIB


@dataclass(frozen=True, slots=True)
class RailOptions:
    """What an operator may turn.

    Attributes
    ----------
    memory_margin
        Memory is kept this share above the present working set.
    shrink_after_s, shrink_step
        Memory falls only when less was wanted for this long, and by at most this share at a time.
    target_violation
        Share of samples above allocation x 1.05 that is accepted, per resource.
    widen
        What is allocated is multiplied by this while a container's violations are above the target.
    resizes_per_hour
        Targets of one container change at most so often; memory that must rise always may.
    wait_for_room_s
        A resize that the node has had no room for during this time is taken back: upstream's updater evicts such a pod
        after five minutes.
    """

    memory_margin: float = 0.10
    shrink_after_s: float = 600.0
    shrink_step: float = 0.20
    target_violation: tuple[float, float] = (0.05, 0.05)
    widen: float = 1.25
    resizes_per_hour: int = 12
    wait_for_room_s: float = 180.0


class Spent(NamedTuple):
    """Whether CPU and memory violate more than is accepted, and so much more that even the wider margin does."""

    cpu: bool = False
    memory: bool = False
    cpu_by_far: bool = False
    memory_by_far: bool = False


NOTHING_SPENT = Spent()


class Situation(NamedTuple):
    """What the rails know of the containers that one recommendation is for.

    Attributes
    ----------
    now_s
        Unix seconds.
    doubt
        Why the forecast is not to be trusted, in words; None when it is.
    working_set_bytes
        The largest present one among them; NaN where none is known.
    applied
        Cores and bytes: the target in force, NaN where there is none.
    less_memory_since_s
        Since when less memory was wanted than is applied; None when it is not.
    violations
        Share of the judged samples that violated lately, per resource.
    spent
        Which of them are more than is accepted, see `spending`.
    histogram, confidence
        What the default recommender would say, and how many days of history that rests on.
    requests
        Cores and bytes: the most that one of the containers has now, NaN where nothing is requested.
    oom_floor_bytes
        What must be had since a container was killed for memory; 0 without such an event.
    recent_changes
        How often the target changed within the last hour.
    deferred_s
        For how long a resize has waited for room on a node, the longest; 0 when none does.
    pinned
        Whether a container has used just the CPU that it has for a while, as one does that gets no more.
    run_s
        How long a run takes, where enough earlier ones show what the rest of it needs; else infinite.
    """

    now_s: float
    doubt: str | None
    working_set_bytes: float
    applied: Sequence[float]
    less_memory_since_s: float | None
    violations: Sequence[float]
    spent: Spent
    histogram: Estimate | None
    confidence: float
    requests: Sequence[float]
    oom_floor_bytes: float
    recent_changes: int
    deferred_s: float = 0.0
    pinned: bool = False
    run_s: float = math.inf


@dataclass(slots=True)
class Draft:
    """A target on its way to being published: cores and bytes, and what each rail did to it. It is never changed.

    `wide_bytes` is how much memory there was when the working set with its margin fitted in; NaN where it did not.

    Plain numbers, for there are ten thousand of them at each round, and an array of two takes longer to make than all
    that is done to it; to make a frozen one takes three times as long.
    """

    target: Amounts
    notes: tuple[tuple[str, str], ...] = field(default=())
    confident: bool = True
    wide_bytes: float = math.nan

    def moved(self, rail: str, target: Amounts, words: str) -> Draft:
        """The draft with another target, if it is another one."""
        if target == self.target or all(map(_same, target, self.target)):
            return self
        return Draft(target, (*self.notes, (rail, words)), self.confident, self.wide_bytes)


Rail = Callable[[Draft, Situation, RailOptions], Draft]

LITTLE_HISTORY_DAYS = 1.0 / 24.0

FEW_SAMPLES = 40
"""A share of fewer samples than these is chance."""


def spending(violations: Sequence[float], judged: float, options: RailOptions) -> Spent:
    """What is spent by shares of `judged` samples; the earlier ones fade."""
    (cpu, memory), (most_cpu, most_memory) = violations, options.target_violation
    if judged < FEW_SAMPLES or (cpu <= most_cpu and memory <= most_memory):
        return NOTHING_SPENT
    return Spent(cpu > most_cpu, memory > most_memory, cpu > 2.0 * most_cpu, memory > 2.0 * most_memory)


def fallback(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """In doubt, or once even the wider margin violates, what the default recommender would say."""
    doubt = situation.doubt
    if doubt is None and any(situation.spent[2:]):
        doubt = f"violations of {_shares(situation.violations)} although the margin was widened"
    if doubt is None:
        return draft
    if situation.histogram is None:
        words = f"{doubt}; no history to fall back on"
        return replace(draft, confident=False, notes=(*draft.notes, ("fallback", words)))
    moved = draft.moved("fallback", _pair(situation.histogram.target), f"{doubt}: as the default recommender has it")
    return Draft(moved.target, moved.notes, confident=False)


def no_shrinking_on_a_guess(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """In doubt and with little history, a container keeps what it has: old pods are updated whatever the bounds say."""
    if draft.confident or situation.confidence >= LITTLE_HISTORY_DAYS or any(map(math.isnan, draft.target)):
        return draft
    target = _each(_larger, draft.target, situation.requests)
    return draft.moved("no shrinking on a guess", target, "not below what it has, until there is an hour of history")


def room_to_show(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """More CPU for a container that uses just what it has: on a busy node that is all it gets, whatever it wants.

    Its use tells nothing of its demand then, and no violation would ever show.
    """
    if not situation.pinned or not draft.target[CPU] < (had := float(situation.requests[CPU])) * options.widen:
        return draft
    target = (had * options.widen, draft.target[MEMORY])
    return draft.moved("room to show", target, "it uses just the CPU that it has, and may want more")


def violation_budget(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """More of a resource than forecast, while its violations are above what is accepted."""
    spent = situation.spent
    if not (spent.cpu or spent.memory):
        return draft
    cpu_cores, memory_bytes = (
        amount * options.widen if more else amount for amount, more in zip(draft.target, spent[:2], strict=True)
    )
    which = " and ".join(name for name, more in zip(RESOURCES, spent, strict=False) if more)
    words = f"{which}: violations above the target, {options.widen:g} times the forecast"
    return draft.moved("violation budget", (cpu_cores, memory_bytes), words)


def working_set(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """Never less memory than is in use now, with a margin."""
    least = situation.working_set_bytes * (1.0 + options.memory_margin)
    if not least > draft.target[MEMORY]:
        return Draft(draft.target, draft.notes, draft.confident, draft.target[MEMORY])
    words = f"{options.memory_margin:.0%} above the present working set"
    return draft.moved("working set", (draft.target[CPU], least), words)


def slow_shrink(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """Memory rises at once; it falls late, and in steps.

    Where earlier runs show what the rest of a run needs, late is a tenth of a run, and the first step is the last.
    """
    applied = float(situation.applied[MEMORY])
    if not draft.target[MEMORY] < applied:
        return draft
    since, late_s = situation.less_memory_since_s, min(options.shrink_after_s, situation.run_s / 10.0)
    if since is None or situation.now_s - since < late_s:
        words = f"kept until less has been wanted for {late_s:.0f} s"
        return draft.moved("slow shrink", (draft.target[CPU], applied), words)
    least = applied * (1.0 - options.shrink_step)
    if draft.target[MEMORY] >= least or math.isfinite(situation.run_s):
        return draft
    return draft.moved("slow shrink", (draft.target[CPU], least), f"{options.shrink_step:.0%} at a time")


def oom_bump(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """Not below what a kill for memory showed to be needed."""
    if not situation.oom_floor_bytes > draft.target[MEMORY]:
        return draft
    words = f"a container was killed for memory: at least {situation.oom_floor_bytes / BYTES_PER_MIB:.0f} MiB"
    return draft.moved("OOM bump", (draft.target[CPU], situation.oom_floor_bytes), words)


def resize_limit(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """Not more changes an hour than are allowed; memory that must rise always may."""
    if situation.recent_changes < options.resizes_per_hour:
        return draft
    cpu_cores, memory_bytes = _each(_unless_unknown, draft.target, situation.applied)
    target = cpu_cores, max(memory_bytes, draft.target[MEMORY])
    words = f"{situation.recent_changes} changes within the last hour: {options.resizes_per_hour} are allowed"
    return draft.moved("resize limit", target, words)


def room(draft: Draft, situation: Situation, options: RailOptions) -> Draft:
    """What a full node keeps putting off is not asked for any longer, before the updater evicts the pod for it."""
    if situation.deferred_s < options.wait_for_room_s:
        return draft
    words = f"no room on the node for {situation.deferred_s:.0f} s: as it has now, for the present"
    return draft.moved("room", _each(_smaller, draft.target, situation.requests), words)


RAILS: tuple[Rail, ...] = (
    fallback,
    no_shrinking_on_a_guess,
    room_to_show,
    violation_budget,
    working_set,
    slow_shrink,
    oom_bump,
    resize_limit,
    room,
)


def guarded(forecast: Sequence[float] | FloatArray, situation: Situation, options: RailOptions) -> Draft:
    """The forecast (cores and bytes) after all rails; NaN where neither forecast nor history say anything."""
    draft = Draft(_pair(forecast))
    for rail in RAILS:
        draft = rail(draft, situation, options)
    return draft


def _shares(spent: Sequence[float]) -> str:
    return f"{spent[CPU]:.1%} (CPU) and {spent[MEMORY]:.1%} (memory)"


def _pair(amounts: Sequence[float] | FloatArray) -> Amounts:
    return float(amounts[CPU]), float(amounts[MEMORY])


def _each(choose: Callable[[float, float], float], one: Sequence[float], other: Sequence[float]) -> Amounts:
    return choose(one[CPU], float(other[CPU])), choose(one[MEMORY], float(other[MEMORY]))


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _larger(one: float, other: float) -> float:
    """The larger one, or the one that is known."""
    return other if math.isnan(one) or other > one else one


def _smaller(one: float, other: float) -> float:
    """The smaller one, or the one that is known."""
    return other if math.isnan(one) or other < one else one


def _unless_unknown(one: float, other: float) -> float:
    return one if math.isnan(other) else other
