"""How much further memory rose than it had been of late, from each age of a run on."""

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
    age_steps: NDArray[np.int64],
    largest_bytes: NDArray[np.float64],
    octave_bytes: NDArray[np.float64],
    lately_before: NDArray[np.float64],
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
    age_steps
        IN OUT int64 (n,): samples since the start.
    largest_bytes
        IN OUT float64 (n,): the largest use so far, 0 before the first.
    octave_bytes
        IN OUT float64 (n, 2): the largest use in the last doubling of the age, and since; 0 where nothing was seen. The
        larger of both is what was used of late.
    lately_before
        IN OUT float64 (n, ring): what was used of late, after each of the last samples, written round and round.
    rises
        IN OUT float64 (n, ages): the largest ratio of a use to what was used of late when the allocation for it was
        decided, `lead` samples before, among the decisions from 1, 2, 4, ... samples on; 0 where there was none.
    """
    ring = lately_before.shape[1]
    for k in range(len(slots)):
        slot = slots[k]
        age = age_steps[slot]
        decided_at = age - lead + 1
        known = lately_before[slot, (age - lead) % ring]
        if age & (age - 1) == 0:
            octave_bytes[slot, 0], octave_bytes[slot, 1] = octave_bytes[slot, 1], 0.0
        if not math.isnan(memory_bytes[k]):
            if decided_at >= 1 and known > 0.0:
                begins = 1
                for column in range(rises.shape[1]):
                    if decided_at < begins:
                        break
                    rises[slot, column] = max(rises[slot, column], memory_bytes[k] / known)
                    begins *= 2
            largest_bytes[slot] = max(largest_bytes[slot], memory_bytes[k])
            octave_bytes[slot, 1] = max(octave_bytes[slot, 1], memory_bytes[k])
        lately_before[slot, age % ring] = max(octave_bytes[slot, 0], octave_bytes[slot, 1])
        age_steps[slot] = age + 1
