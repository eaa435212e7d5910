"""Gap-free stretches of series, the windows inside them, and standardisation. Plain arithmetic on arrays.

A *segment* is a run of rows of one container without a gap; a *window* is `lag` rows of history and the row they lead
to, all of one segment. Where containers lie behind one another in one array, `segments` holds the borders: rows
``segments[i]:segments[i + 1]`` are segment i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import BoolArray, FloatArray, IntArray

Floats = NDArray[np.floating[Any]]

CONSTANT_COLUMN = 1e-12
"""A spread below this share of the level is rounding, not information: such a column is centred and not scaled."""


def gap_free(values: Floats) -> tuple[IntArray, IntArray]:
    """The rows, int64 (n_kept,), of one container that are no gap, and the segment borders among them, int64
    (n_segments + 1,); a row with anything not finite is a gap.

    Examples
    --------
    >>> rows, segments = gap_free(np.array([[1.0], [2.0], [np.nan], [3.0]]))
    >>> rows.tolist(), segments.tolist()
    ([0, 1, 3], [0, 2, 3])
    """
    rows = np.flatnonzero(np.isfinite(values).all(axis=1))
    begins = np.flatnonzero(np.diff(rows, prepend=-2) > 1)
    return rows, np.append(begins, len(rows))


def column_moments(values: Floats) -> tuple[FloatArray, FloatArray]:
    """float64 (n_features,) each: mean and standard deviation of each column over its finite values.

    The latter is 1 where a column is constant, so that it can be divided by; 0 and 1 where nothing is finite.
    """
    finite = np.isfinite(values)
    count = np.maximum(finite.sum(axis=0), 1)
    mean = np.where(finite, values, 0.0).sum(axis=0, dtype=np.float64) / count
    spread = np.sqrt((np.where(finite, values - mean, 0.0) ** 2).sum(axis=0, dtype=np.float64) / count)
    return mean, np.where(spread <= CONSTANT_COLUMN * np.maximum(1.0, np.abs(mean)), 1.0, spread)


def carried_forward(values: NDArray[Any], missing: BoolArray) -> NDArray[Any]:
    """A copy in which each missing entry has the value of the last one before it that is not; what precedes all stays.

    Both are of one shape, (n,) or (n, columns); each column by itself.
    """
    rows = np.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
    return np.take_along_axis(values, np.maximum.accumulate(np.where(missing, 0, rows), axis=0), axis=0)
