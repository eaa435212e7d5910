"""What an allocation did to a container: used, wasted, short, violated, killed, in one pass."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Places in the two result arrays of `tally_allocations`; pairs are cpu, then memory.
JUDGED_S, USED, ALLOCATED, SLACK, SHORTAGE, N_SUMS = 0, 1, 3, 5, 7, 9
SAMPLES, VIOLATIONS, OOM_EVENTS, RESIZES, N_COUNTS = 0, 1, 3, 4, 5


@njit(cache=True, nogil=True)
def tally_allocations(
    usage: NDArray[np.float64],
    decisions: NDArray[np.int64],
    allocations: NDArray[np.float64],
    durations_s: NDArray[np.float64],
    tolerance: float,
    rounding: float,
    sums: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Judge every sample from the first decision on against the allocation in force.

    Parameters
    ----------
    usage
        float64 (n, 2), cores and bytes, NaN in gaps.
    decisions
        int64 (d,), increasing positions in 0..n-1, d >= 1; each holds up to the next.
    allocations
        float64 (d, 2), cores and bytes.
    durations_s
        float64 (n,): how long each sample stands for.
    tolerance
        A sample violates when its use is above allocation x tolerance.
    rounding
        Relative excess that counts as equal, so that a product that is equal on paper is equal here.
    sums
        OUT float64 (N_SUMS,): judged seconds, then used, allocated, slack, shortage in unit-seconds, cpu and memory.
    counts
        OUT int64 (N_COUNTS,): samples, violations of cpu and memory, OOM events, resizes.

    Notes
    -----
    An OOM event is a run of memory samples above the allocation; neither a gap nor a decision ends it, only a sample
    at or below the allocation does.
    """
    sums[:] = 0.0
    counts[:] = 0
    slightly_more = 1.0 + rounding
    in_run = False
    for decision in range(len(decisions)):
        end = decisions[decision + 1] if decision + 1 < len(decisions) else usage.shape[0]
        if decision and (
            allocations[decision, 0] != allocations[decision - 1, 0]
            or allocations[decision, 1] != allocations[decision - 1, 1]
        ):
            counts[RESIZES] += 1
        for row in range(decisions[decision], end):
            if math.isnan(usage[row, 0]):
                continue
            counts[SAMPLES] += 1
            sums[JUDGED_S] += durations_s[row]
            for resource in range(2):
                used, allocated = usage[row, resource], allocations[decision, resource]
                sums[USED + resource] += used * durations_s[row]
                sums[ALLOCATED + resource] += allocated * durations_s[row]
                if allocated > used:
                    sums[SLACK + resource] += (allocated - used) * durations_s[row]
                else:
                    sums[SHORTAGE + resource] += (used - allocated) * durations_s[row]
                if used > allocated * tolerance * slightly_more:
                    counts[VIOLATIONS + resource] += 1
            over = usage[row, 1] > allocations[decision, 1] * slightly_more
            if over and not in_run:
                counts[OOM_EVENTS] += 1
            in_run = over
