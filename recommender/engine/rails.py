"""Guard rails: what stands between a forecast and what is published, each of one shape and each visible.

A rail is given the targets of all groups, float64 (n, 2), and what is known of them, and gives back the targets. They
run in the order of `RAILS`, and are worked out anew in each step. The fallback comes first: what takes the forecast's
place must pass the rails after it like the forecast itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from recommender.engine.group_arrays import TARGET, UPPER
from recommender.engine.options import RailOptions
from recommender.engine.shares import divided
from recommender.engine.situation import DOUBTS, HEADROOM, SURE, TOO_LITTLE, TOO_MANY_VIOLATIONS, Situation
from recommender.records import CPU, MEMORY, RESOURCES, BoolArray, FloatArray
from recommender.units import BYTES_PER_MIB

LITTLE_HISTORY_DAYS = 1.0 / 24.0

POD_LIFETIME_THRESHOLD_S = 12 * 3600.0
"""From this age on the updater gives a pod its target, whatever the bounds say."""

Move = Callable[[FloatArray, Situation, RailOptions], FloatArray]
Words = Callable[[int, Situation, RailOptions], str]


class Rail(NamedTuple):
    """One rail.

    Attributes
    ----------
    move
        Gives back targets; those that were given stay as they are.
    words
        Why the target of a group, by its slot, was moved.
    """

    name: str
    move: Move
    words: Words


@dataclass(frozen=True)
class Guarded:
    """Targets after all rails.

    Attributes
    ----------
    stages
        float64 (n, 2) each: the forecasts, and what each rail made of them; NaN where nobody says anything.
    """

    stages: tuple[FloatArray, ...]

    @property
    def target(self) -> FloatArray:
        """float64 (n, 2): what the last rail leaves."""
        return self.stages[-1]

    @cached_property
    def acted(self) -> BoolArray:
        """bool (rails, n): which rail moved whose target; nobody may ask, and each group that is written does."""
        stages = np.stack(self.stages)
        before, after = stages[:-1], stages[1:]
        acted: BoolArray = ((before != after) & ~(np.isnan(before) & np.isnan(after))).any(axis=2)
        return acted


def guarded(situation: Situation, options: RailOptions) -> Guarded:
    """The forecasts after all rails."""
    stages = [situation.wanted]
    for rail in RAILS:
        stages.append(rail.move(stages[-1], situation, options))
    return Guarded(tuple(stages))


def notes_of(acted: BoolArray, group: int, situation: Situation, options: RailOptions) -> Sequence[tuple[str, str]]:
    """What each rail did to a group, by its slot: name and words."""
    rails = [RAILS[place] for place in np.flatnonzero(acted[:, group])]
    notes = [(rail.name, rail.words(group, situation, options)) for rail in rails]
    if situation.guesses[group] and not situation.as_default[group, CPU]:
        notes.insert(0, (RAILS[0].name, f"{DOUBTS[situation.doubt[group]]}; no history to fall back on"))
    return notes


# -- the rails -----------------------------------------------------------------------------------------------------


def _fall_back(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """In doubt, or once even the wider margin violates, what the default recommender would say.

    What others have taught stands until containers have shown enough to doubt it.
    """
    falls = s.guesses[:, np.newaxis] & s.as_default
    return np.where(falls, np.where(s.stands, s.groups.published, s.groups.known[:, TARGET]), target)


def _fall_back_words(group: int, s: Situation, _: RailOptions) -> str:
    doubt = DOUBTS[s.doubt[group]]
    if s.doubt[group] == TOO_MANY_VIOLATIONS:
        cpu, memory = s.groups.violation_ratio()[group]
        doubt = f"violations of {cpu:.1%} (CPU) and {memory:.1%} (memory) although the margin was widened"
    taught = s.doubt[group] == TOO_LITTLE and s.groups.taught[group]
    but = "" if s.as_default[group, MEMORY] else ", but for memory, which earlier runs promise"
    return f"{doubt}: as {'it stands' if taught else 'the default recommender has it'}{but}"


def _disturb_nobody(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Where each change makes pods anew, what the default recommender would say: a passing phase is not worth it."""
    return np.where(s.evicts[:, np.newaxis] & s.as_default, s.groups.known[:, TARGET], target)


def _own_use(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """CPU that other containers needed counts up to what this one uses itself, once there is history of it.

    Before that its owner knows best what it may come to: it counts up to what is declared. Of memory others say
    something only where they are earlier runs of its class, whose last stage may need more than all before.
    """
    own_cores = np.fmax(HEADROOM * s.recent_cpu_cores, s.groups.known[:, TARGET, CPU])
    declared = np.where(np.isnan(s.groups.declared_cores), np.inf, np.fmax(own_cores, s.groups.declared_cores))
    most, moved = np.where(s.groups.known_days >= LITTLE_HISTORY_DAYS, own_cores, declared), target.copy()
    moved[:, CPU] = np.where((s.doubt == SURE) & ~s.seen_before, np.fmin(target[:, CPU], most), target[:, CPU])
    return moved


def _room_to_show(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """More CPU for a container that uses just what it has: on a busy node that is all it gets, whatever it wants.

    Its use tells nothing of its demand then, and no violation would ever show.
    """
    moved = target.copy()
    more = np.fmax(target[:, CPU], s.pinned_cpu_cores * options.widen)
    moved[:, CPU] = np.where(s.evicts, target[:, CPU], more)
    return moved


def _violation_budget(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """More of a resource than forecast, while its violations are above what is accepted.

    What stands has been widened already: it would be again in each step.
    """
    wider = target * options.widen
    wider = np.where(s.stands, np.fmax(target, np.fmin(wider, s.groups.published)), wider)
    return np.where(s.spent & ~s.evicts[:, np.newaxis], wider, target)


def _violation_budget_words(group: int, s: Situation, options: RailOptions) -> str:
    which = " and ".join(name for name, more in zip(RESOURCES, s.spent[group], strict=True) if more)
    return f"{which}: violations above the target, {options.widen:g} times the forecast"


def _shrink_not_on_a_guess(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """In doubt and with little history, a container keeps what it has: old pods are updated whatever the bounds say."""
    guesses = s.guesses & (s.groups.known_days < LITTLE_HISTORY_DAYS) & ~np.isnan(target).any(axis=1)
    return _where(guesses, np.fmax(target, s.groups.had), target)


def _shares(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """CPU by shares, where containers that share a node want more than it has."""
    moved, declared_cores = target.copy(), s.groups.declared_cores
    most_cores = np.where(s.groups.shares & ~np.isnan(declared_cores), declared_cores, np.inf)  # for one yet to come
    moved[:, CPU] = np.where(s.evicts, target[:, CPU], divided(s.shared, target[:, CPU], most_cores))
    return moved


def _working_set(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Never less memory than is in use now, with a margin."""
    return _at_least(target, s.working_set_bytes * (1.0 + options.memory_margin))


def _start_again(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Memory for what a run needs most, where it may begin again before it could be given more, or is yet to come."""
    return _at_least(target, np.where(s.keeps_peak, s.groups.peak() * (1.0 + options.memory_margin), np.nan))


def _keep_limits(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Memory whose limit moves along is never less than the default recommender's, nor taken sooner than it would.

    A peak that nobody has seen yet kills there, and after a kill the default's target has its margin above the bump.
    Only enough earlier runs of the class can say that no peak will come; a quiet half day cannot.
    """
    had, known = s.groups.had[:, MEMORY], s.groups.known[:, :, MEMORY]
    default, upper = known[:, TARGET], known[:, UPPER]
    taken = (s.youngest_s >= POD_LIFETIME_THRESHOLD_S) | (had > upper)
    least = np.where(taken, default, np.fmax(had, default))
    return _at_least(target, np.where(s.groups.limits_follow & ~s.evicts & ~s.promised, least, np.nan))


def _slow_shrink(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """Memory rises at once; it falls late, and in steps, unless earlier runs promise what the rest of a run needs.

    A limit that moves along has waited much longer, and goes all the way: half of it would be held for as long again.
    """
    applied, moved = s.standing_bytes, target.copy()
    falls = (target[:, MEMORY] < applied) & ~s.promised
    waits = ~(s.now_s - s.groups.less_memory_since_s >= options.shrink_after_s)
    step = np.where(s.groups.limits_follow, target[:, MEMORY], applied * (1.0 - options.shrink_step))
    least = np.where(waits, applied, np.fmax(target[:, MEMORY], step))
    moved[:, MEMORY] = np.where(falls, least, target[:, MEMORY])
    return moved


def _slow_shrink_words(group: int, s: Situation, options: RailOptions) -> str:
    if s.now_s - s.groups.less_memory_since_s[group] >= options.shrink_after_s:
        return f"{options.shrink_step:.0%} at a time"
    return f"kept until less has been wanted for {options.shrink_after_s:.0f} s"


def _silence(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """While nothing is told of the containers, and when none runs, what stands is kept; a kill tells of memory."""
    stays = s.silent[:, np.newaxis] & ~np.isnan(s.groups.published)
    stays[:, MEMORY] &= ~(s.kill_floor_bytes > s.groups.published[:, MEMORY])
    return np.where(stays, s.groups.published, target)


def _kill(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Not below what a kill for memory showed to be needed."""
    return _at_least(target, s.kill_floor_bytes)


def _kill_words(group: int, s: Situation, _: RailOptions) -> str:
    return f"a container was killed for memory: at least {s.kill_floor_bytes[group] / BYTES_PER_MIB:.0f} MiB"


def _resize_limit(target: FloatArray, s: Situation, _: RailOptions) -> FloatArray:
    """Not more changes of a resource an hour than are allowed; what must rise always may, and bounds let the default's
    move."""
    most = s.changed_enough & ~(s.evicts[:, np.newaxis] & s.as_default)
    return np.where(most, np.fmax(s.groups.published, target), target)


def _resize_limit_words(group: int, s: Situation, options: RailOptions) -> str:
    which = " and ".join(name for name, most in zip(RESOURCES, s.changed_enough[group], strict=True) if most)
    return f"{which}: changed within the last hour as often as it may, {options.resizes_per_hour} times"


def _room(target: FloatArray, s: Situation, options: RailOptions) -> FloatArray:
    """What a full node keeps putting off is not asked for any longer, before the updater evicts the pod for it.

    Unless it is killed for want of it again and again where it is: elsewhere there may be room.
    """
    waits = (s.deferred_s >= options.wait_for_room_s) & ~(s.kill_floor_bytes > s.groups.had[:, MEMORY])
    return _where(waits, np.fmin(target, s.groups.had), target)


def _room_words(group: int, s: Situation, _: RailOptions) -> str:
    return f"no room on the node for {s.deferred_s[group]:.0f} s: as it has now, for the present"


RAILS: tuple[Rail, ...] = (
    Rail("fallback", _fall_back, _fall_back_words),
    Rail("no needless restart", _disturb_nobody, lambda *_: "a change restarts it: as the default recommender has it"),
    Rail(
        "own use",
        _own_use,
        lambda *_: "CPU not above its own use, at first what it declares, or the default recommender's",
    ),
    Rail("room to show", _room_to_show, lambda *_: "it uses just the CPU that it has, and may want more"),
    Rail("violation budget", _violation_budget, _violation_budget_words),
    Rail(
        "no shrinking on a guess",
        _shrink_not_on_a_guess,
        lambda *_: "not below what it has, until there is an hour of history",
    ),
    Rail("shares", _shares, lambda *_: "its share of a node on which more CPU is wanted than there is"),
    Rail(
        "working set", _working_set, lambda _, __, options: f"{options.memory_margin:.0%} above the present working set"
    ),
    Rail(
        "start again",
        _start_again,
        lambda _, __, options: f"what a run needed most and {options.memory_margin:.0%}: it may begin again",
    ),
    Rail(
        "limit", _keep_limits, lambda *_: "its limit moves along: not less, nor sooner, than by the default recommender"
    ),
    Rail("slow shrink", _slow_shrink, _slow_shrink_words),
    Rail("silence", _silence, lambda *_: "as it stands, while nothing is told of it"),
    Rail("OOM bump", _kill, _kill_words),
    Rail("resize limit", _resize_limit, _resize_limit_words),
    Rail("room", _room, _room_words),
)


def _where(which: BoolArray, one: FloatArray, other: FloatArray) -> FloatArray:
    return np.where(which[:, np.newaxis], one, other)


def _at_least(target: FloatArray, memory_bytes: FloatArray) -> FloatArray:
    """With so much memory where it is known, float64 (n,)."""
    moved = target.copy()
    moved[:, MEMORY] = np.where(memory_bytes > target[:, MEMORY], memory_bytes, target[:, MEMORY])
    return moved
