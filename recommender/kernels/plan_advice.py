"""Who decides for a container: the plan, or a rule that follows its own use, by what each would have cost it.

Prediction with expert advice (Cesa-Bianchi and Lugosi, 2006): all decide for each sample, what they had decided is
priced by what came, and the cheapest record has the say. So no container is much dearer than under the better of two
rules, whatever world the plan was learned in; and before there is a record, whoever asks for most is heard.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.guarantee import held
from recommender.kernels.phase_plan import level_now, price_of_violation
from recommender.kernels.plan_arrays import BLOCKS, EXPERTS, LATE, LATEST, PLAN, Expected, PlanArrays, Weights

FOLLOWED = 10
"""One rule asks for the largest of so many samples, the other of as many as `BLOCKS` of them hold."""

OFF = 0.15
"""A rule changes what it asks for when that is off by this share."""

MARGIN = 0.05
"""The rule of more samples asks for so much more at first: by how much later is up to its violations."""

UNTRIED = 6
"""For so many samples of a container there is no record worth the name."""

FORGETS = 0.99
"""Of its record, an expert keeps this share from sample to sample."""

RECORDED = 3.0
"""A violation counts so many times its price in the record: the plan is corrected for its own, a rule is new."""


@njit(cache=True, nogil=True, error_model="numpy")
def largest_lately(k: int, rule: int, resource: int, standing: PlanArrays) -> float:
    """What a rule asks for, in floors; what it asked for last while that is near enough.

    It is for `may_change` to say whether a change is allowed.
    """
    recent, peaks, samples = standing.recent, standing.peaks, standing.samples[k]
    asked, correction = standing.asked[k, rule, resource], standing.correction[k, rule, resource]
    largest = 0.0
    if rule == LATEST:
        for place in range(min(samples, FOLLOWED)):
            largest = max(largest, recent[k, place, resource])
    else:
        for block in range(BLOCKS):
            largest = max(largest, peaks[k, block, resource])
    wanted = max(largest * math.exp(correction), 1.0)
    if math.isnan(asked):
        return wanted
    return wanted if abs(wanted - asked) > OFF * asked else float(asked)


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def keep_record(
    k: int, amounts: NDArray[np.float64], standing: PlanArrays, expected: Expected, weights: Weights
) -> None:  # fmt: skip
    """Price what each expert had decided for a sample, (resources,) in floors, and hold those that were not heard."""
    place = standing.samples[k] % LATE
    for resource in range(standing.total.shape[1]):
        now = level_now(k, resource, standing)
        price = price_of_violation(k, resource, now, standing, expected, weights)
        for expert in range(EXPERTS):
            asked = standing.asked[k, expert, resource]
            in_force = standing.lately[k, place, expert, resource]
            standing.lately[k, place, expert, resource] = asked
            if math.isnan(in_force):
                continue
            violated = amounts[resource] > in_force * weights.tolerance
            cost = in_force + (RECORDED * price if violated else 0.0)
            standing.record[k, expert, resource] = FORGETS * standing.record[k, expert, resource] + cost
            if expert != standing.chosen[k, resource]:
                hold_expert(k, expert, resource, amounts[resource], in_force, True, weights, standing)


@njit(cache=True, nogil=True, error_model="numpy")
def choose(k: int, resource: int, credit: float, standing: PlanArrays, weights: Weights) -> None:
    """Let another have the say once its record is plainly cheaper; the plan is given a credit, and begins."""
    asked, record = standing.asked, standing.record
    most = best = 0
    for expert in range(1, EXPERTS):
        if asked[k, expert, resource] > asked[k, most, resource]:
            most = expert
        if record[k, expert, resource] < record[k, best, resource]:
            best = expert
    if standing.samples[k] <= UNTRIED:
        standing.chosen[k, resource] = most
        return
    begins = standing.samples[k] <= 2 * UNTRIED
    now = PLAN if begins else standing.chosen[k, resource]
    worth = (weights.resize + (credit if now == PLAN else 0.0)) * asked[k, now, resource]
    dearer = record[k, now, resource] - record[k, best, resource] > worth
    standing.chosen[k, resource] = best if dearer else now
