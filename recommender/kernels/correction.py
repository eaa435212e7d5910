"""What a container's own past adds to or takes from what was learned of others."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Ledger(NamedTuple):
    """What an allocation and the use under it came to, per resource.

    Attributes
    ----------
    allocated
        float64 (2,): what holds now; NaN before the first decision.
    margin
        float64 (2,): natural logarithm by which allocations are moved.
    over
        int64 (2,): violating samples of the running cycle.
    samples
        int64 (1,): samples of the running cycle.
    """

    allocated: NDArray[np.float64]
    margin: NDArray[np.float64]
    over: NDArray[np.int64]
    samples: NDArray[np.int64]


class Pace(NamedTuple):
    """How fast the margin follows.

    Attributes
    ----------
    gain
        Rise of the margin after a cycle of nothing but violations.
    target
        float64 (2,): share of violating samples that leaves the margin as it is.
    lowest, highest
        Bounds of the margin.
    """

    gain: float
    target: NDArray[np.float64]
    lowest: float
    highest: float


@njit(cache=True, nogil=True)
def settle(
    usage: NDArray[np.float64],
    decisions: NDArray[np.int64],
    learned: NDArray[np.float64],
    tolerance: float,
    pace: Pace,
    ledger: Ledger,
    allocations: NDArray[np.float64],
) -> None:
    """Move each allocation by the margin that the cycles before it earned.

    After a cycle the margin moves by gain x (share of violating samples - target): adaptive conformal inference (Gibbs
    and Candes, NeurIPS 2021) with the margin in place of the level, so that a container that violates too often gets
    more, and one that never does gets tighter.

    Parameters
    ----------
    usage
        float64 (n, 2): cores and bytes, NaN in gaps.
    decisions
        int64 (d,), increasing positions.
    learned
        float64 (d, 2): allocations before the correction.
    tolerance
        A sample violates above allocation x tolerance.
    pace
        How fast.
    ledger
        IN and OUT: state before and after these samples.
    allocations
        OUT float64 (d, 2).
    """
    number = 0
    for position in range(len(usage) + 1):
        while number < len(decisions) and decisions[number] == position:
            _close(pace, ledger)
            for resource in range(2):
                ledger.allocated[resource] = learned[number, resource] * math.exp(ledger.margin[resource])
                allocations[number, resource] = ledger.allocated[resource]
            number += 1
        if position == len(usage) or math.isnan(usage[position, 0]) or math.isnan(ledger.allocated[0]):
            continue
        ledger.samples[0] += 1
        for resource in range(2):
            if usage[position, resource] > tolerance * ledger.allocated[resource]:
                ledger.over[resource] += 1


@njit(cache=True, nogil=True)
def _close(pace: Pace, ledger: Ledger) -> None:
    """Settle the cycle just ended."""
    if ledger.samples[0] > 0:
        for resource in range(2):
            share = ledger.over[resource] / ledger.samples[0]
            moved = ledger.margin[resource] + pace.gain * (share - pace.target[resource])
            ledger.margin[resource] = min(max(moved, pace.lowest), pace.highest)
            ledger.over[resource] = 0
        ledger.samples[0] = 0
