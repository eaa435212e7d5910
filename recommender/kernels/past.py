"""What a container's past says at each decision: levels, shape, change and phases, as one row of numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

CPU_FLOOR, MEMORY_FLOOR = 1e-3, float(1 << 20)
"""Use below a millicore or a mebibyte is read as that much: ratios of idle to idle mean nothing."""

# Rows of `Past.levels`, one column per resource.
LAST, PEAK, TOTAL, PEAK_BEFORE, SWING, LEAP = range(6)
# Entries of `Past.counts`.
PRESENT, DECISIONS, PHASE, PHASE_BEFORE, DWELL, RUNS, RING_AT = range(7)

# Columns of the facts. Those of a resource start at FIRST_LEVEL + resource * N_LEVELS.
AGE, NUMBER = 0, 1
FIRST_LEVEL, N_LEVELS = 2, 16
(
    NOW,
    CYCLE_PEAK,
    CYCLE_MEAN,
    CYCLE_LOW,
    EVER_PEAK,
    LATEST_MEAN,
    CYCLE_SPREAD,
    PEAK_CHANGE,
    CYCLE_DRIFT,
    EVER_MEAN,
    PEAK_SWING,
    PEAK_LEAP,
    SHARE_AT_PEAK,
    SINCE_JUMP,
    JUMPS,
    SLOPE,
) = range(16)
PHASE_NOW = FIRST_LEVEL + 2 * N_LEVELS
PHASE_DWELL, PHASE_PRIOR, PHASE_RUNS = PHASE_NOW + 1, PHASE_NOW + 2, PHASE_NOW + 3
N_PAST = PHASE_NOW + 4

LATEST_SAMPLES = 4
SLOPE_SAMPLES = 8
JUMP = 0.1
"""Natural logarithm: a step of more than a tenth from one sample to the next is a jump; phases begin with one."""
SWING_MEMORY, LEAP_MEMORY = 0.7, 0.9


class Past(NamedTuple):
    """What is kept of one container between samples.

    Attributes
    ----------
    ring
        float64 (cycle, 2): the latest positions of the grid, NaN in gaps.
    levels
        float64 (6, 2): last sample, largest ever, sum of all, log peak of the cycle before, mean swing and largest leap
        of the peak from cycle to cycle.
    counts
        int64 (7,): samples, decisions, phase, phase before, samples in this phase, runs of phases, ring position.
    """

    ring: NDArray[np.float64]
    levels: NDArray[np.float64]
    counts: NDArray[np.int64]


@njit(cache=True, nogil=True)
def read_past(
    usage: NDArray[np.float64],
    labels: NDArray[np.int64],
    decisions: NDArray[np.int64],
    past: Past,
    facts: NDArray[np.float64],
) -> None:
    """Take in samples and write down the facts before each decision.

    Parameters
    ----------
    usage
        float64 (n, 2): cores and bytes, NaN in gaps.
    labels
        int64 (n,): phase of each sample, -1 unknown.
    decisions
        int64 (d,), increasing: a decision at p sees the samples before p.
    past
        IN and OUT: what was seen before; afterwards also these samples.
    facts
        OUT float64 (d, at least N_PAST): the columns named in this module. Levels are natural logarithms; all but NOW
        are relative to NOW, so that a tree may ask about shape and size apart.
    """
    counts = past.counts
    size = past.ring.shape[0]
    number = 0
    for position in range(len(usage) + 1):
        while number < len(decisions) and decisions[number] == position:
            _write_facts(past, facts[number])
            number += 1
        if position == len(usage):
            break
        slot = counts[RING_AT] % size
        past.ring[slot, 0] = usage[position, 0]
        past.ring[slot, 1] = usage[position, 1]
        counts[RING_AT] += 1
        if math.isnan(usage[position, 0]):
            continue
        counts[PRESENT] += 1
        for resource in range(2):
            used = usage[position, resource]
            past.levels[LAST, resource] = used
            past.levels[PEAK, resource] = max(past.levels[PEAK, resource], used)
            past.levels[TOTAL, resource] += used
        if labels[position] == counts[PHASE] and counts[RUNS] > 0:
            counts[DWELL] += 1
        else:
            if counts[RUNS] > 0:
                counts[PHASE_BEFORE] = counts[PHASE]
            counts[PHASE] = labels[position]
            counts[DWELL] = 1
            counts[RUNS] += 1


@njit(cache=True, nogil=True)
def read_each(
    usage: NDArray[np.float64],
    labels: NDArray[np.int64],
    borders: NDArray[np.int64],
    pasts: Past,
    facts: NDArray[np.float64],
) -> None:
    """`read_past` of many containers, with one decision of each after its samples.

    Parameters
    ----------
    usage, labels
        The samples of all, float64 (n, 2) and int64 (n,), those of one container side by side.
    borders
        int64 (m + 1,): where each container's begin, and the end.
    pasts
        IN and OUT: arrays of a `Past`, with a first axis of m.
    facts
        OUT float64 (m, at least N_PAST).
    """
    last = np.empty(1, np.int64)
    for row in range(len(borders) - 1):
        begin, end = borders[row], borders[row + 1]
        last[0] = end - begin
        past = Past(pasts.ring[row], pasts.levels[row], pasts.counts[row])
        read_past(usage[begin:end], labels[begin:end], last, past, facts[row : row + 1])


@njit(cache=True, nogil=True)
def _write_facts(past: Past, row: NDArray[np.float64]) -> None:
    counts, levels = past.counts, past.levels
    row[AGE] = math.log(max(counts[PRESENT], 1))
    row[NUMBER] = min(counts[DECISIONS], 6)
    for resource in range(2):
        floor = CPU_FLOOR if resource == 0 else MEMORY_FLOOR
        at = FIRST_LEVEL + resource * N_LEVELS
        now = math.log(max(levels[LAST, resource], floor))
        row[at + NOW] = now
        peak = _write_cycle(past, resource, floor, row[at : at + N_LEVELS])
        row[at + EVER_PEAK] = math.log(max(levels[PEAK, resource], floor)) - now
        row[at + EVER_MEAN] = math.log(max(levels[TOTAL, resource] / max(counts[PRESENT], 1), floor)) - now
        change = 0.0
        if counts[DECISIONS] > 0:
            change = peak - levels[PEAK_BEFORE, resource]
            levels[SWING, resource] += (1.0 - SWING_MEMORY) * (abs(change) - levels[SWING, resource])
            levels[LEAP, resource] = max(LEAP_MEMORY * levels[LEAP, resource], change)
        levels[PEAK_BEFORE, resource] = peak
        row[at + PEAK_CHANGE] = change
        row[at + PEAK_SWING] = levels[SWING, resource] if counts[DECISIONS] > 0 else -1.0
        row[at + PEAK_LEAP] = levels[LEAP, resource] if counts[DECISIONS] > 0 else -1.0
    row[PHASE_NOW] = counts[PHASE]
    row[PHASE_DWELL] = math.log(max(counts[DWELL], 1))
    row[PHASE_PRIOR] = counts[PHASE_BEFORE]
    row[PHASE_RUNS] = min(counts[RUNS], 10)
    counts[DECISIONS] += 1


@njit(cache=True, nogil=True)
def _write_cycle(past: Past, resource: int, floor: float, row: NDArray[np.float64]) -> float:
    """The cycle just ended, relative to NOW; returns the logarithm of its peak."""
    size = past.ring.shape[0]
    filled = min(past.counts[RING_AT], size)
    last = past.levels[LAST, resource]
    peak, low, total, present = 0.0, math.inf, 0.0, 0
    latest, latest_present, at_peak = 0.0, 0, 0
    since_jump, jumps, newer, slope = -1, 0, last, 0.0
    halves, half_present = np.zeros(2), np.zeros(2)
    for back in range(filled):
        used = past.ring[(past.counts[RING_AT] - 1 - back) % size, resource]
        if math.isnan(used):
            continue
        if latest_present < LATEST_SAMPLES:
            latest += used
            latest_present += 1
        step = math.log(max(newer, floor)) - math.log(max(used, floor))
        newer = used
        if abs(step) > JUMP:
            jumps += 1
            if since_jump < 0:
                since_jump = present
        elif since_jump < 0 and present < SLOPE_SAMPLES:
            slope += step
        peak, low = max(peak, used), min(low, used)
        total += used
        present += 1
        half = 0 if 2 * back < filled else 1
        halves[half] += used
        half_present[half] += 1
    now = row[NOW]
    if present == 0:
        peak, low, total, present = last, last, last, 1
        latest, latest_present, at_peak = last, 1, 1
    mean = total / present
    squares = 0.0
    for slot in range(filled):
        used = past.ring[slot, resource]
        if not math.isnan(used):
            squares += (used - mean) ** 2
            at_peak += 1 if 1.05 * used > peak else 0
    row[CYCLE_PEAK] = math.log(max(peak, floor)) - now
    row[CYCLE_MEAN] = math.log(max(mean, floor)) - now
    row[CYCLE_LOW] = math.log(max(low, floor)) - now
    row[LATEST_MEAN] = math.log(max(latest / latest_present, floor)) - now
    row[CYCLE_SPREAD] = math.sqrt(squares / present) / max(mean, floor)
    row[SHARE_AT_PEAK] = at_peak / present
    row[SINCE_JUMP] = math.log(1.0 + (since_jump if since_jump >= 0 else present))
    row[JUMPS] = jumps / present
    row[SLOPE] = slope
    row[CYCLE_DRIFT] = 0.0
    if half_present[0] > 0 and half_present[1] > 0:
        row[CYCLE_DRIFT] = math.log(max(halves[0] / half_present[0], floor)) - math.log(
            max(halves[1] / half_present[1], floor)
        )
    return math.log(max(peak, floor))
