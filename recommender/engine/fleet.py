"""CPU decisions for every live container; `memory` decides memory for all of them.

A workload class with earlier runs is queried at intervals, shorter where its runs are short: CPU is raised shortly
before it is needed, and lowered where less is enough for longer. Where the kept runs are too coarse to show stages, or
there are none, the container's own past is asked first, with each sample. All others follow the plan (`foresight`).

The plan decides for every container, followed or not. So it shows what a class is worth: where the runs of a class are
so unlike each other that the plan would have been cheaper, its containers are decided as if they had no class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from recommender.engine.container_arrays import BY_CLASS, BY_EXPERIENCE, BY_FORECAST, BY_PAST, UNDECIDED
from recommender.engine.containers import Containers, Member, is_followed, slots_of
from recommender.policies.class_runs import MIN_RUNS_TO_FALL, ClassForecast, ClassRuns, Progress
from recommender.policies.phase_plan import SHARED_TABLE
from recommender.records import CPU, BoolArray, FloatArray, IntArray

DECISIONS_PER_RUN = 20
"""However short the runs of a class are, CPU may be lowered about so often in each."""

QUERIES_PER_DECISION = 5
"""The class is queried so many times as often, in case more is needed."""

Amount = FloatArray | float


class ClassTarget(NamedTuple):
    """CPU of a container by the earlier runs of its class, a function that explains it, and whether they are enough to
    lower CPU ahead of time."""

    cpu_cores: float
    rule: Callable[[], str]
    foreseen: bool


class Fleet(Containers):
    """The live containers and their CPU decisions. For parameters and errors see `Containers`."""

    def due(self, now_s: float) -> list[Member]:
        """Members with a decision due: those with a new sample, and those whose class is to be queried."""
        slots = np.flatnonzero(self.arrays.alive)
        due = self._has_new_rows(slots)
        for place in np.flatnonzero(self.arrays.has_class[slots]).tolist():
            due[place] |= self._class_due(self.by_slot[int(slots[place])], now_s)
        return [self.by_slot[slot] for slot in slots[due].tolist()]

    def decide(self, members: Sequence[Member], now_s: float) -> int:
        """Decide the CPU of these, by their own past, the runs of their class, or the forecast; returns how often.

        Without new information the last decision stays. The forecast is followed only where neither of the others
        decides; between two queries the last answer of the class holds.
        """
        decided_by, slots = self.arrays.decided_by, slots_of(members)
        resolved = {member.slot for member in members if member.runs and self._class_resolves_stages(member)}
        unseen = np.array([slot for slot in slots.tolist() if slot not in resolved], np.int64) if resolved else slots
        made = self._decide_by_past(unseen[self._has_new_rows(unseen)])
        for member in members:
            if member.runs and (member.slot in resolved or decided_by[member.slot] != BY_PAST):
                made += self._class_due(member, now_s) and self._decide_by_class(member, now_s)
        return made + self._decide_by_forecast(slots[self._has_new_rows(slots)])

    def assign_class(self, member: Member, workload: str | None, runs: ClassRuns | None) -> None:
        """Assign a container to a class, whose runs it follows from now on; None for none."""
        member.workload, member.runs, member.follows = workload, runs, is_followed(runs)
        arrays, slot = self.arrays, member.slot
        arrays.has_class[slot] = runs is not None
        arrays.table[slot], arrays.class_queried_s[slot] = self._table_of(member), -np.inf
        arrays.class_cores[slot], member.uncharged = np.nan, (0.0, 0.0)
        if arrays.decided_by[slot] == BY_CLASS:
            arrays.decided_by[slot], arrays.foreseen[slot] = UNDECIDED, False
            arrays.rows_since_decision[slot] = max(1, arrays.rows_since_decision[slot])

    def class_target(self, runs: ClassRuns | None, age_s: float) -> ClassTarget | None:
        """CPU of a container of which only class and age are known; None if the class cannot tell."""
        return self._from_class(runs, Progress(None, 0.0, max(0.0, age_s)))

    def rule(self, member: Member) -> str:
        """Explain the last decision for a container; empty before the first."""
        if self.arrays.decided_by[member.slot] == BY_CLASS:
            return member.class_rule()
        if self.arrays.decided_by[member.slot] == BY_PAST:
            return self._explain_past(member.slot)
        if self.arrays.decided_by[member.slot] == BY_FORECAST:
            ((_, foresight, _),) = self._by_model(np.array([member.slot]))
            rule = foresight.explain(member.slot, int(self.arrays.table[member.slot]))
            return rule if member.follows else f"{rule}; forecasts by its class have cost more"
        return ""

    def decrease_horizon_s(self, runs: ClassRuns) -> float:
        """CPU is lowered only where the runs of a class show that less is enough for this long."""
        return min(max(runs.typical_s / DECISIONS_PER_RUN, self.step_s), self.cycle_samples * self.step_s)

    def _query_interval_s(self, runs: ClassRuns) -> float:
        return max(self.decrease_horizon_s(runs) / QUERIES_PER_DECISION, self.step_s)

    def _class_resolves_stages(self, member: Member) -> bool:
        """Whether the runs of a member's class are worth following, and kept at its sampling rate."""
        if not (runs := member.runs) or not member.follows:
            return False
        return runs.bucket_s <= self.step_s

    def _class_due(self, member: Member, now_s: float) -> bool:
        if not (runs := member.runs):
            return False
        passed_s = float(now_s - self.arrays.class_queried_s[member.slot])  # negative after a clock was set back
        return not 0.0 <= passed_s < self._query_interval_s(runs)

    def _has_new_rows(self, slots: IntArray) -> BoolArray:
        """Whether there is a sample that no decision has taken in, bool (m,)."""
        arrays = self.arrays
        return (arrays.samples[slots] > self.model.detector.lag) & (arrays.rows_since_decision[slots] > 0)

    def _decide_by_past(self, slots: IntArray) -> int:
        """Decide those of these, int64 (m,), whose own past predicts what comes; returns how many. Others are freed."""
        if not len(slots):
            return 0
        arrays = self.arrays
        times, (soon_cores, cpu_cores) = self._match_past(slots)
        was = arrays.decided_by[slots] == BY_PAST
        current_cores = np.where(was, arrays.wanted[slots, CPU], np.nan)
        wanted = np.where(_is_adequate(current_cores, soon_cores, cpu_cores), current_cores, cpu_cores)
        begins = was & (times == 0) & (self.past.samples[slots] == 1)
        wanted[begins] = np.fmax(current_cores, arrays.used[slots, CPU])[begins]
        predicts = (times > 0) | begins
        decided, freed = slots[predicts], slots[was & ~predicts]
        arrays.decided_by[decided], arrays.wanted[decided, CPU] = BY_PAST, wanted[predicts]
        arrays.foreseen[decided], arrays.foreseen[freed] = True, False
        arrays.decided_by[freed], arrays.class_queried_s[freed] = UNDECIDED, -np.inf
        for _, foresight, of_it in self._by_model(freed):
            foresight.take_over(freed[of_it])
        unasked = slots[predicts & ~was]
        arrays.class_cores[unasked] = np.nan
        for _, foresight, of_it in self._by_model(unasked):
            foresight.compare_no_longer(unasked[of_it])
        return len(decided)

    def _match_past(self, slots: IntArray) -> tuple[IntArray, FloatArray]:
        """How often these were in the same position before, int64 (m,), and their usage soon after it, float64 (2,
        m)."""
        times, largest_cores = self.past.find_matches(slots, np.array([self.lead_steps + 1, self._past_horizon_steps]))
        return times, largest_cores.T

    @property
    def _past_horizon_steps(self) -> int:
        """CPU is lowered only where less is enough for so many samples."""
        return 2 * self.lead_steps + 1

    def _explain_past(self, slot: int) -> str:
        times, (_, (cpu_cores,)) = self._match_past(np.array([slot]))
        if times[0] == 0:
            return "a stage known from its own past begins or ends"
        within_s = self._past_horizon_steps * self.step_s
        return f"as it went on {times[0]} times before: up to {cpu_cores:.3g} cores within {within_s:.0f} s"

    def _decide_by_class(self, member: Member, now_s: float) -> bool:
        """Whether the class gave a decision; where it did not, the forecast decides from now on."""
        arrays, slot = self.arrays, member.slot
        arrays.class_queried_s[slot] = now_s
        start_s = float(arrays.start_cell[slot]) * self.step_s
        seen_s = max(self.step_s, (float(arrays.last_cell[slot]) + 1.0) * self.step_s - start_s)
        curve = self.curves.curve(slot)
        observed = curve if len(curve.levels) else None  # none yet after a restart
        progress = Progress(observed, seen_s, max(seen_s, now_s - start_s))
        found = self._from_class(member.runs, progress, float(arrays.class_cores[slot]))
        arrays.class_cores[slot] = math.nan if found is None else found.cpu_cores
        ((_, foresight, _),) = self._by_model(np.array([slot]))
        self._judge_class(member, progress.age_s, *foresight.compare(slot, float(arrays.class_cores[slot])))
        if found is None or not member.follows:
            if arrays.decided_by[slot] >= BY_EXPERIENCE:
                foresight.take_over(np.array([slot]))
                arrays.decided_by[slot], arrays.foreseen[slot] = BY_FORECAST, False
                arrays.rows_since_decision[slot] = max(1, arrays.rows_since_decision[slot])
            return False
        arrays.decided_by[slot], arrays.wanted[slot, CPU] = BY_CLASS, found.cpu_cores
        arrays.foreseen[slot] = found.foreseen
        member.class_rule = found.rule
        return True

    def _judge_class(self, member: Member, age_s: float, excess: float, samples: float) -> None:
        """Charge the class of a container with what its decisions cost more, and follow it no longer, or again.

        A run that is light so far charges nothing yet: what a flood of tiny runs finds too dear may suit the others.
        """
        excess, samples = member.uncharged[0] + excess, member.uncharged[1] + samples
        member.uncharged = excess, samples
        if member.runs is not None and age_s >= member.runs.light_s:
            member.runs.charge(excess, samples)
            member.uncharged = 0.0, 0.0
        if member.follows != is_followed(member.runs):
            member.follows = is_followed(member.runs)
            self.arrays.table[member.slot] = self._table_of(member)

    def _from_class(
        self, runs: ClassRuns | None, progress: Progress, current_cores: float = math.nan
    ) -> ClassTarget | None:
        if not runs:
            return None
        soon_s, ahead_s = self.lead_s + self._query_interval_s(runs), self.lead_s + self.decrease_horizon_s(runs)
        found = runs.forecast(progress, soon_s, ahead_s)
        if found is None:
            return None
        if _is_adequate(current_cores, found.soon_cores, found.cpu_cores):
            return ClassTarget(current_cores, partial(_explain_class, found, soon_s), found.alike >= MIN_RUNS_TO_FALL)
        return ClassTarget(found.cpu_cores, partial(_explain_class, found, ahead_s), found.alike >= MIN_RUNS_TO_FALL)

    def _decide_by_forecast(self, slots: IntArray) -> int:
        """Let the forecast decide after the latest sample of each, int64 (m,); returns how many follow it.

        Beside a class it decides as for a container without one, since that is what the class is compared with.
        """
        arrays, planned_cores = self.arrays, np.empty(len(slots))
        tables = np.where(arrays.decided_by[slots] == BY_CLASS, SHARED_TABLE, arrays.table[slots])
        for _, foresight, of_it in self._by_model(slots):
            planned_cores[of_it] = foresight.decide(slots[of_it], tables[of_it], self.lead_s)
        arrays.rows_since_decision[slots] = 0
        follows = arrays.decided_by[slots] < BY_EXPERIENCE
        followers = slots[follows]
        arrays.wanted[followers, CPU], arrays.decided_by[followers] = planned_cores[follows], BY_FORECAST
        return len(followers)


class ClassOnlyFleet(Fleet):
    """A fleet in which only the classes decide: what they are worth without phases."""

    def _has_new_rows(self, slots: IntArray) -> BoolArray:
        return np.zeros(len(slots), bool)

    def _decide_by_class(self, member: Member, now_s: float) -> bool:
        decided = super()._decide_by_class(member, now_s)
        if not decided:
            self.arrays.decided_by[member.slot] = UNDECIDED
        return decided


def _is_adequate(current_cores: Amount, soon_cores: Amount, cpu_cores: Amount) -> BoolArray | bool:
    """Whether the present CPU can stay: enough for soon, and no more than what is needed for longer."""
    return (soon_cores <= current_cores) & (current_cores <= cpu_cores)


def _explain_class(found: ClassForecast, ahead_s: float) -> str:
    which = f"{found.alike} of {found.runs} earlier runs" if found.runs > 1 else "the one earlier run"
    return f"as {which} of its class went on: CPU for {ahead_s:.0f} s"
