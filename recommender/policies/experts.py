"""Experts on the CPU of many containers, of which the cheapest decides for each; see `kernels.experts`.

There is no cycle: what each asks for is computed with each sample, and a request changes when that is worth it and the
budget of changes allows it.
"""

from __future__ import annotations

import numpy as np

from recommender.base.records import VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.base.slots import SlotArrays
from recommender.kernels import experts as kernel
from recommender.kernels.coming_demand import Expected, Visits
from recommender.kernels.experts import EXPERTS, LEAD_SAMPLES, REQUEST, ExpertArrays, Weights
from recommender.policies.phase_demand import FLOOR_CORES

SHARED_TABLE = 0  # occupancy table of containers whose class has none of its own, or that have no class
ALL_EXPERTS = np.ones(EXPERTS, bool)
RESIZE_PRICE = 0.1  # price of a change, as a share of the new amount


def weights_of(target_violation: float, changes_per_hour: float, step_s: float, mean: float) -> Weights:
    """The `Weights` of the objective, for samples every `step_s`; `mean` use in floors."""
    changes_per_sample = changes_per_hour * step_s / 3600.0
    return Weights(target_violation, RESIZE_PRICE, changes_per_sample, changes_per_hour, VIOLATION_TOLERANCE, mean)


class ExpertState(SlotArrays):
    """State of the experts, see `ExpertArrays` and `Visits`; `phases` include the unknown one."""

    def __init__(self, phases: int, slots: int = 0) -> None:
        each = np.zeros(EXPERTS)
        visits = dict.fromkeys(("phase", "before", "dwell"), 0)
        own = dict.fromkeys(("own_sum", "own_samples"), np.zeros(phases))
        use = {"samples": 0, "total": 0.0, "recent": np.zeros(kernel.WINDOW_SAMPLES), "peaks": np.zeros(kernel.BLOCKS)}
        asked = {"asked": np.full(EXPERTS + 1, np.nan), "lately": np.full((LEAD_SAMPLES, EXPERTS + 1), np.nan)}
        losses = dict.fromkeys(("record", "prior", "losses", "charged"), each)
        control = {"budget": np.zeros(EXPERTS + 1), "price_factor": 1.0, "chosen": 0}
        super().__init__(slots, {**visits, **own, **use, **asked, **losses, **control})

    @property
    def now(self) -> ExpertArrays:
        """The arrays, not copies; others once there are more slots."""
        return self.arrays(ExpertArrays)

    @property
    def visits(self) -> Visits:
        return self.arrays(Visits)


class Experts:
    """The experts of many containers under a forecast and an objective, both of which may be replaced at any time."""

    def __init__(self, state: ExpertState, expected: Expected, weights: Weights) -> None:
        self.state, self.expected, self.weights = state, expected, weights

    def observe(self, slots: IntArray, cpu_cores: FloatArray, phases: IntArray) -> None:
        """Add a sample of each container, float64 (m,), and its phase; a negative one means unknown."""
        state = self.state
        kernel.observe_each(slots, cpu_cores / FLOOR_CORES, phases, state.now, state.visits, self.weights)

    def judge(
        self, slots: IntArray, cpu_cores: FloatArray, in_force_cores: FloatArray, targets: FloatArray | None = None
    ) -> None:
        """Judge the latest sample of each by what was in force, float64 (m,), or NaN if unknown.

        `targets`, float64 (m,): the share of its samples that may violate, by default the objective's.
        """
        targets = np.full(len(slots), self.weights.target) if targets is None else targets
        used, in_force = cpu_cores / FLOOR_CORES, in_force_cores / FLOOR_CORES
        kernel.judge_each(slots, used, in_force, targets, self.state.now, self.weights)

    def decide(
        self, slots: IntArray, tables: IntArray, sampled: BoolArray, told_cores: FloatArray, allowed: BoolArray
    ) -> FloatArray:
        """Requests, float64 (m,) cores or NaN before the first; see `kernels.experts.decide_each`."""
        state, told = self.state, told_cores / FLOOR_CORES
        kernel.decide_each(slots, tables, sampled, told, allowed, state.now, state.visits, self.expected, self.weights)
        requests: FloatArray = state.now.asked[slots, REQUEST] * FLOOR_CORES
        return requests

    def replay(self, slot: int, cpu_cores: FloatArray, phases: IntArray, decides: BoolArray) -> FloatArray:
        """Replay a container: cores in force at each sample, float64 (n,); see `kernels.experts.replay_run`."""
        state, requested = self.state, np.empty(len(cpu_cores))
        kernel.replay_run(
            slot, SHARED_TABLE, cpu_cores / FLOOR_CORES, phases, decides,
            state.now, state.visits, self.expected, self.weights, requested,
        )  # fmt: skip
        requested *= FLOOR_CORES
        return requested
