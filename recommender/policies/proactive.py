"""`phase.proactive`: allocate what the coming cycle needs, by the phases that are expected and what each needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.errors import Misuse
from recommender.kernels.plan_arrays import Expected
from recommender.policies.base import PolicyModel
from recommender.policies.phase_demand import ONCE_A_CYCLE, DemandModel
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.records import Block, ContainerFacts, FloatArray


class ProactivePolicy:
    """The plan with one decision a cycle, in force at once: what it is worth beside the policies of the papers.

    Parameters
    ----------
    model
        Gives `demand`, a `DemandModel`, and the occupancy of its phases.

    Raises
    ------
    Misuse
        The model knows no demand.
    """

    name = "phase.proactive"
    oracle = False
    every_sample = False

    def __init__(self, model: PolicyModel) -> None:
        if not isinstance(model.demand, DemandModel):
            raise Misuse("phase.proactive needs a model that learned the demand. Train one, or leave the policy out.")
        self._model, self.demand = model, model.demand
        self.phases = model.demand.visiting.shape[1]
        price = self.demand.price(ONCE_A_CYCLE, model.target_violation)
        self.weights = weights_of(price, model.target_violation, changes_per_sample=np.inf, resize=0.0)
        self._expected: dict[int, Expected] = {}

    def start(self, container: ContainerFacts) -> ProactiveSession:
        return ProactiveSession(self, self._expected_in(container.cycle_samples))

    def _expected_in(self, cycle_samples: int) -> Expected:
        if cycle_samples not in self._expected:
            occupancy = self._model.occupancy(0, cycle_samples)
            self._expected[cycle_samples] = self.demand.expected(occupancy[np.newaxis], 0, cycle_samples)
        return self._expected[cycle_samples]


class ProactiveSession:
    """One container: what it used in each phase, and how far what was decided was off."""

    def __init__(self, policy: ProactivePolicy, expected: Expected) -> None:
        self._state = PlanState(policy.phases, 1)
        self._plan = PhasePlan(self._state, expected, policy.weights)
        self._decided = np.full(2, np.nan)

    def advance(self, block: Block) -> FloatArray:
        if block.phases is None:
            raise Misuse("phase.proactive needs a model. Give one with --model, or leave the policy out.")
        decides = np.zeros(len(block.usage) + 1, bool)
        decides[block.decisions] = True
        asked = self._plan.follow(0, block.usage, block.phases.labels, decides)[block.decisions]
        self._decided = asked[-1] if len(asked) else self._decided
        return asked

    def explain(self) -> Mapping[str, Any]:
        if np.isnan(self._decided).any():
            return {"rule": "no decision yet"}
        phase = int(self._state.phase[0])
        return {
            "rule": "cheapest for the phases that are expected in the coming cycle",
            "phase": None if phase == self._state.own_samples.shape[1] - 1 else phase,
            "dwell_samples": int(self._state.dwell[0]),
            "correction": np.exp(self._state.corrected(np.zeros(1, np.int64))[0]).round(3).tolist(),
            "cpu_cores": float(self._decided[0]),
            "memory_bytes": float(self._decided[1]),
        }
