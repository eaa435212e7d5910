"""Where earlier runs were as far as another one is now, and what they used soon after that."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True, error_model="numpy")
def look_ahead(
    here: NDArray[np.float32],
    points: NDArray[np.float32],
    cpu_cores: NDArray[np.float32],
    starts: NDArray[np.int64],
    step_s: NDArray[np.float64],
    passed_s: float,
    ahead_s: NDArray[np.float64],
    squares: NDArray[np.float64],
    largest_cores: NDArray[np.float64],
) -> None:
    """In each run find the moment most like `here`, the first of equal ones, and the largest use in the time after it.

    Parameters
    ----------
    here
        float32 (p,): where the other run was after its latest sample, in units in which all directions count alike;
        (0,) where nothing was seen of it: its age tells then.
    points, cpu_cores
        float32 (samples, p) and (samples,): where the runs were after each sample, and what they used in it.
    starts, step_s
        int64 (runs + 1,) and float64 (runs,): where each run begins among them, and how far apart its samples are.
    passed_s
        From that latest sample, or the start, until now.
    ahead_s
        float64 (w,): how far to look from now on.
    squares
        OUT float64 (runs,): how unlike the moment is, squared; 0 where the age tells.
    largest_cores
        OUT float64 (runs, w): of a run that is at its end by then, its last use.
    """
    for run in range(len(step_s)):
        begin, number = starts[run], starts[run + 1] - starts[run]
        squares[run], after_s = 0.0, passed_s
        if len(here):
            squares[run] = math.inf
            for place in range(number):
                square = 0.0
                for way in range(len(here)):
                    apart = points[begin + place, way] - here[way]
                    square += apart * apart
                if square < squares[run]:
                    squares[run], after_s = square, (place + 1) * step_s[run] + passed_s
        first = min(int(after_s / step_s[run] + 1e-9), number - 1)
        for window in range(len(ahead_s)):
            last = min(number, math.ceil((after_s + ahead_s[window]) / step_s[run] - 1e-9))
            largest_cores[run, window] = cpu_cores[begin + first]
            for place in range(first + 1, last):
                largest_cores[run, window] = max(largest_cores[run, window], cpu_cores[begin + place])
