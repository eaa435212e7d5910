"""The demand that the phase graph expects, and the cheapest allocation for it: reservation, violations and resizes.

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


class Expected(NamedTuple):
    """Expected phases, and the demand in each of them.

    Demand is of three kinds (first axis): `STAYING`, later in the same visit, relative to the level now; `VISITING`, in
    the phase; `RETURNING`, in the phase, relative to the container's own mean level in it.
    """

    occupancy: FloatArray
    """float64 (tables, 1 + phases, phases, buckets, phases), see `occupancy_by_context`; one table per class."""
    above: FloatArray
    """float64 (3, phases, TABLE_SIZE): share of demands above each level of the grid."""
    largest: FloatArray
    """float64 (3, phases): the maximum of each."""


class Visits(NamedTuple):
    """What is known of the phases of each container (slot)."""

    phase: IntArray
    before: IntArray
    dwell: IntArray
    """int64 (n,): current phase, the one before (0: none, else phase + 1), and samples in the current one; 0 before
    the first sample."""
    own_sum: FloatArray
    own_samples: FloatArray
    """float64 (n, phases) each: sum and number of the container's levels in each phase."""


CANDIDATES = 20
TABLE_LOWEST, TABLE_STEP, TABLE_SIZE = -5.0, 0.02, 900
"""Grid of the demand tables: levels, or differences of two, 2 % apart; the highest is 440,000 floors."""

LEVEL_SAMPLES = 3
"""Samples whose mean gives the level now."""

PRIOR_SAMPLES = 3.0
"""Weight of the learned demand of a phase against a container's own samples in it, in samples."""

MIN_OCCUPANCY = 0.002
"""Phases expected for at most this share of the coming time are ignored."""

MIN_PROGRESS = 0.02
"""Proving that no resize pays is given up once a step narrows the range by less than this share."""

ROUNDING_TOLERANCE = 1e-9
"""Sums that differ by less are equal but for the order of addition."""

STAYING, VISITING, RETURNING = 0, 1, 2
"""Kinds of demand, see `Expected`."""


class Demands(NamedTuple):
    """Demand of one container in the coming time: a mixture of n distributions."""

    kinds: IntArray
    phases: IntArray
    """int64 (n,): kind and phase of each."""
    shares: FloatArray
    """float64 (n,): share of the coming time."""
    offsets: FloatArray
    """float64 (n,): level to which the table is relative."""


class Terms(NamedTuple):
    """What an allocation costs: of being in violation all of the time, in floors; of a resize, as a share of the new
    allocation; and the multiple of an allocation above which use violates it."""

    price: float
    resize: float
    tolerance: float


@njit(cache=True, nogil=True, error_model="numpy")
def share_above(above: FloatArray, kind: int, phase: int, level: float) -> float:
    """Share of demands above a level; rounded up, to the grid point at or below it."""
    place = math.floor((level - TABLE_LOWEST) / TABLE_STEP)
    if place < 0:
        return 1.0
    if place >= TABLE_SIZE:
        return 0.0
    return float(above[kind, phase, place])


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def occupancy_of(k: int, table: int, visits: Visits, expected: Expected) -> FloatArray:
    """float64 (phases,): expected share of the coming time in each phase, by the container's context."""
    buckets = expected.occupancy.shape[3]
    bucket = min(int(math.log2(visits.dwell[k])), buckets - 1)
    occupancy: FloatArray = expected.occupancy[table, visits.before[k], visits.phase[k], bucket]
    return occupancy


@njit(cache=True, nogil=True, error_model="numpy")
def coming_demands(k: int, now: float, occupancy: FloatArray, visits: Visits) -> Demands:
    """Demand of container `k`, at level `now`, in the coming time; computed once for all candidate allocations."""
    present, own_samples, own_sum = visits.phase[k], visits.own_samples[k], visits.own_sum[k]
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
def highest_demand(demands: Demands, expected: Expected) -> float:
    """Highest level that may be demanded."""
    kinds, phases, offsets, largest = demands.kinds, demands.phases, demands.offsets, expected.largest
    high = -math.inf
    for n in range(len(kinds)):
        high = max(high, offsets[n] + largest[kinds[n], phases[n]])
    return high


@njit(cache=True, nogil=True, error_model="numpy")
def violation_share(amount: float, demands: Demands, expected: Expected, terms: Terms) -> float:
    """Expected share of the coming time in violation under an allocation, in floors."""
    level = math.log1p(max(amount, 0.0) * terms.tolerance)
    kinds, phases, shares, offsets = demands
    above, share = expected.above, 0.0
    for n in range(len(kinds)):
        share += shares[n] * share_above(above, kinds[n], phases[n], level - offsets[n])
    return share


@njit(cache=True, nogil=True, error_model="numpy")
def no_resize_pays(asked: float, lowest: float, demands: Demands, expected: Expected, terms: Terms) -> bool:
    """Whether no amount from `lowest` floors on is so much cheaper than the current request that a resize pays.

    Violations only fall as the allocation grows. So the cost of violations at one amount is a lower bound for all
    amounts below it, and rules out those that do not save at least as much; from the largest amount not ruled out the
    next bound is computed, first above the current request, then below it. False where that stalls: not proven.
    """
    resize_factor = 1.0 + terms.resize - ROUNDING_TOLERANCE
    current = asked + terms.price * violation_share(asked, demands, expected, terms)
    for upper, lower in ((current / resize_factor, asked), (asked / resize_factor, lowest)):
        amount = upper
        while amount > lower:
            violations = terms.price * violation_share(amount, demands, expected, terms)
            remaining = (current - violations) / resize_factor
            if remaining >= amount - MIN_PROGRESS * abs(amount):
                return False
            amount = remaining
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def cheapest_allocation(
    k: int, table: int, now: float, asked: float, visits: Visits, expected: Expected, terms: Terms
) -> float:
    """The cheapest allocation for the coming time of container `k` at level `now`, in floors; what is `asked` now, NaN
    for nothing, where a resize does not pay."""
    demands = coming_demands(k, now, occupancy_of(k, table, visits, expected), visits)
    # The level now and the maximum of each expected phase bound the allocations that can pay.
    low = max(min(now, 0.0), now - 1.0)
    high = max(now + expected.largest[STAYING, visits.phase[k]], highest_demand(demands, expected))
    best, least = 0.0, math.inf
    lowest = math.expm1(low - (high - low) / (CANDIDATES - 1))
    if not math.isnan(asked) and no_resize_pays(asked, lowest, demands, expected, terms):  # the usual case
        return asked
    # A grid over the whole range, then a finer one around the best candidate.
    for _ in range(2):
        step = (high - low) / (CANDIDATES - 1)
        for candidate in range(CANDIDATES):
            level = low + step * candidate
            amount = math.expm1(level)
            if amount >= least:
                break  # from here on the reservation alone costs as much
            cost = amount + terms.price * violation_share(amount, demands, expected, terms)
            if cost < least:
                best, least = level, cost
        low, high = best - step, best + step
    best = max(math.expm1(best), 1.0)
    if math.isnan(asked):
        return best
    current = asked + terms.price * violation_share(asked, demands, expected, terms)
    return best if current - least > terms.resize * best else asked
