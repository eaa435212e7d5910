"""`phase.proactive`: allocate for the phases expected in the coming cycle and the demand of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from recommender.kernels.phase_plan import Expected
from recommender.policies.phase_demand import ONCE_A_CYCLE, DemandModel
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.records import Block, PolicyFunction, PolicyOutput


def proactive(
    demand: DemandModel, foresight: Callable[[int, int], Any], target_violation: tuple[float, float]
) -> PolicyFunction:
    """The plan with one decision a cycle, in force at once, to compare it with the policies of the papers.

    `foresight`: `PhaseGraph.foresight`.
    """
    phases = demand.visiting.shape[1]
    price = demand.price(ONCE_A_CYCLE, target_violation)
    weights = weights_of(price, target_violation, changes_per_sample=np.inf, resize=0.0)

    @cache
    def expected_in(cycle_samples: int) -> Expected:
        return demand.expected(foresight(0, cycle_samples).occupancy[np.newaxis], 0, cycle_samples)

    def decide(block: Block, cycle_samples: int) -> PolicyOutput:
        state = PlanState(phases, 1)
        decisions = np.zeros(len(block.usage) + 1, bool)
        decisions[block.decisions] = True
        plan = PhasePlan(state, expected_in(cycle_samples), weights)
        allocations = plan.follow(0, block.usage, block.labels, decisions)[block.decisions]
        phase = int(state.now.phase[0])
        return allocations, {
            "rule": "cheapest for the phases that are expected in the coming cycle",
            "phase": None if phase == phases - 1 else phase,
            "dwell_samples": int(state.now.dwell[0]),
            "correction": np.exp(state.chosen_correction(np.zeros(1, np.int64))[0]).round(3).tolist(),
            "cpu_cores": float(allocations[-1, 0]),
            "memory_bytes": float(allocations[-1, 1]),
        }

    return decide
