"""How much further memory rose than it ever had been, from each age of a run on."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def observe_memory(
    slots: NDArray[np.int64],
    memory_bytes: NDArray[np.float64],
    lead: int,
    first_age: float,
    age_steps: NDArray[np.int64],
    largest_bytes: NDArray[np.float64],
    largest_before: NDArray[np.float64],
    rises: NDArray[np.float64],
) -> None:
    """Take in the next sample of each container.

    Parameters
    ----------
    slots
        int64 (m,): containers, each at most once.
    memory_bytes
        float64 (m,): NaN where there is no sample; the container grows older all the same.
    lead
        Steps from the last sample that a decision knows to the first one under it, at most `ring`.
    first_age
        Steps from the start at which the first column of `rises` begins; each further one begins at twice the age.
    age_steps
        IN OUT int64 (n,): samples since the start.
    largest_bytes
        IN OUT float64 (n,): the largest use so far, 0 before the first.
    largest_before
        IN OUT float64 (n, ring): the largest use after each of the last samples, written round and round.
    rises
        IN OUT float64 (n, ages): the largest ratio of a use to the largest use that was known when the allocation for
        it was decided, `lead` samples before, among the decisions from that age on; 0 where there was none.
    """
    ring = largest_before.shape[1]
    for k in range(len(slots)):
        slot = slots[k]
        age = age_steps[slot]
        decided_at = age - lead + 1
        known = largest_before[slot, (age - lead) % ring]
        if not math.isnan(memory_bytes[k]):
            if decided_at >= 1 and known > 0.0:
                begins = first_age
                for column in range(rises.shape[1]):
                    if decided_at < begins:
                        break
                    rises[slot, column] = max(rises[slot, column], memory_bytes[k] / known)
                    begins *= 2.0
            largest_bytes[slot] = max(largest_bytes[slot], memory_bytes[k])
        largest_before[slot, age % ring] = largest_bytes[slot]
        age_steps[slot] = age + 1
