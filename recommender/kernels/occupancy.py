"""Occupancy and hazard of a phase graph: expected time in each phase, and probability that the present one ends.

Backward recursion of a semi-Markov chain (Howard, Dynamic Probabilistic Systems II, 1971). A context is the phase
before (0: none yet), the phase, and its dwell bucket: bucket b is 2**b up to 2**(b + 1) - 1 steps, the last is open.
The age within a bucket is not tracked: a step in bucket b leads into the next one with probability 1 / 2**b.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True, inline="always")
def _begin(now: NDArray[np.float64], occupancy: NDArray[np.float64]) -> None:
    """Initialise at step 0: each context is in its phase with certainty; both OUT.

    Scalar loops, here and below: array expressions take seconds to compile.
    """
    befores, phases, buckets, _ = now.shape
    for before in range(befores):
        for phase in range(phases):
            for bucket in range(buckets):
                for at in range(phases):
                    now[before, phase, bucket, at] = 1.0 if at == phase else 0.0
                    occupancy[before, phase, bucket, at] = 0.0


@njit(cache=True, nogil=True)
def occupancy_by_context(
    hazard: NDArray[np.float64],
    followers: NDArray[np.float64],
    lead: int,
    ahead: int,
    occupancy: NDArray[np.float64],
) -> None:
    """Fill the table of expected occupancy: a row per context, whatever the number of containers.

    Parameters
    ----------
    hazard
        float64 (1 + phases, phases, buckets): probability that a phase ends with the next step, by context.
    followers
        float64 (1 + phases, phases, phases): probability of each next phase, by the phase before and the one that ends.
    lead
        Steps until a change is in force.
    ahead
        Horizon after those, at least one step.
    occupancy
        OUT float64 (1 + phases, phases, buckets, phases): expected share of steps lead + 1 .. lead + ahead.
    """
    befores, phases, buckets = hazard.shape
    now, later = np.empty((befores, phases, buckets, phases)), np.empty((befores, phases, buckets, phases))
    entered = np.empty(phases)
    _begin(now, occupancy)
    for step in range(1, lead + ahead + 1):
        for before in range(befores):
            for phase in range(phases):
                for at in range(phases):
                    entered[at] = 0.0
                for following in range(phases):
                    chance = followers[before, phase, following]
                    if chance > 0.0:
                        for at in range(phases):
                            entered[at] += chance * now[phase + 1, following, 0, at]
                for bucket in range(buckets):
                    ends, ages = hazard[before, phase, bucket], 1.0 / 2.0**bucket
                    younger, older = now[before, phase, bucket], now[before, phase, min(bucket + 1, buckets - 1)]
                    for at in range(phases):
                        stayed = (1.0 - ages) * younger[at] + ages * older[at]
                        share = (1.0 - ends) * stayed + ends * entered[at]
                        later[before, phase, bucket, at] = share
                        if step > lead:
                            occupancy[before, phase, bucket, at] += share / ahead
        now, later = later, now


@njit(cache=True, nogil=True)
def chance_to_end(hazard: NDArray[np.float64], within: int, ends: NDArray[np.float64]) -> None:
    """Fill the probability that a phase ends within `within` steps: OUT float64 (1 + phases, phases, buckets)."""
    befores, phases, buckets = hazard.shape
    survival = np.empty(buckets)
    for before in range(befores):
        for phase in range(phases):
            for bucket in range(buckets):
                survival[bucket] = 1.0
            for _ in range(within):
                for bucket in range(buckets):  # in ascending order: the next bucket still has the previous step
                    ages, older = 1.0 / 2.0**bucket, survival[min(bucket + 1, buckets - 1)]
                    stayed = (1.0 - ages) * survival[bucket] + ages * older
                    survival[bucket] = (1.0 - hazard[before, phase, bucket]) * stayed
            for bucket in range(buckets):
                ends[before, phase, bucket] = 1.0 - survival[bucket]
