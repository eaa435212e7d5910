"""The cheapest allocation for the coming time: cost of reservation, violations and resizes, from occupancy and demand.

Amounts are in floors (the minimum allocation). A level is ln(amount + 1): a container ten times as large as any in the
training data differs from it by an offset, an idle one by nothing.

Kernels unpack the tuples below before they branch and use NumPy's division, which has no branch that raises: Numba
counts a reference for every array of a tuple that is alive across a branch, which takes longer than the arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from recommender.kernels import FloatArray, IntArray

EXPERTS = 3
PLAN, SHORT_WINDOW, LONG_WINDOW = range(EXPERTS)
"""The experts that may decide for a container: the plan by phases, and two rules that request the peak use of a short
and of a long window of its own samples."""

EXPERIENCE = EXPERTS
"""Beside the experts: what earlier runs of its class request. Whether it decides is up to the class."""

BLOCKS = 4
"""Blocks in the long window, each as long as `PlanArrays.recent`; the peak of each is kept."""

EXPERT_LEAD_SAMPLES = 2
"""Lead time at which experts are compared: samples from a decision until it is in force."""


class Expected(NamedTuple):
    """Expected phases, and the demand for both resources in each of them.

    Demand is of three kinds (first axis): `STAYING`, later in the same visit, relative to the level now; `VISITING`, in
    the phase; `RETURNING`, in the phase, relative to the container's own mean level in it.
    """

    occupancy: FloatArray
    """float64 (tables, 1 + phases, phases, buckets, phases), see `occupancy_by_context`; one table per class."""
    above: FloatArray
    """float64 (3, 2, phases, TABLE_SIZE): share of demands above each level of the grid."""
    largest: FloatArray
    """float64 (3, 2, phases): the maximum of each."""
    mean: FloatArray
    """float64 (2,): mean use in the training data, in floors."""
    credit: FloatArray
    """float64 (tables,): saving by which a rule must beat the plan to replace it, in samples of the plan's request."""


class Weights(NamedTuple):
    """Prices and limits of the plan's objective."""

    price: FloatArray
    """float64 (2,): of being in violation all of the time, in multiples of the container's mean use."""
    target: FloatArray
    """float64 (2,): share of samples that may violate."""
    resize: float
    """Price of a resize, as a share of the new allocation."""
    changes_per_sample: float
    """Resizes added to the budget with each sample."""
    tolerance: float
    """Use above allocation x this is a violation."""


class PlanArrays(NamedTuple):
    """State of the plan per container (slot), for both resources or for CPU alone."""

    phase: IntArray
    before: IntArray
    dwell: IntArray
    """int64 (n,): current phase, the one before (0: none, else phase + 1), and samples in the current one; 0 before
    the first sample."""
    samples: IntArray
    """int64 (n,): samples so far."""
    total: FloatArray
    """float64 (n, resources): their sum, in floors."""
    recent: FloatArray
    """float64 (n, r, resources): ring buffer of the latest r samples."""
    peaks: FloatArray
    """float64 (n, BLOCKS, resources): ring buffer of the peaks of the current and the preceding blocks of r samples."""
    own_sum: FloatArray
    own_samples: FloatArray
    """float64 (n, resources, phases) and (n, phases): sum and number of the container's levels in each phase."""
    asked: FloatArray
    """float64 (n, EXPERTS + 1, resources): latest request of each expert and of `EXPERIENCE`; NaN before the first."""
    correction: FloatArray
    gain: FloatArray
    streak: FloatArray
    """float64 (n, EXPERTS, resources): see `plan_steps.updated_correction`."""
    price_factor: FloatArray
    """float64 (n, resources): factor on the price of a violation, see `plan_steps.adjust_price`."""
    budget: FloatArray
    """float64 (n, EXPERTS, resources): resizes left."""
    lately: FloatArray
    """float64 (n, EXPERT_LEAD_SAMPLES, EXPERTS + 1, resources): ring buffer of requests before the latest samples."""
    record: FloatArray
    """float64 (n, EXPERTS, resources): discounted cost of each expert so far, in floors."""
    chosen: IntArray
    """int64 (n, resources): the expert that decides."""
    excess: FloatArray
    compared: FloatArray
    """float64 (n, resources): see `plan_steps.compare_experience`, and the number of samples so compared."""


CANDIDATES = 20
TABLE_LOWEST, TABLE_STEP, TABLE_SIZE = -5.0, 0.02, 900
"""Grid of the demand tables: levels, or differences of two, 2 % apart; the highest is 440,000 floors."""

LEVEL_SAMPLES = 3
"""Samples whose mean gives the level now."""

PRIOR_SAMPLES = 3.0
"""Weight of the learned demand of a phase against a container's own samples in it, in samples."""

URGENT_STREAK = 3.0
"""Violations in a row after which a resize needs no budget."""

MIN_OCCUPANCY = 0.002
"""Phases expected for at most this share of the coming time are ignored."""

LEAST_PRICE = 2.0
"""To which calm lowers the price of a violation: near 1, it is cheapest to request less than what is used now."""

LEVEL_PRICE_SHARE = 0.5
"""A violation is priced by the container's mean use, but at least by this share of the level now."""

MIN_PROGRESS = 0.02
"""Proving that no resize pays is given up once a step narrows the range by less than this share."""

ROUNDING_TOLERANCE = 1e-9
"""Sums that differ by less are equal but for the order of addition."""

SIZE_PRIOR_SAMPLES = 10.0
"""Weight of the mean use of the training data in a container's mean use, in samples."""


STAYING, VISITING, RETURNING = 0, 1, 2
"""Kinds of demand, see `Expected`."""


class Demands(NamedTuple):
    """Demand of one container for one resource in the coming time: a mixture of n distributions."""

    kinds: IntArray
    phases: IntArray
    """int64 (n,): kind and phase of each."""
    shares: FloatArray
    """float64 (n,): share of the coming time."""
    offsets: FloatArray
    """float64 (n,): level to which the table is relative."""


@njit(cache=True, nogil=True, error_model="numpy")
def share_above(above: FloatArray, kind: int, resource: int, phase: int, level: float) -> float:
    """Share of demands above a level; rounded up, to the grid point at or below it."""
    place = math.floor((level - TABLE_LOWEST) / TABLE_STEP)
    if place < 0:
        return 1.0
    if place >= TABLE_SIZE:
        return 0.0
    return float(above[kind, resource, phase, place])


@njit(cache=True, nogil=True, error_model="numpy")
def level_now(k: int, resource: int, state: PlanArrays) -> float:
    """Level of the mean of the latest samples of container `k`."""
    recent, samples = state.recent, state.samples[k]
    seen = max(1, min(samples, LEVEL_SAMPLES))
    total = 0.0
    for back in range(1, seen + 1):
        total += recent[k, (samples - back) % recent.shape[1], resource]
    return math.log(total / seen + 1.0)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def mean_use(k: int, resource: int, state: PlanArrays, expected: Expected) -> float:
    """Mean use of a container, in floors, shrunk towards that of the training data."""
    total, samples = state.total[k, resource] + SIZE_PRIOR_SAMPLES * expected.mean[resource], state.samples[k]
    return float(total / (samples + SIZE_PRIOR_SAMPLES))


@njit(cache=True, nogil=True, error_model="numpy")
def price_of_violation(
    k: int, resource: int, now: float, state: PlanArrays, expected: Expected, weights: Weights
) -> float:  # fmt: skip
    """Cost, in floors, of being in violation all of the time for a container at level `now`.

    The learned price holds for all containers together; each raises or lowers it by its own violations.
    """
    learned = weights.price[resource]
    price = max(min(LEAST_PRICE, learned), learned * state.price_factor[k, resource])
    return float(price * max(mean_use(k, resource, state, expected), LEVEL_PRICE_SHARE * math.exp(now)))


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def occupancy_of(k: int, table: int, state: PlanArrays, expected: Expected) -> FloatArray:
    """float64 (phases,): expected share of the coming time in each phase, by the container's context."""
    buckets = expected.occupancy.shape[3]
    bucket = min(int(math.log2(state.dwell[k])), buckets - 1)
    occupancy: FloatArray = expected.occupancy[table, state.before[k], state.phase[k], bucket]
    return occupancy


@njit(cache=True, nogil=True, error_model="numpy")
def coming_demands(k: int, resource: int, now: float, occupancy: FloatArray, state: PlanArrays) -> Demands:
    """Demand of container `k`, at level `now`, in the coming time; computed once for all candidate allocations."""
    present, own_samples, own_sum = state.phase[k], state.own_samples[k], state.own_sum[k, resource]
    kinds, phases = np.empty(2 * len(occupancy), np.int64), np.empty(2 * len(occupancy), np.int64)
    shares, offsets = np.empty(2 * len(occupancy)), np.zeros(2 * len(occupancy))
    n = 0
    for phase in range(len(occupancy)):
        if occupancy[phase] <= MIN_OCCUPANCY:
            continue
        if phase == present:
            kinds[n], phases[n], shares[n], offsets[n] = STAYING, phase, occupancy[phase], now
            n += 1
            continue
        samples = own_samples[phase]
        own = samples / (samples + PRIOR_SAMPLES)
        kinds[n], phases[n], shares[n] = VISITING, phase, occupancy[phase] * (1.0 - own)
        n += 1
        if samples > 0.0:
            kinds[n], phases[n], shares[n] = RETURNING, phase, occupancy[phase] * own
            offsets[n] = own_sum[phase] / samples
            n += 1
    return Demands(kinds[:n], phases[:n], shares[:n], offsets[:n])


@njit(cache=True, nogil=True, error_model="numpy")
def highest_demand(resource: int, demands: Demands, expected: Expected) -> float:
    """Highest level that may be demanded."""
    kinds, phases, offsets, largest = demands.kinds, demands.phases, demands.offsets, expected.largest
    high = -math.inf
    for n in range(len(kinds)):
        high = max(high, offsets[n] + largest[kinds[n], resource, phases[n]])
    return high


@njit(cache=True, nogil=True, error_model="numpy")
def time_above(resource: int, level: float, demands: Demands, expected: Expected) -> float:
    """Expected share of the coming time in which the demand for a resource is above `level`."""
    kinds, phases, shares, offsets = demands
    above, share = expected.above, 0.0
    for n in range(len(kinds)):
        share += shares[n] * share_above(above, kinds[n], resource, phases[n], level - offsets[n])
    return share


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def resize_allowed(k: int, expert: int, resource: int, state: PlanArrays) -> bool:
    """Whether the budget has a resize left, or the violations are too urgent to wait for one."""
    budget, streak = state.budget[k, expert, resource], state.streak[k, expert, resource]
    return bool(budget >= 1.0 or streak >= URGENT_STREAK)


@njit(cache=True, nogil=True, error_model="numpy")
def no_resize_pays(
    asked: float, lowest: float, resource: int, price: float, correction: float, demands: Demands, expected: Expected,
    weights: Weights,
) -> bool:  # fmt: skip
    """Whether no amount from `lowest` floors on is so much cheaper than the current request that a resize pays.

    Violations only fall as the allocation grows. So the cost of violations at one amount is a lower bound for all
    amounts below it, and rules out those that do not save at least as much; from the largest amount not ruled out the
    next bound is computed, first above the current request, then below it. False where that stalls: not proven.
    """
    resize_factor = 1.0 + weights.resize - ROUNDING_TOLERANCE
    current = asked + price * violation_share(resource, asked, correction, demands, expected, weights)
    for upper, lower in ((current / resize_factor, asked), (asked / resize_factor, lowest)):
        amount = upper
        while amount > lower:
            violations = price * violation_share(resource, amount, correction, demands, expected, weights)
            remaining = (current - violations) / resize_factor
            if remaining >= amount - MIN_PROGRESS * abs(amount):
                return False
            amount = remaining
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def violation_share(
    resource: int, amount: float, correction: float, demands: Demands, expected: Expected, weights: Weights
) -> float:
    """Expected share of the coming time in violation under an allocation, in floors."""
    return time_above(resource, math.log1p(max(amount, 0.0) * weights.tolerance) - correction, demands, expected)


@njit(cache=True, nogil=True, error_model="numpy")
def cheapest_allocation(
    k: int, resource: int, table: int, state: PlanArrays, expected: Expected, weights: Weights
) -> float:
    """The cheapest allocation for the coming time, in floors; the current request where a resize does not pay.

    Whether a resize is allowed is decided by `resize_allowed`.
    """
    asked, correction = state.asked[k, PLAN, resource], state.correction[k, PLAN, resource]
    now, occupancy = level_now(k, resource, state), occupancy_of(k, table, state, expected)
    # Demand grows with the correction itself: the price must outgrow it, or the cheapest allocation stays as short.
    price = price_of_violation(k, resource, now, state, expected, weights) * math.exp(2.0 * correction)
    demands = coming_demands(k, resource, now, occupancy, state)
    # The level now and the maximum of each expected phase bound the allocations that can pay.
    low = max(min(now, 0.0), now - 1.0)
    high = max(now + expected.largest[STAYING, resource, state.phase[k]], highest_demand(resource, demands, expected))
    high += correction
    best, least = 0.0, math.inf
    lowest = math.expm1(low - (high - low) / (CANDIDATES - 1))
    if not math.isnan(asked) and no_resize_pays(
        asked, lowest, resource, price, correction, demands, expected, weights
    ):  # the usual case
        return float(asked)
    # A grid over the whole range, then a finer one around the best candidate.
    for _ in range(2):
        step = (high - low) / (CANDIDATES - 1)
        for candidate in range(CANDIDATES):
            level = low + step * candidate
            amount = math.expm1(level)
            if amount >= least:
                break  # from here on the reservation alone costs as much
            cost = amount + price * violation_share(resource, amount, correction, demands, expected, weights)
            if cost < least:
                best, least = level, cost
        low, high = best - step, best + step
    best = max(math.expm1(best), 1.0)
    if math.isnan(asked):
        return best
    current = asked + price * violation_share(resource, asked, correction, demands, expected, weights)
    return best if current - least > weights.resize * best else float(asked)
