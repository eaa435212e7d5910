"""One sample after the other: containers are seen, what they had is judged, and it is decided for them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.phase_plan import cheapest, may_change
from recommender.kernels.plan_advice import choose, hold_expert, keep_record, largest_lately
from recommender.kernels.plan_arrays import BLOCKS, EXPERTS, PLAN, Expected, PlanArrays, Weights

MOST_SAVED = 2.0
"""Resizes that can be saved up."""


@njit(cache=True, nogil=True, error_model="numpy")
def take_in(k: int, amounts: NDArray[np.float64], phase: int, changes_per_sample: float, standing: PlanArrays) -> None:
    """A sample of a container, float64 (resources,) in floors, and its phase; a negative one is unknown, the last."""
    phases = standing.own_samples.shape[1]
    now = phase if phase >= 0 else phases - 1
    if standing.dwell[k] == 0 or now != standing.phase[k]:
        standing.before[k] = standing.phase[k] + 1 if standing.dwell[k] > 0 else 0
        standing.phase[k], standing.dwell[k] = now, 0
    standing.dwell[k] += 1
    in_block = standing.recent.shape[1]
    place, block = standing.samples[k] % in_block, standing.samples[k] // in_block % BLOCKS
    standing.samples[k] += 1
    standing.own_samples[k, now] += 1.0
    for resource in range(standing.total.shape[1]):
        standing.recent[k, place, resource] = amounts[resource]
        peak = standing.peaks[k, block, resource] if place > 0 else 0.0
        standing.peaks[k, block, resource] = max(peak, amounts[resource])
        standing.total[k, resource] += amounts[resource]
        standing.own_sum[k, resource, now] += math.log(amounts[resource] + 1.0)
        for expert in range(EXPERTS):
            left = standing.budget[k, expert, resource] + changes_per_sample
            standing.budget[k, expert, resource] = min(left, MOST_SAVED)


@njit(cache=True, nogil=True, error_model="numpy")
def stands(k: int, resource: int, standing: PlanArrays) -> float:
    """What is asked for, by whoever has the say."""
    return float(standing.asked[k, standing.chosen[k, resource], resource])


@njit(cache=True, nogil=True, error_model="numpy")
def decide(k: int, table: int, standing: PlanArrays, expected: Expected, weights: Weights) -> None:
    """What each expert asks for."""
    for resource in range(standing.total.shape[1]):
        for expert in range(EXPERTS):
            before = standing.asked[k, expert, resource]
            if not math.isnan(before) and not may_change(k, expert, resource, standing):
                continue
            if expert == PLAN:
                asked = cheapest(k, resource, table, standing, expected, weights)
            else:
                asked = largest_lately(k, expert, resource, standing)
            if not math.isnan(before) and asked != before:
                standing.budget[k, expert, resource] = max(standing.budget[k, expert, resource] - 1.0, 0.0)
                standing.record[k, expert, resource] += weights.resize * asked
            standing.asked[k, expert, resource] = asked


@njit(cache=True, nogil=True, error_model="numpy")
def observe_each(
    slots: NDArray[np.int64],
    amounts: NDArray[np.float64],
    phases: NDArray[np.int64],
    standing: PlanArrays,
    expected: Expected,
    weights: Weights,
) -> None:
    """Take in a sample of each of these, int64 (m,), each at most once."""
    for row in range(len(slots)):
        keep_record(slots[row], amounts[row], standing, expected, weights)
        take_in(slots[row], amounts[row], phases[row], weights.changes_per_sample, standing)


@njit(cache=True, nogil=True, error_model="numpy")
def hold_each(
    slots: NDArray[np.int64],
    amounts: NDArray[np.float64],
    in_force: NDArray[np.float64],
    weights: Weights,
    standing: PlanArrays,
) -> None:
    """Judge the latest sample of each by what was in force for it, float64 (m, resources) in floors, or NaN."""
    for row in range(len(slots)):
        for resource in range(standing.total.shape[1]):
            if not math.isnan(in_force[row, resource]):
                hold_expert(
                    slots[row], standing.chosen[slots[row], resource], resource, amounts[row, resource],
                    in_force[row, resource], True, weights, standing,
                )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def decide_each(
    slots: NDArray[np.int64],
    tables: NDArray[np.int64],
    standing: PlanArrays,
    expected: Expected,
    weights: Weights,
) -> None:
    """Decide for each of these, int64 (m,), by the table of its class, what to ask for."""
    for row in range(len(slots)):
        decide(slots[row], tables[row], standing, expected, weights)
        for resource in range(standing.total.shape[1]):
            choose(slots[row], resource, expected.credit[tables[row]], standing, weights)


@njit(cache=True, nogil=True, error_model="numpy")
def follow_run(
    k: int,
    table: int,
    amounts: NDArray[np.float64],
    phases: NDArray[np.int64],
    decisions: NDArray[np.bool_],
    late: int,
    standing: PlanArrays,
    expected: Expected,
    weights: Weights,
    asked: NDArray[np.float64],
) -> None:
    """Take in the samples of one container and decide where told.

    Parameters
    ----------
    table
        Of its class. A constant here would have it compiled twice, for that as well.
    amounts, phases
        float64 (n, resources) in floors, NaN in gaps, and int64 (n,).
    decisions
        bool (n + 1,): before which samples to decide; the last is after all of them.
    late
        Samples from a decision until it is in force; one before the first sample of these counts as in force. With 0
        the plan alone is heard.
    asked
        OUT float64 (n + 1, resources): what stands asked for before each sample, in floors.
    """
    n, resources = amounts.shape
    first = np.empty(resources)
    for resource in range(resources):
        first[resource] = stands(k, resource, standing)
    for row in range(n + 1):
        if decisions[row] and standing.samples[k] > 0:
            decide(k, table, standing, expected, weights)
        for resource in range(resources):
            if late > 0 and decisions[row] and standing.samples[k] > 0:
                choose(k, resource, expected.credit[table], standing, weights)
            asked[row, resource] = stands(k, resource, standing)
        if row == n or math.isnan(amounts[row, 0]):
            continue
        for resource in range(resources):
            in_force = asked[row - late, resource] if row >= late else first[resource]
            if not math.isnan(in_force):
                hold_expert(
                    k, standing.chosen[k, resource], resource, amounts[row, resource], in_force, decisions[row],
                    weights, standing,
                )  # fmt: skip
        if late > 0:
            keep_record(k, amounts[row], standing, expected, weights)
        take_in(k, amounts[row], phases[row], weights.changes_per_sample, standing)
