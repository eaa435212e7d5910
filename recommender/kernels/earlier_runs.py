"""The moment of earlier runs that is most like the present one of another run, and the peak use after it."""

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
