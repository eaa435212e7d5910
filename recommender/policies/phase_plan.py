"""The plan: phases and their graph say what comes, each container's own violations hold what is promised.

Nothing happens on a cycle: with each sample the cheapest allocation for the coming time can be computed, and what was
asked for changes when that saves more than a resize costs and the budget of resizes allows it.
"""

from __future__ import annotations

import numpy as np

from recommender.kernels.phase_plan import BLOCKS, EXPERTS, LATE, LONG_WINDOW, Expected, PlanArrays, Weights
from recommender.kernels.plan_steps import (
    GAIN,
    MARGIN,
    MOST_SAVED,
    SHORT_WINDOW_SAMPLES,
    decide_each,
    follow_run,
    hold_each,
    observe_each,
)
from recommender.policies.phase_demand import FLOORS
from recommender.records import RESOURCES, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays

SHARED_TABLE = 0
"""The table of containers of no class, and of a class beyond the number that have one of their own."""

RESIZE = 0.1
"""Price of a resize, as a share of the new allocation."""


def weights_of(
    price: FloatArray, target: tuple[float, float], changes_per_sample: float, resize: float = RESIZE
) -> Weights:
    """What the plan weighs, see `Weights`."""
    return Weights(price, np.array(target), resize, changes_per_sample, VIOLATION_TOLERANCE)


class PlanState(SlotArrays):
    """Where containers stand with the plan, see `PlanArrays`.

    Parameters
    ----------
    phases
        How many there are, with the unknown one.
    slots
        For how many there is room to begin with.
    resources
        How many are decided: two, or CPU alone.
    """

    phase: IntArray
    before: IntArray
    dwell: IntArray
    samples: IntArray
    total: FloatArray
    recent: FloatArray
    peaks: FloatArray
    own_sum: FloatArray
    own_samples: FloatArray
    asked: FloatArray
    correction: FloatArray
    gain: FloatArray
    streak: FloatArray
    budget: FloatArray
    lately: FloatArray
    record: FloatArray
    chosen: IntArray

    def __init__(self, phases: int, slots: int = 0, resources: int = len(RESOURCES)) -> None:
        counts = dict.fromkeys(("phase", "before", "dwell", "samples"), 0)
        each, experts = np.zeros(resources), np.zeros((EXPERTS, resources))
        correction = experts.copy()
        correction[LONG_WINDOW] = np.log1p(MARGIN)
        amounts = {
            "total": each,
            "recent": np.zeros((SHORT_WINDOW_SAMPLES, resources)),
            "peaks": np.zeros((BLOCKS, resources)),
        }
        own = {"own_sum": np.zeros((resources, phases)), "own_samples": np.zeros(phases)}
        held = {"correction": correction, "gain": experts + GAIN, "streak": experts, "budget": experts + MOST_SAVED}
        asked = {"asked": experts + np.nan, "lately": np.full((LATE, EXPERTS, resources), np.nan)}
        record = {"record": experts, "chosen": each.astype(np.int64)}
        super().__init__({**counts, **amounts, **own, **held, **asked, **record}, slots)

    @property
    def standing(self) -> PlanArrays:
        """The arrays: not copies."""
        return self.arrays(PlanArrays)

    def chosen_request(self, slots: IntArray) -> FloatArray:
        """float64 (m, resources): what is asked for by whoever has the say, in floors."""
        return self._of_chosen(self.asked, slots)

    def chosen_correction(self, slots: IntArray) -> FloatArray:
        """float64 (m, resources): the correction of whoever has the say."""
        return self._of_chosen(self.correction, slots)

    def _of_chosen(self, of_experts: FloatArray, slots: IntArray) -> FloatArray:
        resources = np.arange(of_experts.shape[-1])
        found: FloatArray = of_experts[slots[:, np.newaxis], self.chosen[slots], resources]
        return found


class PhasePlan:
    """The plan of many containers.

    Parameters
    ----------
    state
        Where they stand.
    expected, weights
        What was learned, and what is weighed; both may be replaced at any time.
    """

    def __init__(self, state: PlanState, expected: Expected, weights: Weights) -> None:
        self.state, self.expected, self.weights = state, expected, weights
        self._floors = FLOORS[: state.total.shape[1]]

    def observe(self, slots: IntArray, usage: FloatArray, phases: IntArray) -> None:
        """Take in a sample of each container, float64 (m, resources), and its phase; a negative one is unknown."""
        observe_each(slots, usage / self._floors, phases, self.state.standing, self.expected, self.weights)

    def correct(self, slots: IntArray, usage: FloatArray, in_force: FloatArray) -> None:
        """Judge the latest sample of each by what was in force, both float64 (m, resources); NaN where nobody knows."""
        hold_each(slots, usage / self._floors, in_force / self._floors, self.weights, self.state.standing)

    def decide(self, slots: IntArray, tables: IntArray) -> FloatArray:
        """What to ask for, float64 (m, resources) cores and bytes; each container was seen at least once.

        Parameters
        ----------
        tables
            int64 (m,): which table of occupancy each goes by.
        """
        decide_each(slots, tables, self.state.standing, self.expected, self.weights)
        asked: FloatArray = self.state.chosen_request(slots) * self._floors
        return asked

    def follow(self, slot: int, usage: FloatArray, phases: IntArray, decisions: BoolArray, late: int = 0) -> FloatArray:
        """Take in the samples of one container and decide where told.

        Parameters
        ----------
        usage, phases
            float64 (n, resources), NaN in gaps, and int64 (n,).
        decisions
            bool (n + 1,): before which samples to decide; the last is after all of them.
        late
            Samples from a decision until it is in force.

        Returns
        -------
        float64 (n + 1, resources)
            What stands asked for before each sample; NaN before the first decision.
        """
        asked = np.empty((len(usage) + 1, len(self._floors)))
        follow_run(
            slot, SHARED_TABLE, usage / self._floors, phases, decisions, late,
            self.state.standing, self.expected, self.weights, asked,
        )  # fmt: skip
        asked *= self._floors
        return asked
