"""Experts on the CPU of a container: each asks for an amount, is charged for it, and the cheapest one decides.

Prediction with expert advice (Cesa-Bianchi and Lugosi, 2006, chapters 2 and 5): what each expert asks for is charged
with one loss, whether it decides or not, and the past is discounted, so that the choice tracks the best expert. A new
container starts with the losses of the runs that its class, or the training data, has seen.

Amounts are in floors, see `coming_demand`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from recommender.kernels import BoolArray, FloatArray, IntArray
from recommender.kernels.coming_demand import LEVEL_SAMPLES, Expected, Terms, Visits, cheapest_allocation

WINDOW_SAMPLES, BLOCKS = 10, 4
"""Samples that are kept, and in one of the blocks of which only the peak is."""

SHORT_SAMPLES = 3
"""The short window; the long one is all that is kept."""

MARGINS = np.array([0.06, 0.15, 0.35])
"""Of the peak of a window, as a share of it."""

GRAPH, CLASS, PAST, WINDOWS = 0, 1, 2, 3
EXPERTS = REQUEST = WINDOWS + 2 * len(MARGINS)
"""The phase graph, earlier runs of the class, the container's own past; and the peak of its latest samples with each
margin, first over the short window, then over the long one. After them comes what is requested."""

LEAD_SAMPLES = 2
"""Samples from a decision until it is in force."""

BAND = 0.1
"""Less is asked for only if it is less by more than this share."""

PRICE, PRICE_GAIN = 3.0, 0.05
"""Price of a violation, in multiples of the mean use; and gain of a container's own factor on it."""

LEAST_FACTOR, MOST_FACTOR = 1.0 / 3.0, 8.0
"""Bounds of that factor: after any calm, some violations raise the price again."""

LEAST_PRICE = 2.0
"""Of a violation for the graph: near 1, it is cheapest to request less than what is used now."""

DISCOUNT, PRIOR_SAMPLES = 0.99, 100.0
"""Of the losses of an expert, per sample; and the weight of those that were known before, in samples."""

SIZE_PRIOR_SAMPLES = 10.0
"""Weight of the mean use of the training data in a container's mean use, in samples."""

SAVED_CHANGES, MAX_DEBT = 2.0, 8.0
"""Changes that experts without experience can save up; and that raises beyond the budget can owe: nothing falls until
these are made up for."""


class Weights(NamedTuple):
    """The objective."""

    target: float
    """Share of samples that may violate."""
    resize: float
    """Price of a change, as a share of the new amount."""
    changes_per_sample: float
    changes_per_hour: float
    """Changes added to the budget with each sample, and how many can be saved up."""
    tolerance: float
    """Use above an allocation x this is a violation."""
    mean: float
    """Mean use in the training data, in floors."""


class ExpertArrays(NamedTuple):
    """State per container (slot)."""

    samples: IntArray
    """int64 (n,): samples so far."""
    total: FloatArray
    """float64 (n,): their sum, in floors."""
    recent: FloatArray
    """float64 (n, WINDOW_SAMPLES): ring buffer of the latest samples."""
    peaks: FloatArray
    """float64 (n, BLOCKS): ring buffer of the peaks of the current and the preceding blocks."""
    asked: FloatArray
    """float64 (n, EXPERTS + 1): what each asks for, NaN for nothing, and what is requested, NaN before the first."""
    lately: FloatArray
    """float64 (n, LEAD_SAMPLES, EXPERTS + 1): ring buffer of that before the latest samples."""
    record: FloatArray
    """float64 (n, EXPERTS): discounted loss of each so far, in floors."""
    prior: FloatArray
    """float64 (n, EXPERTS): loss of each that is known from before, as a multiple of the mean over all experts."""
    losses: FloatArray
    charged: FloatArray
    """float64 (n, EXPERTS): losses in this run, in floors, and the mean ones of all experts in the same samples."""
    budget: FloatArray
    """float64 (n, EXPERTS + 1): changes left to each, and to the request."""
    price_factor: FloatArray
    """float64 (n,): the container's own factor on the price of a violation."""
    chosen: IntArray
    """int64 (n,): the expert that decides."""


@njit(cache=True, nogil=True, error_model="numpy")
def level_now(k: int, state: ExpertArrays) -> float:
    """Level of the mean of the latest samples of container `k`."""
    recent, samples = state.recent, state.samples[k]
    seen = max(1, min(samples, LEVEL_SAMPLES))
    total = 0.0
    for back in range(1, seen + 1):
        total += recent[k, (samples - back) % recent.shape[1]]
    return math.log(total / seen + 1.0)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def mean_use(k: int, state: ExpertArrays, weights: Weights) -> float:
    """Mean use of a container, in floors, shrunk towards that of the training data."""
    return float((state.total[k] + SIZE_PRIOR_SAMPLES * weights.mean) / (state.samples[k] + SIZE_PRIOR_SAMPLES))


@njit(cache=True, nogil=True, error_model="numpy")
def size_of_violation(k: int, amount: float, state: ExpertArrays, weights: Weights) -> float:
    """What the price of a violation is a multiple of, for a container that uses this amount, in floors."""
    return float(max(mean_use(k, state, weights), amount))


@njit(cache=True, nogil=True, error_model="numpy")
def charge_experts(k: int, amount: float, state: ExpertArrays, weights: Weights) -> None:
    """Charge each expert for a sample: what it had reserved, the violation, and a change.

    One that asked for nothing is charged as much as the request, so that it neither gains nor loses.
    """
    place, asked, lately, record = state.samples[k] % LEAD_SAMPLES, state.asked, state.lately, state.record
    price = PRICE * state.price_factor[k] * size_of_violation(k, amount, state, weights)
    latest = (place + LEAD_SAMPLES - 1) % LEAD_SAMPLES
    costs, total, number = np.empty(EXPERTS), 0.0, 0
    requested = lately[k, place, REQUEST]
    neutral = requested + (price if amount > requested * weights.tolerance else 0.0)
    for expert in range(EXPERTS):
        in_force, newer = lately[k, place, expert], lately[k, latest, expert]
        cost = in_force + (price if amount > in_force * weights.tolerance else 0.0)
        if newer != in_force and not math.isnan(newer):
            cost += weights.resize * newer
        costs[expert] = cost
        if not math.isnan(in_force):
            total, number = total + cost, number + 1
    lately[k, place] = asked[k]
    for expert in range(EXPERTS):
        absent = math.isnan(costs[expert])
        cost = neutral if absent else costs[expert]
        record[k, expert] = DISCOUNT * record[k, expert] + (0.0 if math.isnan(cost) else cost)
        if not absent and total > 0.0:
            state.losses[k, expert] += costs[expert]
            state.charged[k, expert] += total / number


@njit(cache=True, nogil=True, error_model="numpy")
def observe_sample(k: int, amount: float, phase: int, state: ExpertArrays, visits: Visits, weights: Weights) -> None:
    """Add a sample of a container, in floors, and its phase; negative means unknown, the last."""
    phases = visits.own_samples.shape[1]
    now = phase if phase >= 0 else phases - 1
    if visits.dwell[k] == 0 or now != visits.phase[k]:
        visits.before[k] = visits.phase[k] + 1 if visits.dwell[k] > 0 else 0
        visits.phase[k], visits.dwell[k] = now, 0
    visits.dwell[k] += 1
    visits.own_samples[k, now] += 1.0
    visits.own_sum[k, now] += math.log(amount + 1.0)
    for budget in range(EXPERTS + 1):
        most = weights.changes_per_hour if budget in (CLASS, PAST, REQUEST) else SAVED_CHANGES
        left = state.budget[k, budget] + weights.changes_per_sample
        state.budget[k, budget] = most if state.samples[k] == 0 else min(left, most)
    place, block = state.samples[k] % WINDOW_SAMPLES, state.samples[k] // WINDOW_SAMPLES % BLOCKS
    state.samples[k] += 1
    state.total[k] += amount
    state.recent[k, place] = amount
    state.peaks[k, block] = max(state.peaks[k, block] if place > 0 else 0.0, amount)


@njit(cache=True, nogil=True, error_model="numpy")
def adjust_price(k: int, amount: float, in_force: float, target: float, state: ExpertArrays, weights: Weights) -> None:
    """Update a container's own factor on the price of a violation by a sample and what was in force for it.

    Dual ascent (Boyd et al., Foundations and Trends in Machine Learning 3, 2011, section 2.1): the price is the
    multiplier of the constraint that a share `target` of the samples may violate, so approached from both sides.
    """
    violated = 1.0 if amount > in_force * weights.tolerance else 0.0
    factor = state.price_factor[k] * math.exp(PRICE_GAIN * (violated - target))
    state.price_factor[k] = min(max(factor, LEAST_FACTOR), MOST_FACTOR)


@njit(cache=True, nogil=True, error_model="numpy")
def window_peaks(k: int, state: ExpertArrays) -> tuple[float, float]:
    """Peak use in the short and in the long window, in floors."""
    recent, samples, short, whole = state.recent, state.samples[k], 0.0, 0.0
    for back in range(1, min(samples, SHORT_SAMPLES) + 1):
        short = max(short, recent[k, (samples - back) % WINDOW_SAMPLES])
    for block in range(BLOCKS):
        whole = max(whole, state.peaks[k, block])
    return short, whole


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def ask(k: int, expert: int, least: float, wanted: float, state: ExpertArrays) -> None:
    """Let an expert, or the request, be what is wanted unless what it is now is enough, `least`, and little more.

    More is always granted; less only within the budget.
    """
    held, left = state.asked[k, expert], state.budget[k, expert]
    if math.isnan(held) or math.isnan(wanted):
        state.asked[k, expert] = wanted
    elif held < least or (held * (1.0 - BAND) > wanted and left >= 1.0):
        state.asked[k, expert], state.budget[k, expert] = wanted, max(left - 1.0, -MAX_DEBT)


@njit(cache=True, nogil=True, error_model="numpy")
def ask_graph_and_windows(
    k: int, table: int, state: ExpertArrays, visits: Visits, expected: Expected, weights: Weights
) -> None:
    """Ask the experts that need nothing but samples."""
    now = level_now(k, state)
    size, price = size_of_violation(k, math.exp(now), state, weights), max(LEAST_PRICE, PRICE * state.price_factor[k])
    held = state.asked[k, GRAPH]
    terms = Terms(price * size, weights.resize, weights.tolerance)
    wanted = cheapest_allocation(k, table, now, held, visits, expected, terms)
    if math.isnan(held) or wanted > held or state.budget[k, GRAPH] >= 1.0:
        if not math.isnan(held) and wanted != held:
            state.budget[k, GRAPH] = max(state.budget[k, GRAPH] - 1.0, -MAX_DEBT)
        state.asked[k, GRAPH] = wanted
    short, whole = window_peaks(k, state)
    for number in range(len(MARGINS)):
        for window, peak in ((0, short), (1, whole)):
            wanted = max(peak * (1.0 + MARGINS[number]), 1.0)
            ask(k, WINDOWS + window * len(MARGINS) + number, wanted / weights.tolerance, wanted, state)


@njit(cache=True, nogil=True, error_model="numpy")
def choose_and_request(k: int, allowed: BoolArray, state: ExpertArrays, weights: Weights) -> None:
    """Request what the expert with the least loss asks for, once it is ahead by a change; nothing if none asks."""
    asked, record, prior, weight = state.asked, state.record, state.prior, PRIOR_SAMPLES * mean_use(k, state, weights)
    best, least, chosen = -1, math.inf, state.chosen[k]
    for expert in range(EXPERTS):
        loss = record[k, expert] + weight * prior[k, expert]
        if loss < least and allowed[expert] and not math.isnan(asked[k, expert]):
            best, least = expert, loss
    if best < 0:
        return
    present = asked[k, chosen] if allowed[chosen] else math.nan
    ahead = record[k, chosen] + weight * prior[k, chosen] - least
    if math.isnan(present) or ahead > weights.resize * present:
        state.chosen[k] = best
    wanted = asked[k, state.chosen[k]]
    ask(k, REQUEST, wanted / weights.tolerance, wanted, state)


@njit(cache=True, nogil=True, error_model="numpy")
def observe_each(
    slots: IntArray, amounts: FloatArray, phases: IntArray, state: ExpertArrays, visits: Visits, weights: Weights
) -> None:
    """Add a sample of each of these containers, int64 and float64 (m,), each at most once."""
    for row in range(len(slots)):
        charge_experts(slots[row], amounts[row], state, weights)
        observe_sample(slots[row], amounts[row], phases[row], state, visits, weights)


@njit(cache=True, nogil=True, error_model="numpy")
def judge_each(
    slots: IntArray, amounts: FloatArray, in_force: FloatArray, targets: FloatArray, state: ExpertArrays,
    weights: Weights,
) -> None:  # fmt: skip
    """Adjust prices by the latest samples and the allocations in force, float64 (m,) in floors or NaN.

    `targets`, float64 (m,): share of samples that may violate.
    """
    for row in range(len(slots)):
        if not math.isnan(in_force[row]):
            adjust_price(slots[row], amounts[row], in_force[row], targets[row], state, weights)


@njit(cache=True, nogil=True, error_model="numpy")
def decide_each(
    slots: IntArray, tables: IntArray, sampled: BoolArray, told: FloatArray, allowed: BoolArray, state: ExpertArrays,
    visits: Visits, expected: Expected, weights: Weights,
) -> None:  # fmt: skip
    """Decide for each of these containers, int64 (m,), by the occupancy table of its class.

    `sampled`, bool (m,), whether graph and windows are asked as well. `told` is what its class and its own past need
    soon and for longer, float64 (m, 2, 2) in floors, NaN where they know nothing. `allowed`, bool (EXPERTS,): which may
    decide.
    """
    for row in range(len(slots)):
        k = slots[row]
        for number in range(2):
            ask(k, CLASS + number, told[row, number, 0], told[row, number, 1], state)
        if sampled[row]:
            ask_graph_and_windows(k, tables[row], state, visits, expected, weights)
        choose_and_request(k, allowed, state, weights)


@njit(cache=True, nogil=True, error_model="numpy")
def replay_run(
    k: int, table: int, amounts: FloatArray, phases: IntArray, decides: BoolArray,
    state: ExpertArrays, visits: Visits, expected: Expected, weights: Weights, requested: FloatArray,
) -> None:  # fmt: skip
    """Replay the samples of one container, float64 (n,) in floors, NaN in gaps, with graph and windows alone.

    `decides`, bool (n,): whether to decide after each. `requested` is OUT float64 (n,): what is in force at each, NaN
    before the first decision. `table` is an argument, since Numba would compile once more for a constant.
    """
    allowed = np.ones(EXPERTS, np.bool_)
    for row in range(len(amounts)):
        requested[row] = state.lately[k, state.samples[k] % LEAD_SAMPLES, REQUEST]
        if math.isnan(amounts[row]):
            continue
        if not math.isnan(requested[row]):
            adjust_price(k, amounts[row], requested[row], weights.target, state, weights)
        charge_experts(k, amounts[row], state, weights)
        observe_sample(k, amounts[row], phases[row], state, visits, weights)
        if decides[row]:
            ask_graph_and_windows(k, table, state, visits, expected, weights)
            choose_and_request(k, allowed, state, weights)
