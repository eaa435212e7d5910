"""Where a phase graph will be: expected time in each phase, and the chance that the present one ends, by context.

A semi-Markov chain (Howard, Dynamic Probabilistic Systems II, 1971) from the horizon backwards. Contexts are the phase
before (0: none yet), the phase, and how long it has lasted: bucket b is 2**b up to 2**(b + 1) - 1 steps, the last is
open. The age inside a bucket is not kept: of the steps in bucket b one in 2**b leads into the next.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def _begin(now: NDArray[np.float64], occupancy: NDArray[np.float64]) -> None:
    """Everybody is in the phase of the context, and nothing has passed; both OUT.

    One number after the other, here and below: to compile what is done with whole arrays takes seconds.
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
    """Fill the table that a decision looks up: one row for each context, whatever the number of containers.

    Parameters
    ----------
    hazard
        float64 (1 + phases, phases, buckets): chance that a phase ends with the next step, by context.
    followers
        float64 (1 + phases, phases, phases): chance of each next phase, by the phase before and the phase that ends.
    lead
        Steps until a change is in force.
    ahead
        Steps after those that are looked at, at least one.
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
                    leaves, ages = hazard[before, phase, bucket], 1.0 / 2.0**bucket
                    younger, older = now[before, phase, bucket], now[before, phase, min(bucket + 1, buckets - 1)]
                    for at in range(phases):
                        stayed = (1.0 - ages) * younger[at] + ages * older[at]
                        share = (1.0 - leaves) * stayed + leaves * entered[at]
                        later[before, phase, bucket, at] = share
                        if step > lead:
                            occupancy[before, phase, bucket, at] += share / ahead
        now, later = later, now


@njit(cache=True, nogil=True)
def chance_to_end(hazard: NDArray[np.float64], within: int, ends: NDArray[np.float64]) -> None:
    """Fill the chance that the present phase ends within so many steps, OUT float64 (1 + phases, phases, buckets)."""
    befores, phases, buckets = hazard.shape
    stays = np.empty(buckets)
    for before in range(befores):
        for phase in range(phases):
            for bucket in range(buckets):
                stays[bucket] = 1.0
            for _ in range(within):
                for bucket in range(buckets):  # upwards: the older one is still that of the step before
                    ages, older = 1.0 / 2.0**bucket, stays[min(bucket + 1, buckets - 1)]
                    kept = (1.0 - ages) * stays[bucket] + ages * older
                    stays[bucket] = (1.0 - hazard[before, phase, bucket]) * kept
            for bucket in range(buckets):
                ends[before, phase, bucket] = 1.0 - stays[bucket]
