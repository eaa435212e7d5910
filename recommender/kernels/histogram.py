"""The default VPA's estimate: decaying histograms with exponential buckets, memory peaks per window, OOM bumps.

Terms follow the upstream recommender: bucket n covers start(n) .. start(n + 1) with
start(n) = first x (ratio^n - 1) / (ratio - 1); a weight added at time t counts 2^((t - reference) / half-life); the
reference moves forward before the exponent exceeds its limit.

The histograms of both resources are one array, float64 (2, WIDTH); a second one holds the state of memory windows. The
caller owns both, so that a container can be advanced in pieces. All other arguments are numbers, since passing an array
takes longer than adding a sample: `Histogram` has views of a row. Upstream's defaults are constants, likewise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from recommender.kernels import FloatArray, IntArray

DAY_S = 86400.0

FIRST_CORES, FIRST_BYTES, RATIO, BUCKETS = 0.01, 1e7, 1.05, 176
"""Width of the first bucket of each resource, growth from one to the next, and their number: up to 1000 cores and
10^12 bytes."""

HALF_LIFE_S = DAY_S

MAX_EXPONENT = 100.0
"""The reference moves when a sample would count more than 2 to this power."""

EPSILON = 1e-4
"""A bucket with less weight is empty at the ends of the histogram."""

CPU_WEIGHT, MEMORY_WEIGHT = 0.1, 1.0
"""Weights of samples."""

MIN_BUMP_UP_BYTES, BUMP_UP_RATIO = 100.0 * 2**20, 1.2
"""Memory above its use that an OOM-killed container is taken to have needed."""

PERCENTILE, MARGIN = 0.9, 0.15
FLOOR_MILLICORES, FLOOR_BYTES, CEILING = 25.0, 250.0 * 2**20, 1e14
"""How a percentile becomes a request, in millicores or bytes; the ceiling is that of either resource."""

PERCENTILES = (0.5, PERCENTILE, 0.95)
"""Percentiles of the lower bound, the target and the upper bound."""


class Histogram(NamedTuple):
    """Arrays of one resource: weights float64 (BUCKETS,), sums float64 (N_SUMS,).

    Only the sums of CPU hold the times of samples: NaN before the first.
    """

    weights: FloatArray
    sums: FloatArray


# Indices into Histogram.sums.
TOTAL, REFERENCE_S, FIRST_S, LAST_S, SAMPLES, N_SUMS = 0, 1, 2, 3, 4, 5

WIDTH = BUCKETS + N_SUMS

# Indices into the float64 state array of `advance`; times are NaN at first.
WINDOW_END_S, USAGE_PEAK, OOM_PEAK = 0, 1, 2
IN_FORCE_CPU, IN_FORCE_MEMORY, IN_OOM_RUN, OOM_EVENTS, N_STATE = 3, 4, 5, 6, 7

OF_USE: Any = np.bool_(False)
OF_OOM: Any = np.bool_(True)
"""What a memory sample is of; no literals, for which Numba would compile `add_memory` once more each."""

NANOCORES_PER_MILLICORE = 1e6


def _starts_of(first_width: float) -> FloatArray:
    starts: FloatArray = first_width * (np.power(RATIO, np.arange(BUCKETS, dtype=float)) - 1.0) / (RATIO - 1.0)
    return starts


CPU_STARTS, MEMORY_STARTS = _starts_of(FIRST_CORES), _starts_of(FIRST_BYTES)
"""float64 (BUCKETS,): where each bucket starts, in cores and bytes."""


@njit(cache=True, nogil=True, inline="always")
def histogram_of(histograms: FloatArray, resource: int) -> Histogram:
    """Views of the row of a resource."""
    return Histogram(histograms[resource, :BUCKETS], histograms[resource, BUCKETS:])


def filled_buckets(histogram: Histogram) -> IntArray:
    """Numbers of the buckets that are not empty."""
    return np.flatnonzero(histogram.weights >= EPSILON)


@njit(cache=True, nogil=True, inline="always")
def bucket_of(value: float, first_width: float) -> int:
    """The bucket that holds a value of at least zero."""
    if value < first_width:
        return 0
    exact = math.log(value * (RATIO - 1.0) / first_width + 1.0) / math.log(RATIO)
    return min(int(exact), BUCKETS - 1)


@njit(cache=True, nogil=True)
def _decay(histogram: Histogram, time_s: float) -> float:
    """Decay factor of a weight added at `time_s`; first moves the reference if the exponent would be too large."""
    sums = histogram.sums
    if time_s > sums[REFERENCE_S] + MAX_EXPONENT * HALF_LIFE_S:
        reference_s = math.floor(time_s / HALF_LIFE_S + 0.5) * HALF_LIFE_S
        shrink = 2.0 ** round((sums[REFERENCE_S] - reference_s) / HALF_LIFE_S)
        for bucket in range(BUCKETS):
            histogram.weights[bucket] *= shrink
        sums[TOTAL] *= shrink
        sums[REFERENCE_S] = reference_s
    return float(2.0 ** ((time_s - sums[REFERENCE_S]) / HALF_LIFE_S))


@njit(cache=True, nogil=True)
def add_sample(histogram: Histogram, first_width: float, value: float, weight: float, time_s: float) -> None:
    """Add one sample; `histogram` is OUT."""
    decayed = weight * _decay(histogram, time_s)
    histogram.weights[bucket_of(value, first_width)] += decayed
    histogram.sums[TOTAL] += decayed


@njit(cache=True, nogil=True)
def subtract_sample(histogram: Histogram, first_width: float, value: float, weight: float, time_s: float) -> None:
    """Remove a sample that was added with the same value, weight and time; `histogram` is OUT."""
    weights, sums = histogram.weights, histogram.sums
    decayed = weight * _decay(histogram, time_s)
    bucket = bucket_of(value, first_width)
    left = weights[bucket] - decayed
    weights[bucket] = left if left >= EPSILON else 0.0
    left = sums[TOTAL] - decayed
    sums[TOTAL] = left if left >= EPSILON else 0.0


@njit(cache=True, nogil=True)
def percentile(histogram: Histogram, starts: FloatArray, share: float) -> float:
    """End of the first bucket at which the cumulative weight reaches `share` of the total; 0 when empty.

    The last bucket has no end; its start is returned.
    """
    weights, threshold = histogram.weights, share * histogram.sums[TOTAL]
    bucket, below = 0, 0.0
    while bucket < BUCKETS - 1 and weights[bucket] < EPSILON:
        bucket += 1
    while bucket < BUCKETS - 1 and below + weights[bucket] < threshold:
        below += weights[bucket]
        bucket += 1
    if weights[bucket] < EPSILON:  # no weight reaches the share but for rounding, or all are empty
        highest = BUCKETS - 1
        while highest > 0 and weights[highest] < EPSILON:
            highest -= 1
        if weights[highest] < EPSILON:
            return 0.0
        bucket = min(bucket, highest)
    return float(starts[min(bucket + 1, BUCKETS - 1)])


@njit(cache=True, nogil=True, inline="always")
def request_of(amount: float, margin: float, floor: float, ceiling: float) -> float:
    """A percentile in millicores or bytes plus the margin, between floor and ceiling, in whole units."""
    whole = min(math.floor(amount), ceiling)
    return max(min(whole + math.floor(margin * whole), ceiling), floor)


@njit(cache=True, nogil=True, inline="always")
def confidence_of(sums: FloatArray) -> float:
    """Days of history, or of samples at one a minute, whichever is less; from the sums of CPU."""
    if sums[SAMPLES] == 0.0:
        return 0.0
    return float(min((sums[LAST_S] - sums[FIRST_S]) / DAY_S, sums[SAMPLES] / (DAY_S / 60.0)))


@njit(cache=True, nogil=True)
def estimate(histograms: FloatArray, floors: tuple[float, float], requests: FloatArray) -> float:
    """Estimate requests at `PERCENTILES`, never below the floor; returns the confidence.

    Bounds are wide with little history: lower = base(p50) x (1 + 0.001 / c)^-2 and upper = base(p95) x (1 + 1 / c),
    with the confidence c. `floors` are those of CPU and memory, in millicores and bytes. `requests` is OUT float64
    (3, 2): lower bound, target and upper bound, cores and bytes; 0 without a sample and a floor.
    """
    confidence, factors = confidence_of(histogram_of(histograms, 0).sums), (0.0, 1.0, np.inf)
    if confidence > 0.0:
        factors = ((1.0 + 0.001 / confidence) ** -2.0, 1.0, 1.0 + 1.0 / confidence)
    for resource in range(2):
        histogram = histogram_of(histograms, resource)
        starts = CPU_STARTS if resource == 0 else MEMORY_STARTS
        per_unit = 1000.0 if resource == 0 else 1.0
        for number in range(len(PERCENTILES)):
            found = percentile(histogram, starts, PERCENTILES[number])
            base = request_of(math.floor(found * per_unit), MARGIN, 0.0, CEILING)
            amount = min(base * factors[number], CEILING) if base > 0.0 else 0.0
            requests[number, resource] = max(math.floor(amount), floors[resource]) / per_unit
    return confidence


@njit(cache=True, nogil=True)
def add_memory(
    histogram: Histogram, window_s: float, state: FloatArray, amount: float, time_s: float, is_oom: bool
) -> None:
    """Add a memory sample: only the peak of each window counts, so one that is not above it changes nothing.

    `histogram` and `state` are OUT.
    """
    if math.isnan(state[WINDOW_END_S]):
        state[WINDOW_END_S] = time_s
    if time_s < state[WINDOW_END_S]:
        peak = max(state[USAGE_PEAK], state[OOM_PEAK])
        if peak == 0.0 or amount <= peak:
            return
        subtract_sample(histogram, FIRST_BYTES, peak, MEMORY_WEIGHT, state[WINDOW_END_S])
    else:
        windows = math.floor((time_s - state[WINDOW_END_S]) / window_s) + 1.0
        state[WINDOW_END_S] += windows * window_s
        state[USAGE_PEAK] = state[OOM_PEAK] = 0.0
    add_sample(histogram, FIRST_BYTES, amount, MEMORY_WEIGHT, state[WINDOW_END_S])
    state[OOM_PEAK if is_oom else USAGE_PEAK] = amount


@njit(cache=True, nogil=True)
def observe(
    cpu: Histogram, memory: Histogram, window_s: float, cpu_cores: float, memory_bytes: float, time_s: float,
    state: FloatArray,
) -> None:  # fmt: skip
    """Add a sample, of at least zero, and an OOM if it is the first of a run of samples above the memory in force.

    `time_s`, unix seconds, is later than the previous one; `cpu`, `memory` and `state`, float64 (N_STATE,), are OUT.
    """
    # Upstream gets nanocores and reads them as millicores, rounded up.
    nanocores = math.floor(cpu_cores * 1e9 + 0.5)
    millicores = math.ceil(nanocores / NANOCORES_PER_MILLICORE)
    add_sample(cpu, FIRST_CORES, millicores / 1000.0, CPU_WEIGHT, time_s)
    sums = cpu.sums
    if not time_s >= sums[FIRST_S]:
        sums[FIRST_S] = time_s
    if not time_s <= sums[LAST_S]:
        sums[LAST_S] = time_s
    sums[SAMPLES] += 1.0
    whole_bytes = float(math.ceil(memory_bytes))  # a float, or Numba compiles `add_memory` twice
    add_memory(memory, window_s, state, whole_bytes, time_s, OF_USE)
    over = whole_bytes > state[IN_FORCE_MEMORY]
    if over and state[IN_OOM_RUN] == 0.0:
        state[OOM_EVENTS] += 1.0
        # The bump starts from request and use, not from earlier bumps, so that it cannot run away.
        used = max(state[IN_FORCE_MEMORY], state[USAGE_PEAK])
        bumped = float(math.floor(max(used + MIN_BUMP_UP_BYTES, used * BUMP_UP_RATIO)))
        add_memory(memory, window_s, state, bumped, time_s, OF_OOM)
    state[IN_OOM_RUN] = 1.0 if over else 0.0


@njit(cache=True, nogil=True)
def observe_grid(
    histograms: FloatArray, window_s: float, usage: FloatArray, first_cell: int, step_s: float, state: FloatArray
) -> None:
    """Add samples on a grid, float64 (n, 2) with NaN in gaps, at whole seconds; `histograms` and `state` are OUT."""
    cpu, memory = histogram_of(histograms, 0), histogram_of(histograms, 1)
    for row in range(len(usage)):
        if not math.isnan(usage[row, 0]):
            time_s = np.rint((first_cell + row) * step_s)
            observe(cpu, memory, window_s, usage[row, 0], usage[row, 1], time_s, state)


@njit(cache=True, nogil=True)
def advance(
    histograms: FloatArray, window_s: float, usage: FloatArray, requests: FloatArray, timestamps: IntArray,
    decisions: IntArray, state: FloatArray, allocations: FloatArray,
) -> None:  # fmt: skip
    """Add the samples of a `Block`, and decide at its decision points.

    `requests`, float64 (n, 2), are in force until the first decision; `histograms`, `state`, float64 (N_STATE,), and
    `allocations`, float64 (d, 2) cores and bytes, are OUT.
    """
    cpu, memory = histogram_of(histograms, 0), histogram_of(histograms, 1)
    n, decision = len(usage), 0
    for row in range(n + 1):
        if decision < len(decisions) and decisions[decision] == row:
            millicores = math.floor(percentile(cpu, CPU_STARTS, PERCENTILE) * 1000.0)
            amount = percentile(memory, MEMORY_STARTS, PERCENTILE)
            allocations[decision, 0] = request_of(millicores, MARGIN, FLOOR_MILLICORES, CEILING) / 1000.0
            allocations[decision, 1] = request_of(amount, MARGIN, FLOOR_BYTES, CEILING)
            state[IN_FORCE_CPU], state[IN_FORCE_MEMORY] = allocations[decision, 0], allocations[decision, 1]
            decision += 1
        if row == n:
            break
        if decision == 0 and not math.isnan(requests[row, 1]):
            state[IN_FORCE_MEMORY] = requests[row, 1]
        if not math.isnan(usage[row, 0]):
            observe(cpu, memory, window_s, usage[row, 0], usage[row, 1], float(timestamps[row]), state)
