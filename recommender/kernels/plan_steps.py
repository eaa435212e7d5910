"""One step of the plan per sample: update the state, score the experts, choose one, and decide.

Prediction with expert advice (Cesa-Bianchi and Lugosi, 2006): every expert decides for each sample, its decision is
charged with what followed, and the expert with the lowest discounted cost is chosen. So no container costs much more
than under the better of the two rules, whatever data the plan was trained on. During warm-up the largest request wins.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from recommender.kernels import BoolArray, FloatArray, IntArray
from recommender.kernels.phase_plan import (
    BLOCKS,
    EXPERIENCE,
    EXPERT_LEAD_SAMPLES,
    EXPERTS,
    PLAN,
    SHORT_WINDOW,
    Expected,
    PlanArrays,
    Weights,
    cheapest_allocation,
    level_now,
    mean_use,
    price_of_violation,
    resize_allowed,
)

SHORT_WINDOW_SAMPLES = 10
"""Window of the short rule; that of the long rule is `BLOCKS` times as long."""

DEADBAND = 0.15
"""A rule keeps its request while the peak differs from it by no more than this share."""

LONG_WINDOW_MARGIN = 0.05
"""Initial margin of the long rule; its own violations correct it later."""

WARM_UP_SAMPLES = 6
"""Samples of a container before the costs of its experts are worth comparing."""

DISCOUNT = 0.99
"""Per sample, of the cost of an expert."""

VIOLATION_FACTOR = 3.0
"""Multiple of its price that an expert is charged for a violation."""

GAIN, PATIENCE, GAIN_DECAY = 0.02, 5.0, 0.98
"""Least gain of the correction; violations in a row after which each doubles it; and its decay per sample without."""

PRICE_GAIN, MAX_PRICE_FACTOR = 0.05, math.e
"""Gain of a container's own factor on the price of a violation; its upper bound, and the inverse of the lower one."""

MAX_BUDGET = 2.0
"""Resizes that can be saved up."""

DECIDED: Any = np.bool_(True)
FOLLOWED: Any = np.bool_(True)
"""That there was a decision, and that the plan is followed; no literals, for which Numba would compile once more."""


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def updated_correction(
    correction: float, gain: float, streak: float, violated: bool, short: bool, target: float
) -> tuple[float, float, float]:
    """The correction after one more sample, the log factor by which demand exceeds the forecast; its gain; and the
    streak, violations in a row.

    `violated`: the sample exceeded what was in force; `short`: it also exceeds the latest request. If not, the remedy
    is pending: a long streak of such violations means that nothing is applied, and more correction would not help.
    `target` is the share of samples that may violate.

    Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021, equation 2) on the logarithm of the allocation, with a
    gain that grows while it is plainly too slow. The gain is the same up and down, which is what holds the share. It
    doubles without bound, so that a container that always exceeds its allocation soon gets any factor.
    """
    if not violated:
        gain = max(GAIN, gain * GAIN_DECAY)
        return max(0.0, correction - gain * target), gain, 0.0
    streak += 1.0
    impatient = streak > PATIENCE
    if impatient and short:
        gain *= 2.0
    if short or not impatient:
        correction += gain * (1.0 - target)
    return correction, gain, streak


@njit(cache=True, nogil=True, error_model="numpy")
def rule_request(k: int, rule: int, resource: int, state: PlanArrays) -> float:
    """The request of a rule, in floors: the corrected peak of its window, or its current request within the deadband.

    Whether a resize is allowed is decided by `resize_allowed`.
    """
    recent, peaks, samples = state.recent, state.peaks, state.samples[k]
    asked, correction = state.asked[k, rule, resource], state.correction[k, rule, resource]
    peak = 0.0
    if rule == SHORT_WINDOW:
        for place in range(min(samples, SHORT_WINDOW_SAMPLES)):
            peak = max(peak, recent[k, place, resource])
    else:
        for block in range(BLOCKS):
            peak = max(peak, peaks[k, block, resource])
    wanted = max(peak * math.exp(correction), 1.0)
    if math.isnan(asked):
        return wanted
    return wanted if abs(wanted - asked) > DEADBAND * asked else float(asked)


@njit(cache=True, nogil=True, error_model="numpy")
def update_correction(
    k: int, expert: int, resource: int, amount: float, in_force: float, decided: bool, weights: Weights,
    state: PlanArrays,
) -> None:  # fmt: skip
    """Update the correction of an expert by a sample and what was in force for it, both in floors.

    `decided`: there was a decision since the previous sample; without one, more correction could not have helped.
    """
    violated = amount > in_force * weights.tolerance
    short = decided and amount > state.asked[k, expert, resource] * weights.tolerance
    correction, gain, streak = updated_correction(
        state.correction[k, expert, resource],
        state.gain[k, expert, resource],
        state.streak[k, expert, resource],
        violated,
        short,
        weights.target[resource],
    )
    state.correction[k, expert, resource], state.gain[k, expert, resource] = correction, gain
    state.streak[k, expert, resource] = streak


@njit(cache=True, nogil=True, error_model="numpy")
def adjust_price(k: int, resource: int, amount: float, in_force: float, weights: Weights, state: PlanArrays) -> None:
    """Update a container's own factor on the price of a violation by a sample and what was in force for it.

    Dual ascent (Boyd et al., Foundations and Trends in Machine Learning 3, 2011, section 2.1): the price is the
    multiplier of the constraint that a share of the samples may violate. A container with fewer violations lowers it
    and reserves less. The correction cannot do that: it is never below 0.
    """
    violated = 1.0 if amount > in_force * weights.tolerance else 0.0
    factor = state.price_factor[k, resource] * math.exp(PRICE_GAIN * (violated - weights.target[resource]))
    state.price_factor[k, resource] = min(max(factor, 1.0 / MAX_PRICE_FACTOR), MAX_PRICE_FACTOR)


@njit(cache=True, nogil=True, error_model="numpy")
def score_experts(
    k: int, amounts: FloatArray, followed: bool, state: PlanArrays, expected: Expected, weights: Weights
) -> None:
    """Charge each expert for its decision on a sample, (resources,) in floors, and correct those not in force: all but
    the chosen one, or all of them if the plan is not followed."""
    place = state.samples[k] % EXPERT_LEAD_SAMPLES
    for resource in range(state.total.shape[1]):
        now = level_now(k, resource, state)
        price = price_of_violation(k, resource, now, state, expected, weights)
        for expert in range(EXPERTS):
            asked = state.asked[k, expert, resource]
            in_force = state.lately[k, place, expert, resource]
            state.lately[k, place, expert, resource] = asked
            if math.isnan(in_force):
                continue
            violated = amounts[resource] > in_force * weights.tolerance
            cost = in_force + (VIOLATION_FACTOR * price if violated else 0.0)
            state.record[k, expert, resource] = DISCOUNT * state.record[k, expert, resource] + cost
            if expert != state.chosen[k, resource] or not followed:
                update_correction(k, expert, resource, amounts[resource], in_force, DECIDED, weights, state)


@njit(cache=True, nogil=True, error_model="numpy")
def compare_experience(k: int, amounts: FloatArray, state: PlanArrays, expected: Expected, weights: Weights) -> None:
    """Charge earlier runs with what they would have cost more, for a sample, than the chosen expert.

    The excess is in samples of the container's mean use, so that containers of all sizes count alike. `decide_each`
    charges the chosen expert for its resizes.
    """
    place = state.samples[k] % EXPERT_LEAD_SAMPLES
    for resource in range(state.total.shape[1]):
        asked, before = state.asked[k, EXPERIENCE, resource], state.lately[k, place, EXPERIENCE, resource]
        planned = state.lately[k, place, state.chosen[k, resource], resource]
        last = state.lately[k, (place + EXPERT_LEAD_SAMPLES - 1) % EXPERT_LEAD_SAMPLES, EXPERIENCE, resource]
        state.lately[k, place, EXPERIENCE, resource] = asked
        if math.isnan(before) or math.isnan(planned):
            continue
        resize = weights.resize * asked if asked != last and not math.isnan(asked) else 0.0
        amount, now = amounts[resource], level_now(k, resource, state)
        price = VIOLATION_FACTOR * price_of_violation(k, resource, now, state, expected, weights)
        cost = before + resize + (price if amount > before * weights.tolerance else 0.0)
        planned_cost = planned + (price if amount > planned * weights.tolerance else 0.0)
        state.excess[k, resource] += (cost - planned_cost) / mean_use(k, resource, state, expected)
        state.compared[k, resource] += 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def choose_expert(k: int, resource: int, credit: float, state: PlanArrays, weights: Weights) -> None:
    """Switch to the cheapest expert once it is ahead by a resize; the plan comes first and also has a credit."""
    asked, cost = state.asked, state.record
    largest = cheapest = 0
    for expert in range(1, EXPERTS):
        if asked[k, expert, resource] > asked[k, largest, resource]:
            largest = expert
        if cost[k, expert, resource] < cost[k, cheapest, resource]:
            cheapest = expert
    if state.samples[k] <= WARM_UP_SAMPLES:
        state.chosen[k, resource] = largest
        return
    incumbent = PLAN if state.samples[k] <= 2 * WARM_UP_SAMPLES else state.chosen[k, resource]
    threshold = (weights.resize + (credit if incumbent == PLAN else 0.0)) * asked[k, incumbent, resource]
    switches = cost[k, incumbent, resource] - cost[k, cheapest, resource] > threshold
    state.chosen[k, resource] = cheapest if switches else incumbent


@njit(cache=True, nogil=True, error_model="numpy")
def observe_sample(k: int, amounts: FloatArray, phase: int, changes_per_sample: float, state: PlanArrays) -> None:
    """Add a sample of a container, float64 (resources,) in floors, and its phase; negative means unknown, the last."""
    phases = state.own_samples.shape[1]
    now = phase if phase >= 0 else phases - 1
    if state.dwell[k] == 0 or now != state.phase[k]:
        state.before[k] = state.phase[k] + 1 if state.dwell[k] > 0 else 0
        state.phase[k], state.dwell[k] = now, 0
    state.dwell[k] += 1
    in_block = state.recent.shape[1]
    place, block = state.samples[k] % in_block, state.samples[k] // in_block % BLOCKS
    state.samples[k] += 1
    state.own_samples[k, now] += 1.0
    for resource in range(state.total.shape[1]):
        state.recent[k, place, resource] = amounts[resource]
        peak = state.peaks[k, block, resource] if place > 0 else 0.0
        state.peaks[k, block, resource] = max(peak, amounts[resource])
        state.total[k, resource] += amounts[resource]
        state.own_sum[k, resource, now] += math.log(amounts[resource] + 1.0)
        for expert in range(EXPERTS):
            budget = state.budget[k, expert, resource] + changes_per_sample
            state.budget[k, expert, resource] = min(budget, MAX_BUDGET)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def chosen_request(k: int, resource: int, state: PlanArrays) -> float:
    """Request of the chosen expert, in floors."""
    return float(state.asked[k, state.chosen[k, resource], resource])


@njit(cache=True, nogil=True, error_model="numpy")
def decide(k: int, table: int, state: PlanArrays, expected: Expected, weights: Weights) -> None:
    """Update the request of each expert."""
    for resource in range(state.total.shape[1]):
        for expert in range(EXPERTS):
            before = state.asked[k, expert, resource]
            if not math.isnan(before) and not resize_allowed(k, expert, resource, state):
                continue
            if expert == PLAN:
                asked = cheapest_allocation(k, resource, table, state, expected, weights)
            else:
                asked = rule_request(k, expert, resource, state)
            if not math.isnan(before) and asked != before:
                state.budget[k, expert, resource] = max(state.budget[k, expert, resource] - 1.0, 0.0)
                state.record[k, expert, resource] += weights.resize * asked
            state.asked[k, expert, resource] = asked


@njit(cache=True, nogil=True, error_model="numpy")
def observe_each(
    slots: IntArray, amounts: FloatArray, phases: IntArray, followed: BoolArray, state: PlanArrays, expected: Expected,
    weights: Weights,
) -> None:  # fmt: skip
    """Add a sample of each of these containers, int64 (m,), each at most once; `followed`: the plan decided before."""
    for row in range(len(slots)):
        compare_experience(slots[row], amounts[row], state, expected, weights)
        score_experts(slots[row], amounts[row], followed[row], state, expected, weights)
        observe_sample(slots[row], amounts[row], phases[row], weights.changes_per_sample, state)


@njit(cache=True, nogil=True, error_model="numpy")
def update_corrections(
    slots: IntArray, amounts: FloatArray, in_force: FloatArray, weights: Weights, state: PlanArrays
) -> None:
    """Correct the chosen experts by the latest samples and allocations in force, (m, resources) in floors or NaN."""
    for row in range(len(slots)):
        for resource in range(state.total.shape[1]):
            if not math.isnan(in_force[row, resource]):
                amount, allocated = amounts[row, resource], in_force[row, resource]
                chosen = state.chosen[slots[row], resource]
                update_correction(slots[row], chosen, resource, amount, allocated, DECIDED, weights, state)
                adjust_price(slots[row], resource, amount, allocated, weights, state)


@njit(cache=True, nogil=True, error_model="numpy")
def decide_each(slots: IntArray, tables: IntArray, state: PlanArrays, expected: Expected, weights: Weights) -> None:
    """Decide for each of these containers, int64 (m,), by the occupancy table of its class."""
    resources = state.total.shape[1]
    before = np.empty(resources)
    for row in range(len(slots)):
        k = slots[row]
        for resource in range(resources):
            before[resource] = chosen_request(k, resource, state)
        decide(k, tables[row], state, expected, weights)
        for resource in range(resources):
            choose_expert(k, resource, expected.credit[tables[row]], state, weights)
            compared = not math.isnan(state.asked[k, EXPERIENCE, resource])
            if compared and chosen_request(k, resource, state) != before[resource]:
                cost = weights.resize * chosen_request(k, resource, state)
                state.excess[k, resource] -= cost / mean_use(k, resource, state, expected)


@njit(cache=True, nogil=True, error_model="numpy")
def replay_run(
    k: int, table: int, amounts: FloatArray, phases: IntArray, decisions: BoolArray, lead: int, state: PlanArrays,
    expected: Expected, weights: Weights, asked: FloatArray,
) -> None:  # fmt: skip
    """Replay the samples of one container, float64 (n, resources) in floors, NaN in gaps, and decide before some.

    `decisions`, bool (n + 1,), are the samples to decide before; the last is after all of them. A decision is in force
    `lead` samples later, and until then what was requested before the first sample; with 0 the plan alone decides.
    `table` is an argument, since Numba would compile once more for a constant. `asked` is OUT float64 (n + 1,
    resources): request before each sample, in floors.
    """
    n, resources = amounts.shape
    first = np.empty(resources)
    for resource in range(resources):
        first[resource] = chosen_request(k, resource, state)
    for row in range(n + 1):
        if decisions[row] and state.samples[k] > 0:
            decide(k, table, state, expected, weights)
        for resource in range(resources):
            if lead > 0 and decisions[row] and state.samples[k] > 0:
                choose_expert(k, resource, expected.credit[table], state, weights)
            asked[row, resource] = chosen_request(k, resource, state)
        if row == n or math.isnan(amounts[row, 0]):
            continue
        for resource in range(resources):
            in_force = asked[row - lead, resource] if row >= lead else first[resource]
            if not math.isnan(in_force):
                chosen, amount = state.chosen[k, resource], amounts[row, resource]
                update_correction(k, chosen, resource, amount, in_force, decisions[row], weights, state)
                if lead > 0:  # once a cycle, a whole cycle of violations would be one mistake
                    adjust_price(k, resource, amount, in_force, weights, state)
        if lead > 0:
            score_experts(k, amounts[row], FOLLOWED, state, expected, weights)
        observe_sample(k, amounts[row], phases[row], weights.changes_per_sample, state)
