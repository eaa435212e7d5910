"""The plan: phases and their graph forecast the demand, each container's own violations correct it.

There is no cycle: the cheapest allocation for the coming time can be computed with each sample, and the request changes
when that saves more than a resize costs and the budget of resizes allows it.
"""

from __future__ import annotations

import numpy as np

from recommender.kernels import plan_steps as kernel
from recommender.kernels.phase_plan import (
    BLOCKS,
    EXPERT_LEAD_SAMPLES,
    EXPERTS,
    LONG_WINDOW,
    Expected,
    PlanArrays,
    Weights,
)
from recommender.policies.phase_demand import FLOORS
from recommender.records import RESOURCES, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays

SHARED_TABLE = 0  # occupancy table of containers whose class has none of its own, or that have no class
RESIZE_PRICE = 0.1  # price of a resize, as a share of the new allocation


def weights_of(
    price: FloatArray, target: tuple[float, float], changes_per_sample: float, resize: float = RESIZE_PRICE
) -> Weights:
    """The `Weights` of the plan."""
    return Weights(price, np.array(target), resize, changes_per_sample, VIOLATION_TOLERANCE)


class PlanState(SlotArrays):
    """State of the plan, see `PlanArrays`; `phases` include the unknown one, `resources` is 2, or 1 for CPU alone."""

    def __init__(self, phases: int, slots: int = 0, resources: int = len(RESOURCES)) -> None:
        counts = dict.fromkeys(("phase", "before", "dwell", "samples"), 0)
        each, experts = np.zeros(resources), np.zeros((EXPERTS, resources))
        window, peaks = np.zeros((kernel.SHORT_WINDOW_SAMPLES, resources)), np.zeros((BLOCKS, resources))
        correction = experts.copy()
        correction[LONG_WINDOW] = np.log1p(kernel.LONG_WINDOW_MARGIN)
        amounts = {"total": each, "recent": window, "peaks": peaks}
        own = {"own_sum": np.zeros((resources, phases)), "own_samples": np.zeros(phases)}
        control = {
            "correction": correction,
            "gain": experts + kernel.GAIN,
            "streak": experts,
            "price_factor": each + 1.0,
            "budget": experts + kernel.MAX_BUDGET,
        }
        requests = np.full((EXPERTS + 1, resources), np.nan)
        asked = {"asked": requests, "lately": np.array([requests] * EXPERT_LEAD_SAMPLES)}
        record = {"record": experts, "chosen": each.astype(np.int64), "excess": each, "compared": each}
        super().__init__(slots, {**counts, **amounts, **own, **control, **asked, **record})

    @property
    def now(self) -> PlanArrays:
        """The arrays, not copies; others once there are more slots."""
        return self.arrays(PlanArrays)

    def chosen_request(self, slots: IntArray) -> FloatArray:
        """float64 (m, resources): request of the chosen expert, in floors."""
        return self._of_chosen(self.now.asked, slots)

    def chosen_correction(self, slots: IntArray) -> FloatArray:
        """float64 (m, resources): correction of the chosen expert, a logarithm."""
        return self._of_chosen(self.now.correction, slots)

    def _of_chosen(self, of_experts: FloatArray, slots: IntArray) -> FloatArray:
        resources = np.arange(of_experts.shape[-1])
        chosen: FloatArray = of_experts[slots[:, np.newaxis], self.now.chosen[slots], resources]
        return chosen


class PhasePlan:
    """The plan of many containers by a forecast and prices, both of which may be replaced at any time."""

    def __init__(self, state: PlanState, expected: Expected, weights: Weights) -> None:
        self.state, self.expected, self.weights = state, expected, weights
        self._floors = FLOORS[: state.now.total.shape[1]]

    def observe(self, slots: IntArray, usage: FloatArray, phases: IntArray, followed: BoolArray) -> None:
        """Add a sample of each container, float64 (m, resources), its phase, and whether the plan decided on it.

        A negative phase means unknown.
        """
        amounts = usage / self._floors
        kernel.observe_each(slots, amounts, phases, followed, self.state.now, self.expected, self.weights)

    def correct(self, slots: IntArray, usage: FloatArray, in_force: FloatArray) -> None:
        """Correct by the latest sample of each and what was in force, float64 (m, resources), or NaN if unknown."""
        kernel.update_corrections(slots, usage / self._floors, in_force / self._floors, self.weights, self.state.now)

    def decide(self, slots: IntArray, tables: IntArray) -> FloatArray:
        """The requests, float64 (m, resources) cores and bytes, by the occupancy table of each; all had a sample."""
        kernel.decide_each(slots, tables, self.state.now, self.expected, self.weights)
        asked: FloatArray = self.state.chosen_request(slots) * self._floors
        return asked

    def follow(self, slot: int, usage: FloatArray, phases: IntArray, decisions: BoolArray, lead: int = 0) -> FloatArray:
        """Replay one container: the request before each sample and after the last; NaN before the first decision.

        `usage`, `phases`: float64 (n, resources), NaN in gaps, and int64 (n,).
        `decisions`: bool (n + 1,): before which samples to decide, `lead` samples before it is in force.
        """
        asked = np.empty((len(usage) + 1, len(self._floors)))
        kernel.replay_run(
            slot, SHARED_TABLE, usage / self._floors, phases, decisions, lead,
            self.state.now, self.expected, self.weights, asked,
        )  # fmt: skip
        asked *= self._floors
        return asked
