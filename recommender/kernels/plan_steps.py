"""Who decides for a container, one sample after the other: the plan, or a rule that follows its own use.

Prediction with expert advice (Cesa-Bianchi and Lugosi, 2006): all decide for each sample, what they had decided is
priced by what came, and the cheapest record has the say. So no container is much dearer than under the better of two
rules, whatever world the plan was learned in; and before there is a record, whoever asks for most is heard.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.phase_plan import (
    BLOCKS,
    EXPERTS,
    LATE,
    PLAN,
    SHORT_WINDOW,
    Expected,
    PlanArrays,
    Weights,
    cheapest,
    level_now,
    may_change,
    price_of_violation,
)

SHORT_WINDOW_SAMPLES = 10
"""One rule asks for the largest of so many samples, the other of as many as `BLOCKS` of them hold."""

OFF = 0.15
"""A rule changes what it asks for when that is off by this share."""

MARGIN = 0.05
"""The rule of more samples asks for so much more at first: by how much later is up to its violations."""

WARM_UP_SAMPLES = 6
"""For so many samples of a container there is no record worth the name."""

FORGETS = 0.99
"""Of its record, an expert keeps this share from sample to sample."""

RECORDED = 3.0
"""A violation counts so many times its price in the record: the plan is corrected for its own, a rule is new."""

GAIN, PATIENCE, CALMS = 0.02, 5.0, 0.98
"""Of the correction: 2 % a violation, doubled with each one after the fifth in a row, calm a hundred samples later."""

MOST_SAVED = 2.0
"""Resizes that can be saved up."""


@njit(cache=True, nogil=True, error_model="numpy")
def updated_correction(
    correction: float, gain: float, streak: float, violated: bool, short: bool, target: float
) -> tuple[float, float, float]:
    """A container's correction after one more sample, a logarithm by which its demand is larger than forecast.

    Parameters
    ----------
    correction, gain, streak
        The logarithm, at least 0; its gain; violations in a row.
    violated
        Whether the sample was above what was in force.
    short
        Whether it is also above what was asked for since. Where it is not, the remedy is under way: a long row of such
        violations says that nothing is applied, and more correction would not help.
    target
        Share of samples that may be.

    Returns
    -------
    correction, gain, streak

    Notes
    -----
    Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021, equation 2) on the logarithm of the allocation, with a
    gain that grows while it is plainly too slow. Up and down use the same gain, which is what holds the share. The gain
    doubles without bound: whoever is always above its allocation is corrected by any factor soon.
    """
    if not violated:
        gain = max(GAIN, gain * CALMS)
        return max(0.0, correction - gain * target), gain, 0.0
    streak += 1.0
    late = streak > PATIENCE
    if late and short:
        gain *= 2.0
    if short or not late:
        correction += gain * (1.0 - target)
    return correction, gain, streak


@njit(cache=True, nogil=True, error_model="numpy")
def largest_lately(k: int, rule: int, resource: int, standing: PlanArrays) -> float:
    """What a rule asks for, in floors; what it asked for last while that is near enough.

    It is for `may_change` to say whether a change is allowed.
    """
    recent, peaks, samples = standing.recent, standing.peaks, standing.samples[k]
    asked, correction = standing.asked[k, rule, resource], standing.correction[k, rule, resource]
    largest = 0.0
    if rule == SHORT_WINDOW:
        for place in range(min(samples, SHORT_WINDOW_SAMPLES)):
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
    correction, gain, streak = updated_correction(
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
    if standing.samples[k] <= WARM_UP_SAMPLES:
        standing.chosen[k, resource] = most
        return
    begins = standing.samples[k] <= 2 * WARM_UP_SAMPLES
    now = PLAN if begins else standing.chosen[k, resource]
    worth = (weights.resize + (credit if now == PLAN else 0.0)) * asked[k, now, resource]
    dearer = record[k, now, resource] - record[k, best, resource] > worth
    standing.chosen[k, resource] = best if dearer else now


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
