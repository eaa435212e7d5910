"""Largest relative rise of a run's memory above its recent peak, by the age of the run."""

from __future__ import annotations

import math

from numba import njit

from recommender.kernels import FloatArray, IntArray


@njit(cache=True, nogil=True)
def observe_memory(
    slots: IntArray, memory_bytes: FloatArray, lead: int, age_steps: IntArray, largest_bytes: FloatArray,
    octave_bytes: FloatArray, lately_before: FloatArray, rises: FloatArray, again: bool,
) -> None:  # fmt: skip
    """Add the next sample of each container, or `again` one of its latest step: of the first where there was none.

    Parameters
    ----------
    slots, memory_bytes
        int64 and float64 (m,): containers, each at most once in the next step; NaN in gaps, which count for the age.
    lead
        Steps from the last sample known to a decision to the first one under it, less than `ring`.
    age_steps, largest_bytes
        IN OUT int64 and float64 (n,): samples since the start, and the peak so far, 0 before the first sample.
    octave_bytes
        IN OUT float64 (n, 2): peaks in the last completed doubling of the age, and since; 0 without samples. The larger
        of both is the recent peak.
    lately_before
        IN OUT float64 (n, ring): ring buffer of the recent peak after each sample.
    rises
        IN OUT float64 (n, ages): largest ratio of a sample to the recent peak at the decision on it, `lead` samples
        before, among the decisions from age 1, 2, 4, ... on; 0 without one.
    """
    ring = lately_before.shape[1]
    for k in range(len(slots)):
        slot = slots[k]
        age = max(0, age_steps[slot] - 1) if again else age_steps[slot]
        decided_at = age - lead + 1
        known_peak = lately_before[slot, (age - lead) % ring]
        if not again and age & (age - 1) == 0:
            octave_bytes[slot, 0], octave_bytes[slot, 1] = octave_bytes[slot, 1], 0.0
        if not math.isnan(memory_bytes[k]):
            if decided_at >= 1 and known_peak > 0.0:
                from_age = 1
                for column in range(rises.shape[1]):
                    if decided_at < from_age:
                        break
                    rises[slot, column] = max(rises[slot, column], memory_bytes[k] / known_peak)
                    from_age *= 2
            largest_bytes[slot] = max(largest_bytes[slot], memory_bytes[k])
            octave_bytes[slot, 1] = max(octave_bytes[slot, 1], memory_bytes[k])
        lately_before[slot, age % ring] = max(octave_bytes[slot, 0], octave_bytes[slot, 1])
        age_steps[slot] = age + 1
