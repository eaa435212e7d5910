"""Largest, mean and spread of use per cycle; a gap is a NaN and is passed over."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def cycle_statistics(
    usage: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    peak: NDArray[np.float64],
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Largest, mean and population standard deviation of each column over stretches of samples.

    Parameters
    ----------
    usage
        float64 (n, c), any unit; a row whose first column is NaN is a gap.
    starts, ends
        int64 (d,): stretch i holds the rows starts[i] up to but not including ends[i].
    peak, mean, spread
        OUT float64 (d, c), in the unit of `usage`; NaN where the stretch holds no sample.
    counts
        OUT int64 (d,): samples in the stretch.
    """
    columns = usage.shape[1]
    for stretch in range(len(starts)):
        start, end = starts[stretch], ends[stretch]
        present = 0
        for row in range(start, end):
            if not math.isnan(usage[row, 0]):
                present += 1
        counts[stretch] = present
        for column in range(columns):
            if present == 0:
                peak[stretch, column] = mean[stretch, column] = spread[stretch, column] = np.nan
                continue
            total, largest = 0.0, -np.inf
            for row in range(start, end):
                if not math.isnan(usage[row, 0]):
                    total += usage[row, column]
                    largest = max(largest, usage[row, column])
            rough = total / present
            # A second pass about the rough mean: bytes are too large, and too steady, for sums of squares.
            residue, squares = 0.0, 0.0
            for row in range(start, end):
                if not math.isnan(usage[row, 0]):
                    off = usage[row, column] - rough
                    residue += off
                    squares += off * off
            peak[stretch, column] = largest
            mean[stretch, column] = rough + residue / present
            spread[stretch, column] = math.sqrt(max(0.0, squares / present - (residue / present) ** 2))
