"""When a policy decides: the one rule by which it is trained and judged."""

from __future__ import annotations

import numpy as np

from recommender.records import BoolArray, IntArray


def decision_positions(present: BoolArray, cycle_samples: int, lag: int) -> IntArray:
    """Where a policy decides: after lag + 1 samples, then every cycle.

    Parameters
    ----------
    present
        bool (n,): True where there is a sample.
    cycle_samples
        Grid cells between decisions.
    lag
        Samples a window looks back.

    Returns
    -------
    int64 (d,)
        Increasing positions in 0..n-1, each with a sample before the next one: a decision whose cycle lies in a gap
        is left out. Empty when there are fewer than lag + 2 samples.

    Examples
    --------
    >>> decision_positions(np.ones(12, bool), cycle_samples=4, lag=3)
    array([4, 8])
    """
    samples = np.flatnonzero(present)
    if len(samples) < lag + 2:
        return np.empty(0, np.int64)
    positions = np.arange(samples[lag] + 1, len(present), cycle_samples, dtype=np.int64)
    covers_some = np.searchsorted(samples, positions + cycle_samples) > np.searchsorted(samples, positions)
    return positions[covers_some]
