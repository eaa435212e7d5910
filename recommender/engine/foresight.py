"""What phases and their graph say of live containers: the plan of each, by the visits of its class leaning on all.

A class learns with each phase that one of its containers leaves. What that makes of the coming time is worked out anew
once the class has shown enough more, for a few classes a step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from recommender.errors import BadArtifact, Misuse
from recommender.kernels.phase_plan import BLOCKS, EXPERTS, LATEST, PLAN, Expected
from recommender.kernels.plan_steps import FOLLOWED, UNTRIED
from recommender.model import PhaseModel
from recommender.phases.graph import Foresight, PhaseGraph, bucket_of
from recommender.policies.phase_demand import AS_IT_COMES, CREDIT_SAMPLES, FLOORS
from recommender.policies.phase_plan import EVERYBODY, PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES, LATE_SAMPLES
from recommender.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray

MOST_CLASSES = 32
"""Classes with a table of their own: a third of a megabyte each. One of which nothing runs makes room for another."""

WORTH_ANOTHER_LOOK = 0.1
"""A table is worked out anew after so many more visits, as a share of those that it rests on."""

TABLES_A_STEP = 4

CLASS_CREDIT_SAMPLES, CREDIT_VISITS = 60.0, 10.0
"""What the class itself showed is believed longer against a container's own record: half of it after so many visits."""

COVERED = 0.9
"""Share of the samples in a phase that what is said to be needed in it covers."""


DECIDED = [CPU]
"""Resources: memory goes by runs."""

MAY_BE_UNKNOWN = ("asked", "lately")
"""Of what is kept of a container: NaN before its first decision."""


class PhaseForesight:
    """Plans of live containers under one model, by slot.

    Parameters
    ----------
    model
        Knows phases, visits and demand.
    step_s
        Of the grid.

    Attributes
    ----------
    state
        Where the containers stand.
    promised
        Share of samples that may violate, per resource, and resizes of a container in an hour.
    foretold
        Of each change of phase that `observe` saw, whether what came had been the most probable. The caller clears it.

    Raises
    ------
    Misuse
        The model knows no demand.
    """

    def __init__(self, model: PhaseModel, step_s: float) -> None:
        if model.demand is None or model.graph is None:
            raise Misuse("this model knows no demand (it was imported). Train one on data.")
        self._demand, self._trained, self._step_s = model.demand, model.graph, step_s
        self._lead_samples = LATE_SAMPLES
        self._tables: dict[Hashable, int] = {}
        self.next_phase_hits: list[bool] = []
        self._visits = [self._trained]
        self._news, self._rests_on = [0], [0]
        self._seen = [self._foresee(EVERYBODY)]
        self.state = PlanState(self._trained.n_phases, resources=len(DECIDED))
        self._plan = PhasePlan(self.state, self._expected(), weights_of(np.ones(2), model.target_violation, 0.0))
        self.promise(model.target_violation, 12)

    def promise(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        """Decide from now on so that no larger share of samples violates, with no more resizes of a container."""
        self.promised = target_violation, resizes_per_hour
        price = self._demand.price(AS_IT_COMES, target_violation)
        self._plan.weights = weights_of(price, target_violation, resizes_per_hour * self._step_s / 3600.0)

    def table_of(self, workload_class: Hashable | None, in_use: IntArray) -> int:
        """Where what is known of a class stands; `in_use` are the tables of what runs."""
        if workload_class is None:
            return EVERYBODY
        if workload_class not in self._tables:
            if (table := self._free_table(set(in_use.tolist()))) is None:
                return EVERYBODY
            self._tables[workload_class] = table
            self._visits[table], self._seen[table] = PhaseGraph(self._trained.n_phases), self._seen[EVERYBODY]
            self._news[table] = self._rests_on[table] = 0
            self._plan.expected = self._plan.expected._replace(occupancy=self._occupancy(), credit=self._credit())
        return self._tables[workload_class]

    def _free_table(self, in_use: set[int]) -> int | None:
        """A new one, else that of the first class of which nothing runs; None when all are taken."""
        if (tables := len(self._visits)) <= MOST_CLASSES:
            self._visits.append(self._trained)
            self._seen.append(self._seen[EVERYBODY])
            self._news.append(0)
            self._rests_on.append(0)
            return tables
        for known, table in self._tables.items():
            if table not in in_use:
                del self._tables[known]
                return table
        return None

    def observe(self, slots: IntArray, usage: FloatArray, labels: IntArray, tables: IntArray) -> None:
        """Take in a sample of each container, float64 (m, 2), and its phase; their classes learn of what ended."""
        state, unknown = self.state, self._trained.n_phases - 1
        now = np.where(labels < 0, unknown, labels)
        for at in np.flatnonzero((state.dwell[slots] > 0) & (state.phase[slots] != now)).tolist():
            table, following = int(tables[at]), int(now[at])
            before, phase, dwell = (int(part[slots[at]]) for part in (state.before, state.phase, state.dwell))
            if unknown not in (phase, following):
                likeliest = int(self._seen[table].followers[before, phase, :unknown].argmax())
                self.next_phase_hits.append(following == likeliest)
            if table != EVERYBODY:
                self._visits[table].learn_visit(before, phase, dwell, following)
                self._news[table] += 1
        self._plan.observe(slots, usage[:, DECIDED], labels)

    def retell(self, slot: int, usage: FloatArray, labels: IntArray) -> None:
        """Start a container anew from the rows that are kept of it, float64 (n, 2), NaN in gaps."""
        self.state.reset(slot)
        self._plan.follow(slot, usage[:, DECIDED], labels, np.zeros(len(usage) + 1, bool))

    def follow_own_use(self, slot: int) -> None:
        """Let the rule of its latest samples decide for a container until another would have been cheaper."""
        self.state.chosen[slot, CPU] = LATEST

    def hold(self, slots: IntArray, usage: FloatArray, in_force: FloatArray) -> None:
        """Judge the latest sample of each by what it had, float64 (m, 2)."""
        self._plan.hold(slots, usage[:, DECIDED], in_force[:, DECIDED])

    def rest(self, slots: IntArray) -> None:
        """Others decide for these: what was asked for does not stand any more, and is not judged by what comes."""
        self.state.asked[slots] = self.state.lately[slots] = np.nan

    def decide(self, slots: IntArray, tables: IntArray, lead_s: float) -> FloatArray:
        """What cores to ask for, float64 (m,), when they are in force only `lead_s` later."""
        self._look_again(max(1, int(np.ceil(lead_s / self._step_s))))
        return self._plan.decide(slots, tables)[:, CPU]

    def words(self, slot: int, table: int) -> str:
        """What is expected of a container, and what for."""
        state = self.state
        correction = float(np.exp(state.corrected(np.array([slot]))[0, CPU]))
        times = f"{correction:.2f} times " if correction > 1.005 else ""
        if (rule := state.chosen[slot, CPU]) != PLAN:
            followed = FOLLOWED if rule == LATEST else BLOCKS * FOLLOWED
            untried = state.samples[slot] <= UNTRIED
            why = "is no less than the plan, untried on it" if untried else "has been cheaper for it than the plan"
            return f"{times}the largest of its last {followed} samples: that {why}"
        seen, context = self._seen[table], self._context(slot)
        followers = seen.followers[context[:2]]
        following = int(followers.argmax())
        chance = float(seen.ends[context] * followers[following])
        needed = self._demand.needed_cores(
            following, COVERED, state.own_sum[slot, CPU, following], state.own_samples[slot, following]
        )
        within_s = (self._lead_samples + 1) * self._step_s
        words = (
            f"{chance:.0%} that {self._name(following)} starts within {within_s:.0f} s; "
            f"it needs {needed:.3g} cores in {COVERED * 10:.0f} of 10 samples"
        )
        if self._provides_for(slot, needed):
            words += "; raised ahead of it"
        return f"{words}; {times}for its own violations" if times else words

    def coming(self, slot: int, table: int) -> tuple[FloatArray, float]:
        """Chance of each phase, the unknown one last, to come next, float64 (phases,), and the steps until then."""
        seen, context = self._seen[table], self._context(slot)
        return seen.followers[context[:2]], float(seen.remaining_steps[context])

    def restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Go on with what `state.of` said.

        Raises
        ------
        BadArtifact
            Something is missing or does not fit this model.
        """
        phases = self._trained.n_phases
        try:
            parts = {name: np.asarray(part, np.float64) for name, part in kept.items()}
            if not all(
                name in MAY_BE_UNKNOWN or (np.isfinite(part).all() and (part >= 0).all())
                for name, part in parts.items()
            ):
                raise ValueError("not all of it is a number of at least 0")
            if parts["phase"] >= phases or parts["before"] > phases or (parts["chosen"] >= EXPERTS).any():
                raise ValueError("no such phase or expert")
            self.state.put(slot, kept)
        except (KeyError, TypeError, ValueError) as error:
            raise BadArtifact(f"the kept plan of a container does not fit this model ({error})") from error

    def _context(self, slot: int) -> tuple[int, int, int]:
        """Where a container stands in the tables."""
        state = self.state
        return int(state.before[slot]), int(state.phase[slot]), int(bucket_of(np.maximum(state.dwell[slot], 1)))

    def _name(self, phase: int) -> str:
        return f"phase {phase}" if phase < self._trained.n_phases - 1 else "an unknown phase"

    def _provides_for(self, slot: int, cores: float) -> bool:
        """Whether more is asked for than it used lately, and no less than these."""
        asked, recent = self.state.stands(np.array([slot]))[0, CPU], self.state.recent[slot, :, CPU].max()
        return bool(asked * FLOORS[CPU] >= cores / VIOLATION_TOLERANCE > recent * FLOORS[CPU])

    # -- tables ----------------------------------------------------------------------------------------------------

    def _look_again(self, lead_samples: int) -> None:
        """Work out anew what has changed: all of it with the lead, else a few classes that have shown enough more."""
        stale = [
            table
            for table, news in enumerate(self._news)
            if news > max(0.0, WORTH_ANOTHER_LOOK * self._rests_on[table])
        ]
        if moved := lead_samples != self._lead_samples:
            self._lead_samples, stale = lead_samples, list(range(len(self._visits)))
        else:
            stale = sorted(stale, key=lambda table: -self._news[table])[:TABLES_A_STEP]
        if not stale:
            return
        for table in stale:
            self._rests_on[table], self._news[table] = self._rests_on[table] + self._news[table], 0
            self._seen[table] = self._foresee(table)
            self._plan.expected.occupancy[table] = self._seen[table].occupancy
        self._plan.expected.credit[:] = self._credit()
        if moved:
            self._plan.expected = self._expected()

    def _foresee(self, table: int) -> Foresight:
        """What is expected in each context, by the visits of a class leaning on those of training."""
        if table == EVERYBODY:
            return self._trained.to_provide_for(self._lead_samples, AHEAD_SAMPLES)
        return self._visits[table].to_provide_for(self._lead_samples, AHEAD_SAMPLES, self._trained)

    def _expected(self) -> Expected:
        expected = self._demand.expected(self._occupancy(), self._lead_samples, AHEAD_SAMPLES)
        return expected._replace(credit=self._credit())

    def _occupancy(self) -> FloatArray:
        """float64 (tables, 1 + phases, phases, buckets, phases)."""
        return np.stack([seen.occupancy for seen in self._seen])

    def _credit(self) -> FloatArray:
        """float64 (tables,): what the class itself showed is believed longer."""
        visits = np.array(self._rests_on, float)
        return CREDIT_SAMPLES + CLASS_CREDIT_SAMPLES * visits / (visits + CREDIT_VISITS)
