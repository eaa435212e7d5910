"""What CPU is decided for every live container; memory is worked out for all of them in `memory`.

Of a workload class whose runs are known, the earlier runs are asked now and then, oftener where runs are short: what a
container has is raised shortly before it is needed, and lowered where it will not be for longer. Where they were too
long for their stages to be seen in what is kept of them, and where there are none, the container's own past is asked
first, with each sample. All others go by the plan (`foresight`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from recommender.engine.container_arrays import BY_CLASS, BY_FORECAST, BY_PAST, SEEN_BEFORE, UNDECIDED
from recommender.engine.containers import Containers
from recommender.engine.member import Member, slots_of
from recommender.policies.class_runs import ClassForecast, ClassRuns, Progress
from recommender.records import CPU, BoolArray, FloatArray, IntArray

DECISIONS_IN_A_RUN = 20
"""However short the runs of a class are, each may be given less about so often."""

ASKED = 5
"""So many times its class is asked meanwhile whether it needs more."""

Amount = FloatArray | float


class Expectation(NamedTuple):
    """What the earlier runs of a class say of a container's CPU: what it is to have, and what that was made by.

    Attributes
    ----------
    rule
        Tells in words what it was made by.
    """

    cpu_cores: float
    rule: Callable[[], str]


class Fleet(Containers):
    """The live containers, and what they are to have. For parameters and errors see `Containers`."""

    def due(self, now_s: float) -> list[Member]:
        """Members whose decision is due: those of which there is a sample, and those whose class is to be asked."""
        slots = np.flatnonzero(self.arrays.alive)
        fresh, by_class = self._fresh(slots), self.arrays.decided_by[slots] == BY_CLASS
        members = map(self.by_slot.__getitem__, slots.tolist())
        return [
            member
            for member, is_fresh, is_of_class in zip(members, fresh.tolist(), by_class.tolist(), strict=True)
            if (is_fresh and not (is_of_class and self._sees_stages(member))) or self._class_due(member, now_s)
        ]

    def decide(self, members: Sequence[Member], now_s: float) -> int:
        """What these are allocated from now on: as their own past, the runs of their class, or the forecast says.

        Where there is nothing new to say the decision before stays. The forecast is asked only where the others have
        nothing to say: while the class was asked a moment ago, its word holds.

        Returns
        -------
        How many decisions were made.
        """
        decided_by = self.arrays.decided_by
        unseen = slots_of([member for member in members if not self._sees_stages(member)])
        made = self._ask_past(unseen[self._fresh(unseen)])
        by_past = set(unseen[decided_by[unseen] == BY_PAST].tolist())
        of_class = [member for member in members if member.slot not in by_past and self._class_due(member, now_s)]
        made += sum(self._ask_class(member, now_s) for member in of_class)
        slots = slots_of(members)
        slots = slots[~np.isin(decided_by[slots], SEEN_BEFORE)]
        slots = slots[self._fresh(slots)]
        self._ask_forecast(slots)
        return made + len(slots)

    def join(self, member: Member, workload: str | None, runs: ClassRuns | None) -> None:
        """A container turns out to be of this class, and its runs are asked from now on; None for none."""
        member.workload, member.runs = workload, runs
        arrays, slot = self.arrays, member.slot
        arrays.table[slot], arrays.class_asked_s[slot] = self._table_of(member), -np.inf
        if arrays.decided_by[slot] == BY_CLASS:
            arrays.decided_by[slot], arrays.undecided[slot] = UNDECIDED, max(1, arrays.undecided[slot])

    def expect(self, runs: ClassRuns | None, age_s: float) -> Expectation | None:
        """What a container that nothing is known of but its class and age is to have; None when nobody knows."""
        return self._from_class(runs, Progress(None, 0.0, max(0.0, age_s)))

    def rule(self, member: Member) -> str:
        """What the last decision for a container was made by, in words; empty before there was one."""
        if self.arrays.decided_by[member.slot] == BY_CLASS:
            return member.class_rule()
        if self.arrays.decided_by[member.slot] == BY_PAST:
            return self._past_words(member.slot)
        if self.arrays.decided_by[member.slot] == BY_FORECAST:
            ((_, foresight, _),) = self._by_model(np.array([member.slot]))
            return foresight.words(member.slot, int(self.arrays.table[member.slot]))
        return ""

    def hold_s(self, runs: ClassRuns) -> float:
        """For how long less must be enough by the runs of a class, to be given."""
        return min(max(runs.typical_s / DECISIONS_IN_A_RUN, self.step_s), self.cycle_samples * self.step_s)

    def _asked_every_s(self, runs: ClassRuns) -> float:
        return max(self.hold_s(runs) / ASKED, self.step_s)

    def _sees_stages(self, member: Member) -> bool:
        """Whether the runs of a member's class are kept as finely as it is sampled."""
        return member.runs is not None and len(member.runs) > 0 and member.runs.bucket_s <= self.step_s

    def _class_due(self, member: Member, now_s: float) -> bool:
        if not (runs := member.runs):
            return False
        return bool(now_s - self.arrays.class_asked_s[member.slot] >= self._asked_every_s(runs))

    def _fresh(self, slots: IntArray) -> BoolArray:
        """Whether there is a sample of these that nobody has decided by, bool (m,)."""
        arrays = self.arrays
        due: BoolArray = (arrays.samples[slots] > self.model.detector.lag) & (arrays.undecided[slots] > 0)
        return due

    def _ask_past(self, slots: IntArray) -> int:
        """Of how many of these, int64 (m,), their own past says what comes; where it does no more, others decide."""
        arrays = self.arrays
        times, (soon_cores, cpu_cores) = self._look_back(slots)
        was = arrays.decided_by[slots] == BY_PAST
        stands_cores = np.where(was, arrays.wanted[slots, CPU], np.nan)
        wanted = np.where(_stays(stands_cores, soon_cores, cpu_cores), stands_cores, cpu_cores)
        begins = was & (times == 0) & (self.past.samples[slots] == 1)
        wanted[begins] = np.fmax(stands_cores, arrays.used[slots, CPU])[begins]
        says = (times > 0) | begins
        told, silent = slots[says], slots[was & ~says]
        self._rest(slots[says & ~was])
        arrays.decided_by[told], arrays.wanted[told, CPU] = BY_PAST, wanted[says]
        arrays.decided_by[silent], arrays.class_asked_s[silent] = UNDECIDED, -np.inf
        of_class = slots[~says & (arrays.decided_by[slots] == BY_CLASS)]
        arrays.undecided[told] = arrays.undecided[of_class] = 0
        return len(told)

    def _look_back(self, slots: IntArray) -> tuple[IntArray, FloatArray]:
        """How often these were where they are now, int64 (m,), and what they used soon after, float64 (2, m)."""
        times, largest_cores = self.past.find_matches(slots, np.array([self.lead_steps + 1, self._past_ahead_steps]))
        return times, largest_cores.T

    @property
    def _past_ahead_steps(self) -> int:
        """For so many samples less must be enough, to be given."""
        return 2 * self.lead_steps + 1

    def _past_words(self, slot: int) -> str:
        times, (_, (cpu_cores,)) = self._look_back(np.array([slot]))
        if times[0] == 0:
            return "a stage of its own past begins or ends"
        within_s = self._past_ahead_steps * self.step_s
        return f"as it went on {times[0]} times before: up to {cpu_cores:.3g} cores within {within_s:.0f} s"

    def _ask_class(self, member: Member, now_s: float) -> bool:
        """Whether it had something to say; where it has not, the forecast decides from now on."""
        arrays, slot = self.arrays, member.slot
        arrays.class_asked_s[slot] = now_s
        start_s = float(arrays.start_cell[slot]) * self.step_s
        seen_s = max(self.step_s, (float(arrays.last_cell[slot]) + 1.0) * self.step_s - start_s)
        curve = self.curves.curve(slot)
        told = curve if len(curve.levels) else None  # it was started again, and has not used anything since
        stands_cores = arrays.wanted[slot, CPU] if arrays.decided_by[slot] == BY_CLASS else np.nan
        found = self._from_class(member.runs, Progress(told, seen_s, max(seen_s, now_s - start_s)), stands_cores)
        if found is None:
            if arrays.decided_by[slot] in SEEN_BEFORE:
                arrays.decided_by[slot] = BY_FORECAST
                arrays.undecided[slot] = max(1, arrays.undecided[slot])
            return False
        if arrays.decided_by[slot] != BY_CLASS:
            self._rest(np.array([slot]))
        arrays.decided_by[slot], arrays.wanted[slot, CPU] = BY_CLASS, found.cpu_cores
        member.class_rule = found.rule
        return True

    def _from_class(
        self, runs: ClassRuns | None, progress: Progress, stands_cores: float = math.nan
    ) -> Expectation | None:
        if not runs:
            return None
        soon_s, ahead_s = (self.lead_s + hold_s for hold_s in (self._asked_every_s(runs), self.hold_s(runs)))
        found = runs.forecast(progress, soon_s, ahead_s)
        if found is None:
            return None
        if _stays(stands_cores, found.soon_cores, found.cpu_cores):
            return Expectation(stands_cores, partial(_why, found, soon_s))
        return Expectation(found.cpu_cores, partial(_why, found, ahead_s))

    def _ask_forecast(self, slots: IntArray) -> None:
        """Ask the forecast for what comes after the latest sample of each, int64 (m,)."""
        arrays = self.arrays
        if not len(slots):
            return
        for _, foresight, of_it in self._by_model(slots):
            planned = slots[of_it]
            arrays.wanted[planned, CPU] = foresight.decide(planned, arrays.table[planned], self.lead_s)
        arrays.decided_by[slots], arrays.undecided[slots] = BY_FORECAST, 0

    def _rest(self, slots: IntArray) -> None:
        """Others decide for these from now on, not the forecast."""
        for _, foresight, of_it in self._by_model(slots):
            foresight.rest(slots[of_it])


class ClassesAlone(Fleet):
    """A fleet in which nobody decides where the classes have nothing to say: what they are worth without phases."""

    def _fresh(self, slots: IntArray) -> BoolArray:
        return np.zeros(len(slots), bool)

    def _ask_class(self, member: Member, now_s: float) -> bool:
        said = super()._ask_class(member, now_s)
        if not said:
            self.arrays.decided_by[member.slot] = UNDECIDED
        return said


def _stays(stands_cores: Amount, soon_cores: Amount, cpu_cores: Amount) -> BoolArray | bool:
    """Whether what stands need not change: it is enough soon, and no more than what is needed for longer."""
    return (soon_cores <= stands_cores) & (stands_cores <= cpu_cores)


def _why(found: ClassForecast, ahead_s: float) -> str:
    which = f"{found.alike} of {found.runs} earlier runs" if found.runs > 1 else "the one earlier run"
    return f"as {which} of its class went on: CPU for {ahead_s:.0f} s"
