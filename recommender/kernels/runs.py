"""Runs of a class: the moment of earlier ones most like the present one of another, and the peak use after it; and the
largest relative rise of a run's memory above its recent peak, by its age.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import FloatArray, IntArray


@njit(cache=True, nogil=True, error_model="numpy")
def peak_after_nearest(
    here: NDArray[np.float32], features: NDArray[np.float32], cpu_cores: NDArray[np.float32], starts: IntArray,
    step_s: FloatArray, passed_s: float, ahead_s: FloatArray, squared_distances: FloatArray, peak_cores: FloatArray,
) -> None:  # fmt: skip
    """Find the moment of each run that is nearest to `here`, the first of equal ones, and the peak use after it.

    `here`, float32 (p,), are the features of the other run at its latest sample, `passed_s` ago, scaled to equal
    weight. Without a sample it is (0,): the moment is then found by age, `passed_s` after the start. `features` and
    `cpu_cores`, float32 (samples, p) and (samples,), are those of the earlier runs at each of their samples; `starts`
    and `step_s`, int64 (runs + 1,) and float64 (runs,), the first sample and sampling interval of each.

    `squared_distances` is OUT float64 (runs,): of the nearest moment; 0 where it was found by age. `peak_cores` is OUT
    float64 (runs, w): within `ahead_s`, float64 (w,), from now; the last use of a run that has ended by then.
    """
    for run in range(len(step_s)):
        begin, number = starts[run], starts[run + 1] - starts[run]
        squared_distances[run], after_s = 0.0, passed_s
        if len(here):
            squared_distances[run] = math.inf
            for place in range(number):
                squared = 0.0
                for feature in range(len(here)):
                    difference = features[begin + place, feature] - here[feature]
                    squared += difference * difference
                if squared < squared_distances[run]:
                    squared_distances[run], after_s = squared, (place + 1) * step_s[run] + passed_s
        first = min(int(after_s / step_s[run] + 1e-9), number - 1)
        for window in range(len(ahead_s)):
            last = min(number, math.ceil((after_s + ahead_s[window]) / step_s[run] - 1e-9))
            peak_cores[run, window] = cpu_cores[begin + first]
            for place in range(first + 1, last):
                peak_cores[run, window] = max(peak_cores[run, window], cpu_cores[begin + place])


@njit(cache=True, nogil=True)
def observe_memory(
    slots: IntArray, memory_bytes: FloatArray, lead: int, age_steps: IntArray, largest_bytes: FloatArray,
    octave_bytes: FloatArray, lately_before: FloatArray, rises: FloatArray, again: bool,
) -> None:  # fmt: skip
    """Add the next sample of each container, or `again` one of its latest step: of the first where there was none.

    Parameters
    ----------
    slots, memory_bytes
        int64 and float64 (m,): containers and their next samples, in order; NaN in gaps, which count for the age.
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
