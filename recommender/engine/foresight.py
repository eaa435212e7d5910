"""Phase forecasts of live containers: the plan of each, from the visits of its class shrunk towards those of training.

A class learns from each phase that one of its containers leaves. Its tables are refreshed once it has enough new
visits, a few classes per step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recommender.errors import BadArtifact, Misuse
from recommender.kernels.phase_plan import BLOCKS, EXPERIENCE, EXPERTS, PLAN, SHORT_WINDOW, Expected
from recommender.kernels.plan_steps import SHORT_WINDOW_SAMPLES, WARM_UP_SAMPLES
from recommender.model import PhaseModel
from recommender.phases.graph import Foresight, PhaseGraph, bucket_of
from recommender.policies.phase_demand import CREDIT_SAMPLES, EVERY_SAMPLE, FLOORS
from recommender.policies.phase_plan import SHARED_TABLE, PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES, LEAD_SAMPLES
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray

MAX_CLASSES = 32
"""Classes with tables of their own, a third of a megabyte each. A class without containers makes way for another."""

REFRESH_SHARE = 0.1
"""A table is refreshed after so many new visits, as a share of those that it rests on."""

MAX_REFRESHES_PER_STEP = 4

CLASS_CREDIT_SAMPLES, CREDIT_VISITS = 60.0, 10.0
"""Trust in a class against a container's own samples grows with its visits; half of it after so many."""

DEMAND_QUANTILE = 0.9
"""Quantile of the demand in a phase that explanations give."""


DECIDED = [CPU]
"""Resources decided here; memory goes by runs."""

MAY_BE_NAN, MAY_BE_NEGATIVE = ("asked", "lately"), "excess"
"""Kept arrays that are NaN before the first decision, and one that may be below zero."""


@dataclass(slots=True)
class _Table:
    """What a class has learned: its visits, how many of them came since the forecast, and how many that rests on."""

    visits: PhaseGraph
    forecast: Foresight
    new: int = 0
    learned: int = 0


class PhaseForesight:
    """Plans of live containers under one model, by slot; `Misuse` if the model has no demand.

    Attributes
    ----------
    objectives
        Accepted violation ratio per resource, and resizes of a container per hour.
    next_phase_hits
        For each phase change seen by `observe`, whether the most probable phase came. The caller clears it.
    """

    def __init__(self, model: PhaseModel, step_s: float) -> None:
        if model.demand is None or model.graph is None:
            raise Misuse("this model knows no demand (it was imported). Train one on data.")
        self._demand, self._trained, self._step_s = model.demand, model.graph, step_s
        self._lead_samples = LEAD_SAMPLES
        self._numbers: dict[Hashable, int] = {}
        self.next_phase_hits: list[bool] = []
        shared = self._trained.foresight(self._lead_samples, AHEAD_SAMPLES)
        self._tables = [_Table(self._trained, shared)]
        self.state = PlanState(self._trained.n_phases, resources=len(DECIDED))
        self._plan = PhasePlan(self.state, self._expected(), weights_of(np.ones(2), model.target_violation, 0.0))
        self.set_objectives(model.target_violation, 12)

    def set_objectives(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        """Set the violation ratio and the resizes per hour that the plan aims at."""
        self.objectives = target_violation, resizes_per_hour
        price = self._demand.price(EVERY_SAMPLE, target_violation)
        self._plan.weights = weights_of(price, target_violation, resizes_per_hour * self._step_s / 3600.0)

    def table_of(self, workload_class: Hashable | None, in_use: IntArray) -> int:
        """Table of a class; `in_use` are the tables of live containers."""
        if workload_class is None:
            return SHARED_TABLE
        if workload_class not in self._numbers:
            if (table := self._free_table(set(in_use.tolist()))) is None:
                return SHARED_TABLE
            self._numbers[workload_class] = table
            new = _Table(PhaseGraph(self._trained.n_phases), self._tables[SHARED_TABLE].forecast)
            self._tables[table : table + 1] = [new]
            self._plan.expected = self._plan.expected._replace(occupancy=self._occupancy(), credit=self._credit())
        return self._numbers[workload_class]

    def _free_table(self, in_use: set[int]) -> int | None:
        """A new table, else that of the first class without containers; None if all are taken."""
        if len(self._tables) <= MAX_CLASSES:
            return len(self._tables)
        for known, table in self._numbers.items():
            if table not in in_use:
                del self._numbers[known]
                return table
        return None

    def observe(
        self, slots: IntArray, usage: FloatArray, labels: IntArray, tables: IntArray, followed: BoolArray
    ) -> None:
        """Take in a sample of each container, float64 (m, 2), and its phase; classes learn visits that ended.

        Where `followed`, bool (m,), is False something else decided; the plan goes on beside it.
        """
        state, unknown = self.state.now, self._trained.n_phases - 1
        now = np.where(labels < 0, unknown, labels)
        ended = (state.dwell[slots] > 0) & (state.phase[slots] != now)
        for number in set(tables[ended].tolist()):
            left, table = ended & (tables == number), self._tables[number]
            before, phase, dwell = (part[slots[left]] for part in (state.before, state.phase, state.dwell))
            following, likeliest = now[left], table.forecast.followers[before, phase, :unknown].argmax(axis=1)
            self.next_phase_hits += (following == likeliest)[(phase != unknown) & (following != unknown)].tolist()
            if number != SHARED_TABLE:
                for visit in zip(*(part.tolist() for part in (before, phase, dwell, following)), strict=True):
                    table.visits.learn_visit(*visit)
                table.new += len(following)
        self._plan.observe(slots, usage[:, DECIDED], labels, followed)

    def rebuild(self, slot: int, usage: FloatArray, labels: IntArray) -> None:
        """Rebuild the state of a container from its kept rows, float64 (n, 2), NaN in gaps."""
        self.state.reset(slot)
        self._plan.follow(slot, usage[:, DECIDED], labels, np.zeros(len(usage) + 1, bool))

    def follow_own_use(self, slot: int, cpu_cores: float) -> None:
        """Let the rule of the latest samples decide for a container until the plan would have been cheaper.

        It counts as warmed up, with this usage: during warm-up the largest request wins, then the plan.
        """
        state, used, samples = self.state.now, cpu_cores / FLOORS[CPU], 2 * WARM_UP_SAMPLES
        state.chosen[slot, CPU], state.samples[slot] = SHORT_WINDOW, samples
        state.recent[slot, :, CPU], state.total[slot, CPU] = used, samples * used

    def judge(self, slots: IntArray, usage: FloatArray, in_force: FloatArray) -> None:
        """Judge the latest sample of each by what it had, float64 (m, 2)."""
        self._plan.correct(slots, usage[:, DECIDED], in_force[:, DECIDED])

    def take_over(self, slots: IntArray) -> None:
        """The plan decides for these from now on: what it would have requested meanwhile is not worth keeping."""
        self.state.now.asked[slots, :EXPERTS] = np.nan

    def compare_no_longer(self, slots: IntArray) -> None:
        """Earlier runs request nothing for these until they are asked again."""
        self.state.now.asked[slots, EXPERIENCE] = np.nan

    def compare(self, slot: int, class_cores: float) -> tuple[float, float]:
        """Compare the plan with what earlier runs request from now on, NaN for nothing.

        Returns by how much they have cost more since the last call, in samples of the container's mean use, and the
        number of samples since.
        """
        state = self.state.now
        found = float(state.excess[slot, CPU]), float(state.compared[slot, CPU])
        state.asked[slot, EXPERIENCE, CPU] = class_cores / FLOORS[CPU]
        state.excess[slot, CPU] = state.compared[slot, CPU] = 0.0
        return found

    def decide(self, slots: IntArray, tables: IntArray, lead_s: float) -> FloatArray:
        """Cores to request, float64 (m,), that will be in force only `lead_s` later."""
        self._refresh_tables(max(1, int(np.ceil(lead_s / self._step_s))))
        return self._plan.decide(slots, tables)[:, CPU]

    def explain(self, slot: int, table: int) -> str:
        state = self.state.now
        correction = float(np.exp(self.state.chosen_correction(np.array([slot]))[0, CPU]))
        times = f"{correction:.2f} times " if correction > 1.005 else ""
        if (rule := state.chosen[slot, CPU]) != PLAN:
            followed = SHORT_WINDOW_SAMPLES if rule == SHORT_WINDOW else BLOCKS * SHORT_WINDOW_SAMPLES
            untried = state.samples[slot] <= WARM_UP_SAMPLES
            why = "is no less than the plan, untried on it" if untried else "has been cheaper for it than the plan"
            return f"{times}the largest of its last {followed} samples: that {why}"
        forecast, context = self._tables[table].forecast, self._context(slot)
        followers = forecast.followers[context[:2]]
        following = int(followers.argmax())
        chance = float(forecast.ends[context] * followers[following])
        needed = self._demand.needed_cores(
            following, DEMAND_QUANTILE, state.own_sum[slot, CPU, following], state.own_samples[slot, following]
        )
        within_s = (self._lead_samples + 1) * self._step_s
        words = (
            f"{chance:.0%} that {self._name(following)} starts within {within_s:.0f} s; "
            f"it needs {needed:.3g} cores in {DEMAND_QUANTILE * 10:.0f} of 10 samples"
        )
        if self._raised_for(slot, needed):
            words += "; raised ahead of it"
        return f"{words}; {times}to correct its own violations" if times else words

    def next_phases(self, slot: int, table: int) -> tuple[FloatArray, float]:
        """Probability of each next phase, the unknown one last, float64 (phases,), and the expected steps to it."""
        forecast, context = self._tables[table].forecast, self._context(slot)
        return forecast.followers[context[:2]], float(forecast.remaining_steps[context])

    def restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Restore what `state.of` returned; `BadArtifact` if something is missing or does not fit this model."""
        phases = self._trained.n_phases
        try:
            parts = {name: np.asarray(part, np.float64) for name, part in kept.items()}
            if not all(
                name in MAY_BE_NAN or (np.isfinite(part).all() and (name == MAY_BE_NEGATIVE or (part >= 0).all()))
                for name, part in parts.items()
            ):
                raise ValueError("a number is negative or not finite")
            if parts["phase"] >= phases or parts["before"] > phases or (parts["chosen"] >= EXPERTS).any():
                raise ValueError("no such phase or expert")
            self.state.put(slot, kept)
        except (KeyError, TypeError, ValueError) as error:
            raise BadArtifact(f"the kept plan of a container does not fit this model ({error})") from error

    def _context(self, slot: int) -> tuple[int, int, int]:
        """Index of a container into the tables."""
        state = self.state.now
        return int(state.before[slot]), int(state.phase[slot]), int(bucket_of(np.maximum(state.dwell[slot], 1)))

    def _name(self, phase: int) -> str:
        return f"phase {phase}" if phase < self._trained.n_phases - 1 else "an unknown phase"

    def _raised_for(self, slot: int, cores: float) -> bool:
        """Whether the request is above its recent usage, and covers this demand."""
        asked, recent = self.state.chosen_request(np.array([slot]))[0, CPU], self.state.now.recent[slot, :, CPU].max()
        return bool(asked * FLOORS[CPU] >= cores / VIOLATION_TOLERANCE > recent * FLOORS[CPU])

    # -- tables ----------------------------------------------------------------------------------------------------

    def _refresh_tables(self, lead_samples: int) -> None:
        """Refresh the tables: all of them if the lead time changed, else a few classes with enough new visits."""
        moved, self._lead_samples = lead_samples != self._lead_samples, lead_samples
        stale = [
            number
            for number, table in enumerate(self._tables)
            if moved or table.new > max(0.0, REFRESH_SHARE * table.learned)
        ]
        if not moved:
            stale = sorted(stale, key=lambda number: -self._tables[number].new)[:MAX_REFRESHES_PER_STEP]
        if not stale:
            return
        for number in stale:
            table, all_classes = self._tables[number], None if number == SHARED_TABLE else self._trained
            table.learned, table.new = table.learned + table.new, 0
            table.forecast = table.visits.foresight(lead_samples, AHEAD_SAMPLES, all_classes)
            self._plan.expected.occupancy[number] = table.forecast.occupancy
        self._plan.expected.credit[:] = self._credit()
        if moved:
            self._plan.expected = self._expected()

    def _expected(self) -> Expected:
        expected = self._demand.expected(self._occupancy(), self._lead_samples, AHEAD_SAMPLES)
        return expected._replace(credit=self._credit())

    def _occupancy(self) -> FloatArray:
        """float64 (tables, 1 + phases, phases, buckets, phases)."""
        return np.stack([table.forecast.occupancy for table in self._tables])

    def _credit(self) -> FloatArray:
        """float64 (tables,): credit of each class, in samples."""
        visits = np.array([table.learned for table in self._tables], float)
        return CREDIT_SAMPLES + CLASS_CREDIT_SAMPLES * visits / (visits + CREDIT_VISITS)
