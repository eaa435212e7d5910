"""Deciding one cycle after the other, each time by what the cycles before taught about this very container."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.demand import Grid, cheapest_knot

Ledger = NDArray[np.float64]
"""One resource of one container, float64 (N_LEDGER,): what holds, what was expected of it, and what came."""

ALLOCATED, EXPECTED, HASTE, OVER, SAMPLES, N_LEDGER = 0, 1, 2, 3, 4, 5
"""Places in a ledger: cores or bytes that hold now (NaN before the first decision), the share of samples expected to
violate under it, the natural logarithm of the factor on the price of a violation, and of the running cycle the
violating samples and all samples."""


def fresh_ledgers(number: int) -> NDArray[np.float64]:
    """float64 (number, N_LEDGER): ledgers before the first decision."""
    ledgers = np.zeros((number, N_LEDGER))
    ledgers[:, ALLOCATED] = np.nan
    return ledgers


class Pace(NamedTuple):
    """How fast the price follows.

    Attributes
    ----------
    gain
        Rise of its logarithm after a cycle of nothing but unexpected violations.
    lowest, highest
        Bounds of the logarithm of the factor.
    tolerance
        A sample violates above allocation x tolerance.
    """

    gain: float
    lowest: float
    highest: float
    tolerance: float


@njit(cache=True, nogil=True)
def decide_in_turn(
    used: NDArray[np.float64],
    decisions: NDArray[np.int64],
    pooled: NDArray[np.float32],
    references: NDArray[np.float64],
    bounds: NDArray[np.float64],
    grid: Grid,
    price: tuple[float, float],
    pace: Pace,
    ledger: Ledger,
    outcome: NDArray[np.float64],
) -> None:
    """Allocate at each decision what is cheapest at this container's own price of a violation.

    After a cycle the logarithm of the price moves by gain x (share of violating samples - share that was expected), as
    adaptive conformal inference (Gibbs and Candes, NeurIPS 2021) moves its level. A container that does what similar
    ones did keeps the common price, at which violations are spent where they save most; one that surprises gets its
    own.

    Parameters
    ----------
    used
        float64 (n,): cores or bytes, NaN in gaps.
    decisions
        int64 (d,), increasing positions.
    pooled
        float32 (d, g): expected samples at or below each knot.
    references
        float64 (d,): what the knots are relative to.
    bounds
        float64 (d, 2): never less than the first and never more than the second, cores or bytes.
    grid
        The knots.
    price
        Common price of a violation, and fairness, see `cheapest_knot`.
    pace
        How fast the price follows.
    ledger
        IN and OUT: state before and after these samples.
    outcome
        OUT float64 (d, 3): allocation, share expected to be covered, natural logarithm of the factor on the price.
    """
    number = 0
    for position in range(len(used) + 1):
        while number < len(decisions) and decisions[number] == position:
            if ledger[SAMPLES] > 0:
                surprise = ledger[OVER] / ledger[SAMPLES] - ledger[EXPECTED]
                ledger[HASTE] = min(max(ledger[HASTE] + pace.gain * surprise, pace.lowest), pace.highest)
                ledger[OVER], ledger[SAMPLES] = 0, 0
            own_price = price[0] * math.exp(ledger[HASTE])
            best, covered = cheapest_knot(pooled[number], grid, references[number], own_price, price[1])
            cheapest = references[number] * grid.level[best]
            ledger[ALLOCATED] = max(min(cheapest, bounds[number, 1]), bounds[number, 0])
            ledger[EXPECTED] = 1.0 - covered
            outcome[number, 0] = ledger[ALLOCATED]
            outcome[number, 1] = covered
            outcome[number, 2] = ledger[HASTE]
            number += 1
        if position == len(used) or math.isnan(used[position]) or math.isnan(ledger[ALLOCATED]):
            continue
        ledger[SAMPLES] += 1
        if used[position] > pace.tolerance * ledger[ALLOCATED]:
            ledger[OVER] += 1


@njit(cache=True, nogil=True)
def decide_each(
    used: NDArray[np.float64],
    borders: NDArray[np.int64],
    pooled: NDArray[np.float32],
    references: NDArray[np.float64],
    bounds: NDArray[np.float64],
    grid: Grid,
    price: tuple[float, float],
    pace: Pace,
    ledgers: NDArray[np.float64],
    outcomes: NDArray[np.float64],
) -> None:
    """`decide_in_turn` of many containers, with one decision of each after its samples.

    Parameters
    ----------
    used
        float64 (n,): the samples of all, those of one container side by side.
    borders
        int64 (m + 1,): where each container's begin, and the end.
    pooled, references, bounds
        As there, a row of each container.
    grid, price, pace
        As there.
    ledgers
        IN and OUT float64 (m, N_LEDGER).
    outcomes
        OUT float64 (m, 3).
    """
    last = np.empty(1, np.int64)
    for row in range(len(borders) - 1):
        begin, end, one = borders[row], borders[row + 1], slice(row, row + 1)
        last[0] = end - begin
        decide_in_turn(
            used[begin:end], last, pooled[one], references[one], bounds[one],
            grid, price, pace, ledgers[row], outcomes[one],
        )  # fmt: skip


@njit(cache=True, nogil=True)
def rehearse(
    coming: NDArray[np.float64],
    owners: NDArray[np.int64],
    pooled: NDArray[np.float32],
    references: NDArray[np.float64],
    grid: Grid,
    price: tuple[float, float],
    pace: Pace,
    results: NDArray[np.float64],
) -> None:
    """What `decide_in_turn` would have come to in training moments, container after container.

    Parameters
    ----------
    coming
        float64 (m, cycle): the samples that came, cores or bytes, NaN where there is none.
    owners
        int64 (m,): the container of each moment; those of one stand together in order of time.
    pooled, references, grid, price, pace
        As there.
    results
        OUT float64 (m, 2): slack, and violating samples.
    """
    haste = 0.0
    for row in range(len(coming)):
        if row > 0 and owners[row] != owners[row - 1]:
            haste = 0.0
        best, covered = cheapest_knot(pooled[row], grid, references[row], price[0] * math.exp(haste), price[1])
        allocated = references[row] * grid.level[best]
        slack, over, samples = 0.0, 0, 0
        for sample in range(coming.shape[1]):
            used = coming[row, sample]
            if math.isnan(used):
                continue
            samples += 1
            slack += max(allocated - used, 0.0)
            if used > pace.tolerance * allocated:
                over += 1
        results[row, 0] = slack
        results[row, 1] = over
        if samples > 0:
            surprise = over / samples - (1.0 - covered)
            haste = min(max(haste + pace.gain * surprise, pace.lowest), pace.highest)
