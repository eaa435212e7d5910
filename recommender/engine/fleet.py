"""CPU decisions for every live container; `memory` decides memory for all of them.

With each sample, and whenever its class is queried, experts are asked what a container needs, and the one that has been
cheapest decides (`foresight`). Runs of its class are queried at intervals, shorter where its runs are short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from recommender.base.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH, BY_PAST, BY_USE, UNDECIDED
from recommender.engine.containers import Containers, Member, slots_of
from recommender.kernels.experts import CLASS, EXPERTS, GRAPH, PAST
from recommender.policies.class_runs import ClassForecast, ClassRuns, Progress
from recommender.policies.experts import ALL_EXPERTS

DECISIONS_PER_RUN = 20
"""However short the runs of a class are, CPU may be lowered about so often in each."""

QUERIES_PER_DECISION = 5
"""The class is queried so many times as often, in case more is needed."""


DECIDED_BY = np.full(EXPERTS, BY_USE)
"""What decided, see `container_arrays`, by the number of the expert."""

DECIDED_BY[[GRAPH, CLASS, PAST]] = BY_GRAPH, BY_CLASS, BY_PAST


class ClassTarget(NamedTuple):
    """CPU of a container by earlier runs of its class, whether these are enough for a lower limit, and the reason."""

    cpu_cores: float
    foreseen: bool
    rule: Callable[[], str]


class Fleet(Containers):
    """The live containers and their CPU decisions; `experts`, bool (EXPERTS,), are those that may decide.

    For parameters and errors see `Containers`.
    """

    experts = ALL_EXPERTS

    def due(self, now_s: float) -> list[Member]:
        """Members with a decision due: those with a new sample, and those whose class is to be queried."""
        slots = np.flatnonzero(self.arrays.alive)
        due = self._has_new_rows(slots)
        for place in np.flatnonzero(self.arrays.has_class[slots]).tolist():
            due[place] |= self._class_due(self.by_slot[int(slots[place])], now_s)
        return [self.by_slot[slot] for slot in slots[due].tolist()]

    def decide(self, members: Sequence[Member], now_s: float) -> int:
        """Decide the CPU of these; returns for how many something is known."""
        for member in members:
            if self._class_due(member, now_s):
                self._query_class(member, now_s)
        arrays, slots = self.arrays, slots_of(members)
        told_cores = np.stack([arrays.class_cores[slots], self._recall(slots)], axis=1)
        sampled = arrays.samples[slots] > self.model.detector.lag
        requests, chosen = np.empty(len(slots)), np.empty(len(slots), np.int64)
        for _, foresight, of_it in self._by_model(slots):
            theirs = slots[of_it]
            foresight.refresh(self.lead_s)
            requests[of_it] = foresight.decide(
                theirs, arrays.table[theirs], sampled[of_it], told_cores[of_it], self.experts
            )
            chosen[of_it] = foresight.chosen(theirs)
        arrays.rows_since_decision[slots[sampled]] = 0
        known = ~np.isnan(requests)
        decided = slots[known]
        arrays.wanted[decided, CPU], arrays.decided_by[decided] = requests[known], DECIDED_BY[chosen[known]]
        soon_cores = np.column_stack(
            [np.where(arrays.class_foresees[slots], told_cores[:, 0, 0], np.nan), told_cores[:, 1, 0]]
        )
        most_cores = np.fmax(*soon_cores.T)
        arrays.foreseen[slots] = requests * VIOLATION_TOLERANCE >= most_cores  # False where neither knows
        return len(decided)

    def assign_class(self, member: Member, workload: str | None, runs: ClassRuns | None) -> None:
        """Assign a container to a class, whose runs are asked from now on; None for none."""
        member.workload, member.runs = workload, runs
        arrays, slot = self.arrays, member.slot
        arrays.has_class[slot] = runs is not None
        arrays.withheld[slot] |= member.class_withheld
        arrays.table[slot], arrays.class_queried_s[slot] = self._table_of(member), -np.inf
        arrays.class_cores[slot], arrays.class_foresees[slot], arrays.foreseen[slot] = np.nan, False, False
        self._expect_losses(member)
        if arrays.decided_by[slot] == BY_CLASS:
            arrays.decided_by[slot] = UNDECIDED
            arrays.rows_since_decision[slot] = max(1, arrays.rows_since_decision[slot])

    def class_target(self, runs: ClassRuns, age_s: float) -> ClassTarget | None:
        """CPU of a container of which only class and age are known; None if the class cannot tell."""
        found = self._forecast(runs, Progress(None, 0.0, max(0.0, age_s)))
        if found is None:
            return None
        rule = partial(_explain_class, found, self._class_horizons_s(runs)[1])
        return ClassTarget(found.cpu_cores, found.foresees, rule)

    def rule(self, member: Member) -> str:
        """Explain the last decision for a container; empty before the first."""
        decided_by = self.arrays.decided_by[member.slot]
        if decided_by == UNDECIDED:
            return ""
        if decided_by == BY_CLASS:
            return member.class_rule()
        if decided_by == BY_PAST:
            return self._explain_past(member.slot)
        ((_, foresight, _),) = self._by_model(np.array([member.slot]))
        return foresight.explain(member.slot, int(self.arrays.table[member.slot]))

    def decrease_horizon_s(self, runs: ClassRuns) -> float:
        """CPU is lowered only where the runs of a class show that less is enough for this long."""
        return min(max(runs.typical_s / DECISIONS_PER_RUN, self.step_s), self.cycle_samples * self.step_s)

    def _query_interval_s(self, runs: ClassRuns) -> float:
        return max(self.decrease_horizon_s(runs) / QUERIES_PER_DECISION, self.step_s)

    def _class_due(self, member: Member, now_s: float) -> bool:
        if not (runs := member.runs):
            return False
        passed_s = float(now_s - self.arrays.class_queried_s[member.slot])  # negative after a clock was set back
        return not 0.0 <= passed_s < self._query_interval_s(runs)

    def _has_new_rows(self, slots: IntArray) -> BoolArray:
        """Whether there is a sample that no decision has taken in, bool (m,)."""
        arrays = self.arrays
        return (arrays.samples[slots] > self.model.detector.lag) & (arrays.rows_since_decision[slots] > 0)

    def _recall(self, slots: IntArray) -> FloatArray:
        """What these needed when they were in this situation before, float64 (m, 2): soon and for longer, or NaN.

        The first sample of a stage may be half of another one: what was needed stays, unless it uses more.
        """
        times, needed_cores = self._match_past(slots)
        begins = np.flatnonzero((times == 0) & (self.past.samples[slots] == 1))
        for _, foresight, of_it in self._by_model(slots[begins]):
            rows = begins[of_it]
            stays = np.maximum(foresight.recalled(slots[rows]), self.arrays.used[slots[rows], CPU])
            needed_cores[rows] = stays[:, np.newaxis]
        return needed_cores

    def _match_past(self, slots: IntArray) -> tuple[IntArray, FloatArray]:
        """How often these were in the same position before, int64 (m,), and their peaks after it, float64 (m, 2)."""
        return self.past.find_matches(slots, np.array([self.lead_steps + 1, self._past_horizon_steps]))

    @property
    def _past_horizon_steps(self) -> int:
        """CPU is lowered only where less is enough for so many samples."""
        return 2 * self.lead_steps + 1

    def _explain_past(self, slot: int) -> str:
        times, ((_, cpu_cores),) = self._match_past(np.array([slot]))
        if times[0] == 0:
            return "a stage known from its own past begins or ends"
        within_s = self._past_horizon_steps * self.step_s
        return f"as it went on {times[0]} times before: up to {cpu_cores:.3g} cores within {within_s:.0f} s"

    def _query_class(self, member: Member, now_s: float) -> None:
        """Ask earlier runs what a container needs from now on; the answer holds until the next query."""
        runs, arrays, slot = member.runs, self.arrays, member.slot
        if runs is None:
            return
        arrays.class_queried_s[slot] = now_s
        start_s = float(arrays.start_cell[slot]) * self.step_s
        seen_s = max(self.step_s, (float(arrays.last_cell[slot]) + 1.0) * self.step_s - start_s)
        curve = self.curves.curve(slot)
        observed = curve if len(curve.levels) else None  # none yet after a restart
        found = self._forecast(runs, Progress(observed, seen_s, max(seen_s, now_s - start_s)))
        arrays.class_cores[slot] = np.nan if found is None else (found.soon_cores, found.cpu_cores)
        arrays.class_foresees[slot] = found is not None and found.foresees
        member.class_rule = str if found is None else partial(_explain_class, found, self._class_horizons_s(runs)[1])

    def _class_horizons_s(self, runs: ClassRuns) -> tuple[float, float]:
        return self.lead_s + self._query_interval_s(runs), self.lead_s + self.decrease_horizon_s(runs)

    def _forecast(self, runs: ClassRuns, progress: Progress) -> ClassForecast | None:
        return runs.forecast(progress, *self._class_horizons_s(runs)) if runs else None


def _explain_class(found: ClassForecast, ahead_s: float) -> str:
    which = f"{found.alike} of {found.runs} earlier runs" if found.runs > 1 else "the one earlier run"
    return f"as {which} of its class went on: CPU for {ahead_s:.0f} s"
