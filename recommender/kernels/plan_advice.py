"""Who decides for a container: the plan, or a rule that follows its own use, by what each would have cost it.

Prediction with expert advice (Cesa-Bianchi and Lugosi, 2006): both decide for each sample, what they had decided is
priced by what came, and the cheaper record has the say. So no container is much dearer than under the rule, whatever
world the plan was learned in.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.guarantee import held
from recommender.kernels.phase_plan import may_change, price_of_violation
from recommender.kernels.plan_arrays import EXPERTS, LATE, PLAN, RULE, Expected, PlanArrays, Weights

FOLLOWED = 10
"""The rule asks for the largest of so many samples."""

OFF = 0.15
"""The rule changes what it asks for when that is off by this share."""

FORGETS = 0.998
"""Of its record, an expert keeps this share from sample to sample."""

RECORDED = 2.0
"""A violation counts so many times its price in the record: the plan is corrected for its own, the rule is new."""


@njit(cache=True, nogil=True)
def largest_lately(k: int, resource: int, standing: PlanArrays, weights: Weights) -> float:
    """What the rule asks for, in floors; what it asked for last while that is near enough."""
    largest = 0.0
    for place in range(min(standing.samples[k], FOLLOWED)):
        largest = max(largest, standing.recent[k, place, resource])
    wanted = max(largest * math.exp(standing.correction[k, RULE, resource]), 1.0)
    asked = standing.asked[k, RULE, resource]
    if math.isnan(asked):
        return wanted
    return wanted if abs(wanted - asked) > OFF * asked and may_change(k, RULE, resource, standing) else asked


@njit(cache=True, nogil=True)
def hold_expert(
    k: int, expert: int, resource: int, amount: float, in_force: float, decided: bool, weights: Weights,
    standing: PlanArrays,
) -> None:  # fmt: skip
    """Judge a sample by what was in force for it, both in floors.

    Parameters
    ----------
    decided
        Whether there was a decision since the sample before: without one, more correction could not have helped.
    """
    violated = amount > in_force * weights.tolerance
    short = decided and amount > standing.asked[k, expert, resource] * weights.tolerance
    correction, gain, streak = held(
        standing.correction[k, expert, resource],
        standing.gain[k, expert, resource],
        standing.streak[k, expert, resource],
        violated,
        short,
        weights.target[resource],
    )
    standing.correction[k, expert, resource], standing.gain[k, expert, resource] = correction, gain
    standing.streak[k, expert, resource] = streak


@njit(cache=True, nogil=True)
def keep_record(
    k: int, amounts: NDArray[np.float64], standing: PlanArrays, expected: Expected, weights: Weights
) -> None:  # fmt: skip
    """Price what each expert had decided for a sample, float64 (2,) in floors, and hold the one that was not heard."""
    place = standing.samples[k] % LATE
    for resource in range(2):
        cost = np.zeros(EXPERTS)
        price = price_of_violation(k, resource, standing, expected, weights) if standing.samples[k] > 0 else 0.0
        for expert in range(EXPERTS):
            asked = standing.asked[k, expert, resource]
            in_force = standing.lately[k, place, expert, resource]
            standing.lately[k, place, expert, resource] = asked
            if math.isnan(in_force):
                continue
            cost[expert] = in_force
            if amounts[resource] > in_force * weights.tolerance:
                cost[expert] += RECORDED * price
            if expert != standing.chosen[k, resource]:
                hold_expert(k, expert, resource, amounts[resource], in_force, True, weights, standing)
        standing.dearer[k, resource] = FORGETS * standing.dearer[k, resource] + cost[PLAN] - cost[RULE]


@njit(cache=True, nogil=True)
def choose(k: int, resource: int, credit: float, standing: PlanArrays, weights: Weights) -> None:
    """Let the rule have the say once its record is plainly cheaper, and the plan again once that is no longer so."""
    asked, dearer = standing.asked[k], standing.dearer[k, resource]
    if dearer > (credit + weights.resize) * asked[PLAN, resource]:
        standing.chosen[k, resource] = RULE
    elif dearer < -weights.resize * asked[RULE, resource]:
        standing.chosen[k, resource] = PLAN
