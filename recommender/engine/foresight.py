"""Requests of live containers: experts, one of which asks the phase graph, with the visits of each class.

A class learns from each phase that one of its containers leaves. Its tables are refreshed once it has enough new
visits, a few classes per step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.kernels.coming_demand import Expected
from recommender.kernels.experts import (
    BLOCKS,
    DISCOUNT,
    EXPERTS,
    GRAPH,
    LEAD_SAMPLES,
    MARGINS,
    PAST,
    REQUEST,
    SHORT_SAMPLES,
    WINDOW_SAMPLES,
    WINDOWS,
)
from recommender.learning.forecasting import AHEAD_SAMPLES
from recommender.learning.model import PhaseModel
from recommender.phases.graph import Foresight, PhaseGraph, bucket_of
from recommender.policies.class_runs import ClassRuns
from recommender.policies.experts import SHARED_TABLE, Experts, ExpertState, weights_of
from recommender.policies.phase_demand import FLOOR_CORES

MAX_CLASSES = 32
"""Classes with tables of their own, a third of a megabyte each. A class without containers makes way for another."""

REFRESH_SHARE = 0.1
"""A table is refreshed after so many new visits, as a share of those that it rests on."""

MAX_REFRESHES_PER_STEP = 4

OWN_PEAK = WINDOWS + len(MARGINS)
"""The expert that asks for the peak of the long window."""

DEMAND_QUANTILE = 0.9
"""Quantile of the demand in a phase that explanations give."""

WAITING_SHARE = 0.5
"""Of the container's mean use: in a phase that uses less it waits for something else than the CPU."""

MAY_BE_NAN, MAY_BE_NEGATIVE = ("asked", "lately"), "budget"
"""Kept arrays that are NaN before the first decision, and one that is below zero while changes are owed."""


@dataclass(slots=True)
class _Table:
    """What a class has learned: its visits, how many of them came since the forecast, and how many that rests on."""

    visits: PhaseGraph
    forecast: Foresight
    new: int = 0
    learned: int = 0


class PhaseForesight:
    """Requests of live containers under one model, by slot; `Misuse` if the model has no demand.

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
        self.state = ExpertState(self._trained.n_phases)
        weights = weights_of(model.target_violation[CPU], 0.0, step_s, float(self._demand.mean))
        self._experts = Experts(self.state, self._expected(), weights)
        self.set_objectives(model.target_violation, 12)

    def set_objectives(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        """Set the violation ratio and the resizes per hour to aim at."""
        self.objectives = target_violation, resizes_per_hour
        mean = float(self._demand.mean)
        self._experts.weights = weights_of(target_violation[CPU], resizes_per_hour, self._step_s, mean)

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
            self._experts.expected = self._experts.expected._replace(occupancy=self._occupancy())
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

    def observe(self, slots: IntArray, usage: FloatArray, labels: IntArray, tables: IntArray) -> None:
        """Take in a sample of each container, float64 (m, 2), and its phase; classes learn visits that ended."""
        state, unknown = self.state.visits, self._trained.n_phases - 1
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
        self._experts.observe(slots, usage[:, CPU].copy(), labels)

    def rebuild(self, slot: int, usage: FloatArray, labels: IntArray) -> None:
        """Rebuild the state of a container from its kept rows, float64 (n, 2), NaN in gaps; its prior stays."""
        prior = self.state.now.prior[slot].copy()
        self.state.reset(slot)
        self.state.now.prior[slot] = prior
        self._experts.replay(slot, usage[:, CPU].copy(), labels, np.zeros(len(usage), bool))

    def expect_losses(self, slot: int, runs: ClassRuns | None) -> None:
        """Expect of the experts on a container what they cost in runs of its class, if any, and in training."""
        losses = self._demand.losses
        self.state.now.prior[slot] = losses if runs is None else runs.expected_losses(losses)

    def losses(self, slot: int) -> tuple[FloatArray, FloatArray, float]:
        """What each expert has cost a container, see `ClassRuns.charge`."""
        state = self.state.now
        return state.losses[slot], state.charged[slot], float(state.samples[slot])

    def follow_own_use(self, slot: int, cpu_cores: float) -> None:
        """Let the peak of the latest samples decide for a container until another expert would have been cheaper.

        It counts as if it had used for a while what that peak requests so much for, and as if each of the others had
        cost as much more.
        """
        state, request = self.state.now, cpu_cores / FLOOR_CORES
        used = request / (1.0 + MARGINS[0])
        state.recent[slot], state.peaks[slot], state.asked[slot, REQUEST] = used, used, request
        state.samples[slot], state.total[slot] = WINDOW_SAMPLES, WINDOW_SAMPLES * used
        state.record[slot], state.chosen[slot] = used / (1.0 - DISCOUNT), OWN_PEAK
        state.record[slot, OWN_PEAK] = 0.0

    def judge(
        self, slots: IntArray, usage: FloatArray, in_force: FloatArray, targets: FloatArray | None = None
    ) -> None:
        """Judge the latest sample of each by what it had, float64 (m, 2); `targets` as in `Experts.judge`."""
        self._experts.judge(slots, usage[:, CPU].copy(), in_force[:, CPU].copy(), targets)

    def decide(
        self, slots: IntArray, tables: IntArray, sampled: BoolArray, told_cores: FloatArray, allowed: BoolArray
    ) -> FloatArray:
        """Cores to request, float64 (m,); NaN while nobody knows.

        `sampled`, bool (m,): whether samples are enough to ask all experts; `told_cores`, float64 (m, 2, 2): what runs
        of the class and the own past need soon and for longer, NaN where they tell nothing; `allowed`, bool (EXPERTS,):
        which experts may decide.
        """
        return self._experts.decide(slots, tables, sampled, told_cores, allowed)

    def refresh(self, lead_s: float) -> None:
        """Bring the forecasts up to what classes have learned, for decisions in force only `lead_s` later."""
        self._refresh_tables(max(1, int(np.ceil(lead_s / self._step_s))))

    def recalled(self, slots: IntArray) -> FloatArray:
        """Cores that the own past asks for, float64 (m,); NaN for nothing."""
        cores: FloatArray = self.state.now.asked[slots, PAST] * FLOOR_CORES
        return cores

    def chosen(self, slots: IntArray) -> IntArray:
        """int64 (m,): the expert that decides, see `kernels.experts`."""
        chosen: IntArray = self.state.now.chosen[slots]
        return chosen

    def explain(self, slot: int, table: int) -> str:
        """Why the graph or a window decides."""
        if (chosen := self.state.now.chosen[slot]) != GRAPH:
            margin = MARGINS[(chosen - WINDOWS) % len(MARGINS)]
            samples = SHORT_SAMPLES if chosen < WINDOWS + len(MARGINS) else BLOCKS * WINDOW_SAMPLES
            return f"the largest of its last {samples} samples and {margin:.0%}: that has been cheapest for it"
        forecast, context = self._tables[table].forecast, self._context(slot)
        followers = forecast.followers[context[:2]]
        following = int(followers.argmax())
        chance = float(forecast.ends[context] * followers[following])
        needed = self._needed_cores(slot, following, DEMAND_QUANTILE)
        within_s = (self._lead_samples + 1) * self._step_s
        words = (
            f"{chance:.0%} that {self._name(slot, following)} starts within {within_s:.0f} s; "
            f"it needs {needed:.3g} cores in {DEMAND_QUANTILE * 10:.0f} of 10 samples"
        )
        return f"{words}; raised ahead of it" if self._raised_for(slot, needed) else words

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
                name in MAY_BE_NAN or (np.isfinite(part) & ((part >= 0) | (name == MAY_BE_NEGATIVE))).all()
                for name, part in parts.items()
            ):
                raise ValueError("a number is negative or not finite")
            if parts["phase"] >= phases or parts["before"] > phases or parts["chosen"] >= EXPERTS:
                raise ValueError("no such phase or expert")
            self.state.put(slot, kept)
        except (KeyError, TypeError, ValueError) as error:
            raise BadArtifact(f"the kept plan of a container does not fit this model ({error})") from error

    def _context(self, slot: int) -> tuple[int, int, int]:
        """Index of a container into the tables."""
        visits = self.state.visits
        return int(visits.before[slot]), int(visits.phase[slot]), int(bucket_of(np.maximum(visits.dwell[slot], 1)))

    def doing(self, slot: int, phase: int) -> str:
        """What a container does in a phase, by its own use in it or else that of others: `waits on 0.1 cores`."""
        state, cores = self.state.now, self._needed_cores(slot, phase, 0.5)
        mean_cores = float(state.total[slot]) / max(1, int(state.samples[slot])) * FLOOR_CORES
        return f"{'waits' if cores < WAITING_SHARE * mean_cores else 'computes'} on {cores:.2g} cores"

    def _name(self, slot: int, phase: int) -> str:
        known = phase < self._trained.n_phases - 1
        return f"phase {phase} ({self.doing(slot, phase)})" if known else "an unknown phase"

    def _needed_cores(self, slot: int, phase: int, share: float) -> float:
        """CPU that covers this share of a container's samples in a phase."""
        visits = self.state.visits
        return self._demand.needed_cores(phase, share, visits.own_sum[slot, phase], visits.own_samples[slot, phase])

    def _raised_for(self, slot: int, cores: float) -> bool:
        """Whether the request is above its recent usage, and covers this demand."""
        state = self.state.now
        request, recent = state.asked[slot, REQUEST] * FLOOR_CORES, state.recent[slot].max() * FLOOR_CORES
        return bool(request >= cores / VIOLATION_TOLERANCE > recent)

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
            self._experts.expected.occupancy[number] = table.forecast.occupancy
        if moved:
            self._experts.expected = self._expected()

    def _expected(self) -> Expected:
        return self._demand.expected(self._occupancy(), self._lead_samples, AHEAD_SAMPLES)

    def _occupancy(self) -> FloatArray:
        """float64 (tables, 1 + phases, phases, buckets, phases)."""
        return np.stack([table.forecast.occupancy for table in self._tables])
