"""The cheapest allocation for the coming time: reserved, shortage and resizes, from occupancy and demand.

Amounts are in floors (the least that is ever allocated), and levels are the natural logarithm of an amount plus one: a
container ten times as large as any seen differs from it by an offset, and an idle one by nothing.

Kernels read what they need of the tuples below before they branch, and divide by NumPy's rules, which have no branch
that raises: Numba counts a reference to every array of a tuple that lives on behind a branch, which takes longer than
the arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

EXPERTS = 3
PLAN, SHORT_WINDOW, LONG_WINDOW = range(EXPERTS)
"""Who may decide for a container: the plan by phases, and two rules that follow its own use, of its latest samples and
of more of them."""

BLOCKS = 4
"""Of samples, as long as `PlanArrays.recent`: the largest of each is kept."""

LATE = 2
"""Samples from a decision until it is in force, where experts are compared."""


class Expected(NamedTuple):
    """What phases are expected, and what each needs of the two resources.

    Attributes
    ----------
    occupancy
        float64 (tables, 1 + phases, phases, buckets, phases), see `occupancy_by_context`; one table for each class.
    staying
        float64 (2, phases, STEPS): share of uses later in the same visit that are above the level now by a difference.
    visiting
        float64 (2, phases, STEPS): share of uses in the phase that are above a level.
    returning
        float64 (2, phases, STEPS): share of uses in the phase above the container's own mean level of it by so much.
    largest
        float64 (2, 3, phases): the largest of each, in this order.
    mean
        float64 (2,): mean use of all that was learned from, in floors.
    credit
        float64 (tables,): the plan has the say until a rule would have saved so many samples of what the plan
        asks for.
    """

    occupancy: NDArray[np.float64]
    staying: NDArray[np.float64]
    visiting: NDArray[np.float64]
    returning: NDArray[np.float64]
    largest: NDArray[np.float64]
    mean: NDArray[np.float64]
    credit: NDArray[np.float64]


class Weights(NamedTuple):
    """What the plan weighs.

    Attributes
    ----------
    price
        float64 (2,): of all the time in violation, in multiples of the container's mean use.
    target
        float64 (2,): share of samples that may violate.
    resize
        Price of a resize, as a share of the new allocation.
    changes_per_sample
        Budget of resizes.
    tolerance
        Use above allocation x this is a violation.
    """

    price: NDArray[np.float64]
    target: NDArray[np.float64]
    resize: float
    changes_per_sample: float
    tolerance: float


class PlanArrays(NamedTuple):
    """Where each container stands, by slot, with the resources that are decided for it: two, or CPU alone.

    Attributes
    ----------
    phase, before, dwell
        int64 (n,): phase now, the one before (0: none, else phase + 1), and samples in it; 0 before the first.
    samples
        int64 (n,): how many there were.
    total
        float64 (n, resources): their sum, in floors.
    recent
        float64 (n, r, resources): the latest, whose mean is the level now.
    peaks
        float64 (n, BLOCKS, resources): the largest of the last r or fewer samples, of the r before, and so on: a ring.
    own_sum, own_samples
        float64 (n, resources, phases) and (n, phases): sum of its levels in each phase, and how many.
    asked
        float64 (n, EXPERTS, resources): what each expert decided last; NaN before that.
    correction, gain, streak
        float64 (n, EXPERTS, resources): see `plan_steps.updated_correction`.
    budget
        float64 (n, EXPERTS, resources): resizes that are left to it.
    lately
        float64 (n, LATE, EXPERTS, resources): what it had decided before the latest samples.
    record
        float64 (n, EXPERTS, resources): what each would have cost it lately, in floors.
    chosen
        int64 (n, resources): whose decision stands.
    """

    phase: NDArray[np.int64]
    before: NDArray[np.int64]
    dwell: NDArray[np.int64]
    samples: NDArray[np.int64]
    total: NDArray[np.float64]
    recent: NDArray[np.float64]
    peaks: NDArray[np.float64]
    own_sum: NDArray[np.float64]
    own_samples: NDArray[np.float64]
    asked: NDArray[np.float64]
    correction: NDArray[np.float64]
    gain: NDArray[np.float64]
    streak: NDArray[np.float64]
    budget: NDArray[np.float64]
    lately: NDArray[np.float64]
    record: NDArray[np.float64]
    chosen: NDArray[np.int64]


CANDIDATES = 20
LOWEST, STEP, STEPS = -5.0, 0.02, 900
"""Demands are looked up by a level or the difference of two, 2 % apart; the highest is 440,000 floors."""

LEVEL_SAMPLES = 3
"""Samples whose mean is the level now."""

LEANS = 3.0
"""Own samples in a phase that count as much as what others showed."""

URGENT = 3.0
"""After so many violations in a row a resize needs no budget."""

NEGLIGIBLE = 0.002
"""A phase that is expected for less than this share of the coming time is not looked at."""

LEVEL_COUNTS = 0.5
"""A violation costs at least as much as that of a container whose mean is this share of the level now."""

NEARER = 0.02
"""Where what is left to look at does not shrink by this share in a step, the search for the cheapest begins."""

ROUNDING_TOLERANCE = 1e-9
"""Sums that differ by so little may be in another order."""

SIZE_LEANS = 10.0
"""Own samples that count as much as the mean use of what was learned from: what a violation costs goes by size."""


STAYING, VISITING, RETURNING = 0, 1, 2
"""Tables of `Expected`."""


class Demands(NamedTuple):
    """What one container may demand of one resource in the coming time.

    Attributes
    ----------
    tables, phases
        int64 (n,): where each is looked up, `STAYING`, `VISITING` or `RETURNING`, and the phase.
    shares
        float64 (n,): of the coming time.
    offsets
        float64 (n,): the level that those tables count from.
    """

    tables: NDArray[np.int64]
    phases: NDArray[np.int64]
    shares: NDArray[np.float64]
    offsets: NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy")
def above(shares: NDArray[np.float64], resource: int, phase: int, level: float) -> float:
    """Share of demands above a level, from the place of its table at or below it: rather too much than too little."""
    place = math.floor((level - LOWEST) / STEP)
    if place < 0:
        return 1.0
    if place >= STEPS:
        return 0.0
    return float(shares[resource, phase, place])


@njit(cache=True, nogil=True, error_model="numpy")
def level_now(k: int, resource: int, standing: PlanArrays) -> float:
    """Level of the mean of a container's latest samples."""
    recent, samples = standing.recent, standing.samples[k]
    seen = max(1, min(samples, LEVEL_SAMPLES))
    total = 0.0
    for back in range(1, seen + 1):
        total += recent[k, (samples - back) % recent.shape[1], resource]
    return math.log(total / seen + 1.0)


@njit(cache=True, nogil=True, error_model="numpy")
def price_of_violation(
    k: int, resource: int, now: float, standing: PlanArrays, expected: Expected, weights: Weights
) -> float:  # fmt: skip
    """What it costs a container at level `now` to be in violation all of the time, in floors."""
    samples = standing.samples[k]
    mean = (standing.total[k, resource] + SIZE_LEANS * expected.mean[resource]) / (samples + SIZE_LEANS)
    return float(weights.price[resource] * max(mean, LEVEL_COUNTS * math.exp(now)))


@njit(cache=True, nogil=True, error_model="numpy")
def expected_time(k: int, table: int, standing: PlanArrays, expected: Expected) -> NDArray[np.float64]:
    """float64 (phases,): the share of the coming time that a container is expected to spend in each."""
    buckets = expected.occupancy.shape[3]
    bucket = min(int(math.log2(standing.dwell[k])), buckets - 1)
    occupancy: NDArray[np.float64] = expected.occupancy[table, standing.before[k], standing.phase[k], bucket]
    return occupancy


@njit(cache=True, nogil=True, error_model="numpy")
def coming_demands(k: int, resource: int, now: float, occupancy: NDArray[np.float64], standing: PlanArrays) -> Demands:
    """What container `k`, at level `now`, may demand in the coming time: told once for all levels that are tried."""
    present, own_samples, own_sum = standing.phase[k], standing.own_samples[k], standing.own_sum[k, resource]
    tables, phases = np.empty(2 * len(occupancy), np.int64), np.empty(2 * len(occupancy), np.int64)
    shares, offsets = np.empty(2 * len(occupancy)), np.zeros(2 * len(occupancy))
    n = 0
    for phase in range(len(occupancy)):
        if occupancy[phase] <= NEGLIGIBLE:
            continue
        if phase == present:
            tables[n], phases[n], shares[n], offsets[n] = STAYING, phase, occupancy[phase], now
            n += 1
            continue
        samples = own_samples[phase]
        own = samples / (samples + LEANS)
        tables[n], phases[n], shares[n] = VISITING, phase, occupancy[phase] * (1.0 - own)
        n += 1
        if samples > 0.0:
            tables[n], phases[n], shares[n] = RETURNING, phase, occupancy[phase] * own
            offsets[n] = own_sum[phase] / samples
            n += 1
    return Demands(tables[:n], phases[:n], shares[:n], offsets[:n])


@njit(cache=True, nogil=True, error_model="numpy")
def highest(resource: int, demands: Demands, expected: Expected) -> float:
    """The highest level that may be demanded."""
    tables, phases, offsets, largest = demands.tables, demands.phases, demands.offsets, expected.largest[resource]
    high = -math.inf
    for n in range(len(tables)):
        high = max(high, offsets[n] + largest[tables[n], phases[n]])
    return high


@njit(cache=True, nogil=True, error_model="numpy")
def time_above(resource: int, level: float, demands: Demands, expected: Expected) -> float:
    """Expected share of the coming time in which the demand for a resource is above `level`."""
    tables, phases, shares, offsets = demands
    staying, visiting, returning = expected.staying, expected.visiting, expected.returning
    share = 0.0
    for n in range(len(tables)):
        phase, difference = phases[n], level - offsets[n]
        if tables[n] == STAYING:
            share += shares[n] * above(staying, resource, phase, difference)
        elif tables[n] == VISITING:
            share += shares[n] * above(visiting, resource, phase, difference)
        else:
            share += shares[n] * above(returning, resource, phase, difference)
    return share


@njit(cache=True, nogil=True, error_model="numpy")
def may_change(k: int, expert: int, resource: int, standing: PlanArrays) -> bool:
    """Whether the budget has a resize left, or there is no waiting for it."""
    left, streak = standing.budget[k, expert, resource], standing.streak[k, expert, resource]
    return bool(left >= 1.0 or streak >= URGENT)


@njit(cache=True, nogil=True, error_model="numpy")
def surely_stays(
    asked: float, least: float, resource: int, price: float, correction: float, demands: Demands, expected: Expected,
    weights: Weights,
) -> bool:  # fmt: skip
    """Whether nothing from `least` floors on can be so much cheaper than what was asked last that a resize pays.

    The lower an allocation, the more time is spent above it. So from one amount that was looked at it follows for all
    below it how much must be saved to outweigh the shortage, and for all above it how much shortage is left to avoid.
    """
    worth = 1.0 + weights.resize - ROUNDING_TOLERANCE
    here = price * shortage(resource, asked, correction, demands, expected, weights)
    for begin, end in (((asked + here) / worth, asked), (asked / worth, least)):
        amount = begin
        while amount > end:
            there = price * shortage(resource, amount, correction, demands, expected, weights)
            left = (asked + here - there) / worth
            if left >= amount - NEARER * abs(amount):
                return False
            amount = left
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def shortage(
    resource: int, amount: float, correction: float, demands: Demands, expected: Expected, weights: Weights
) -> float:
    """Expected share of the coming time in violation under an amount, in floors."""
    return time_above(resource, math.log1p(max(amount, 0.0) * weights.tolerance) - correction, demands, expected)


@njit(cache=True, nogil=True, error_model="numpy")
def cheapest(k: int, resource: int, table: int, standing: PlanArrays, expected: Expected, weights: Weights) -> float:
    """What is cheapest for the coming time, in floors; what was asked last where a change does not pay.

    It is for `may_change` to say whether a change is allowed.
    """
    asked, correction = standing.asked[k, PLAN, resource], standing.correction[k, PLAN, resource]
    now, occupancy = level_now(k, resource, standing), expected_time(k, table, standing, expected)
    # Demand grows with the correction itself: the price must outgrow it, or the same shortage stays the cheapest.
    price = price_of_violation(k, resource, now, standing, expected, weights) * math.exp(2.0 * correction)
    demands = coming_demands(k, resource, now, occupancy, standing)
    # The level now and the largest of each phase that may come bound what can be worth its price.
    low = max(min(now, 0.0), now - 1.0)
    high = max(now + expected.largest[resource, STAYING, standing.phase[k]], highest(resource, demands, expected))
    high += correction
    best, least = 0.0, math.inf
    lowest = math.expm1(low - (high - low) / (CANDIDATES - 1))
    if not math.isnan(asked) and surely_stays(
        asked, lowest, resource, price, correction, demands, expected, weights
    ):  # as most often
        return float(asked)
    # First all of the range, then what lies around the best.
    for _ in range(2):
        step = (high - low) / (CANDIDATES - 1)
        for candidate in range(CANDIDATES):
            level = low + step * candidate
            amount = math.expm1(level)
            if amount >= least:
                break  # what is reserved alone costs as much, here and above
            cost = amount + price * shortage(resource, amount, correction, demands, expected, weights)
            if cost < least:
                best, least = level, cost
        low, high = best - step, best + step
    best = max(math.expm1(best), 1.0)
    if math.isnan(asked):
        return best
    stays = asked + price * shortage(resource, asked, correction, demands, expected, weights)
    return best if stays - least > weights.resize * best else float(asked)
