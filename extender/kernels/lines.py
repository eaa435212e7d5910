"""The scores of a HostPriorityList as JSON, from bytes that are the same for every pod."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

TEN, ONE, ZERO, BRACE = np.int64(10), np.uint64(1), np.uint8(0x30), np.uint8(0x7D)
LONGEST = 2
"""Bytes of a score of 0 to 99."""


@njit(cache=True)
def write(
    lines: NDArray[np.uint8],
    starts: NDArray[np.int64],
    places: NDArray[np.int64],
    scores: NDArray[np.int64],
    told: NDArray[np.uint8],
) -> int:
    """Write a line of each node, the score behind it, and a brace.

    Parameters
    ----------
    lines, starts
        uint8, int64 (n + 1,): what stands before the score of the node at place i is `lines[starts[i]:starts[i + 1]]`.
    places, scores
        int64 (m,).
    told
        OUT uint8: long enough for all lines, and three bytes more for each.

    Returns
    -------
    How many bytes were written.
    """
    at = np.uint64(0)  # unsigned: a place that might be negative takes three times as long
    for i in range(len(places)):
        score, begins = scores[i], np.uint64(starts[places[i]])
        length = np.uint64(starts[places[i] + 1]) - begins
        for k in range(length):
            told[at + k] = lines[begins + k]
        at += length
        if score >= TEN:
            told[at] = ZERO + np.uint8(score // TEN)
            at += ONE
        told[at] = ZERO + np.uint8(score % TEN)
        told[at + ONE] = BRACE
        at += ONE + ONE
    return int(at)
