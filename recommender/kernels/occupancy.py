"""Occupancy and hazard of a phase graph: expected time in each phase, and probability that the present one ends.

Backward recursion of a semi-Markov chain (Howard, Dynamic Probabilistic Systems II, 1971). A context is the phase
before (0: none yet), the phase, and its dwell bucket: bucket b is 2**b up to 2**(b + 1) - 1 steps, the last is open.
The age within a bucket is not tracked: a step in bucket b leads into the next one with probability 1 / 2**b.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from recommender.kernels import FloatArray


@njit(cache=True, nogil=True)
def occupancy_by_context(
    hazard: FloatArray, followers: FloatArray, lead: int, ahead: int, occupancy: FloatArray
) -> None:
    """Fill OUT float64 (1 + phases, phases, buckets, phases) with the expected share of steps lead + 1 .. lead + ahead.

    `hazard`, float64 (1 + phases, phases, buckets), is the probability that a phase ends with the next step, by
    context; `followers`, float64 (1 + phases, phases, phases), that of each next phase, by the phase before and the one
    that ends. A change is in force after `lead` steps; `ahead` is at least one.
    """
    befores, phases, buckets = hazard.shape
    now, later = np.zeros(occupancy.shape), np.empty(occupancy.shape)
    entered = np.empty(phases)
    occupancy[:] = 0.0
    for phase in range(phases):
        now[:, phase, :, phase] = 1.0
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
def chance_to_end(hazard: FloatArray, within: int, ends: FloatArray) -> None:
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
