"""The scores of a HostPriorityList as JSON, from bytes that are the same for every pod."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

TEN, ZERO, BRACE = np.int64(10), np.uint8(0x30), np.uint8(0x7D)
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
    at = 0
    for i in range(len(places)):
        score = scores[i]
        begins, length = starts[places[i]], starts[places[i] + 1] - starts[places[i]]
        told[at : at + length] = lines[begins : begins + length]
        at += length
        if score >= TEN:
            told[at] = ZERO + np.uint8(score // TEN)
            at += 1
        told[at] = ZERO + np.uint8(score % TEN)
        told[at + 1] = BRACE
        at += 2
    return at
