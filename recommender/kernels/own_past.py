"""What a container used after it had been before where it is now: segments of CPU, kept and looked up."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

JUMP = math.e
"""From one sample to the next: CPU that changes by less than this factor is of the same segment, noisy as it is."""

ALIKE = math.exp(0.5)
"""Levels that differ by less than this factor are those of one stage."""

FLOOR_CORES = 0.02
"""Use below it is the same to us: it is added to all that is compared."""

FEWEST = 3
"""So often a container must have been where it is now. What came after fewer times is chance."""

ONLY_FIRST, NOTHING_INSIDE = -2.0, -1.0
"""In place of what the samples inside a segment used: there was one sample of it so far, or there were two."""

LONGEST = 65_535
"""Samples that are counted of a segment."""


class OwnPastArrays(NamedTuple):
    """By slot. What a segment used counts without its first and its last sample, which may be half of another one.

    Attributes
    ----------
    ended
        int64 (n,): segments that came to their end.
    lengths, cores
        uint16 and float32 (n, ring): samples of each of the latest of those, and the largest use in it; written round
        and round.
    samples
        int64 (n,): of the present one; 0 before the first sample.
    first_cores, inside_cores, latest_cores
        float32 (n,): its first sample; the largest of those between that and the latest, or `ONLY_FIRST` or
        `NOTHING_INSIDE`; and the latest.
    """

    ended: NDArray[np.int64]
    lengths: NDArray[np.uint16]
    cores: NDArray[np.float32]
    samples: NDArray[np.int64]
    first_cores: NDArray[np.float32]
    inside_cores: NDArray[np.float32]
    latest_cores: NDArray[np.float32]


@njit(cache=True, nogil=True, error_model="numpy")
def observe_segments(slots: NDArray[np.int64], cpu_cores: NDArray[np.float64], past: OwnPastArrays) -> None:
    """Take in the next sample of each container.

    Parameters
    ----------
    slots
        int64 (m,), each at most once.
    cpu_cores
        float64 (m,): NaN where there is no sample; the present segment grows longer all the same.
    """
    ended, lengths, kept_cores, samples, first_cores, inside_cores, latest_cores = past
    ring = lengths.shape[1]
    for k in range(len(slots)):
        slot, cores = slots[k], cpu_cores[k]
        seen, latest, inside = samples[slot], latest_cores[slot], inside_cores[slot]
        if math.isnan(cores):
            samples[slot] = min(seen + 1, LONGEST) if seen > 0 else 0
            continue
        if seen > 0 and apart(cores, latest, JUMP):
            place = ended[slot] % ring
            lengths[slot, place] = seen
            kept_cores[slot, place] = inside if inside >= 0.0 else max(first_cores[slot], latest)
            ended[slot] += 1
            seen = 0
        if seen == 0:
            first_cores[slot], inside_cores[slot] = cores, ONLY_FIRST
        else:
            inside_cores[slot] = NOTHING_INSIDE if inside == ONLY_FIRST else max(inside, latest)
        latest_cores[slot] = cores
        samples[slot] = min(seen + 1, LONGEST)


@njit(cache=True, nogil=True, error_model="numpy")
def look_back(
    slots: NDArray[np.int64],
    ahead: NDArray[np.int64],
    past: OwnPastArrays,
    times: NDArray[np.int64],
    largest_cores: NDArray[np.float64],
) -> None:
    """Find when each container was where it is now, and the largest use in the time after it.

    That is in a segment of about the same level, after one of about the same level, and for as long; one that ended
    sooner is taken to end now.

    Parameters
    ----------
    slots
        int64 (m,).
    ahead
        int64 (w,): how many samples to look ahead.
    times
        OUT int64 (m,): how often it was there; 0 where that is less than `FEWEST`, and in the first sample of a
        segment, which may be half of it.
    largest_cores
        OUT float64 (m, w): after any of these times; NaN where it was not there.
    """
    ended, lengths, cores, samples, _, inside_cores, latest_cores = past
    ring = lengths.shape[1]
    for k in range(len(slots)):
        slot = slots[k]
        times[k], last = 0, ended[slot] - 1
        if samples[slot] < 2 or last < FEWEST:
            largest_cores[k] = math.nan
            continue
        largest_cores[k] = 0.0
        now, before = max(inside_cores[slot], latest_cores[slot]), cores[slot, last % ring]
        for number in range(max(1, last - ring + 2), last):
            level, preceding = cores[slot, number % ring], cores[slot, (number - 1) % ring]
            if apart(level, now, ALIKE) or apart(preceding, before, ALIKE):
                continue
            times[k] += 1
            left = max(0, int(lengths[slot, number % ring]) - samples[slot])
            for window in range(len(ahead)):
                passed, largest = left, max(now, level) if left > 0 else np.float32(0.0)
                following = number + 1
                while passed < ahead[window] and following <= last:
                    largest = max(largest, cores[slot, following % ring])
                    passed += lengths[slot, following % ring]
                    following += 1
                if passed < ahead[window]:
                    largest = max(largest, now)
                largest_cores[k, window] = max(largest_cores[k, window], largest)
        if times[k] < FEWEST:
            times[k] = 0
            largest_cores[k] = math.nan


@njit(cache=True, nogil=True, error_model="numpy")
def apart(one: float, other: float, factor: float) -> bool:
    """Whether two uses of CPU differ by more than a factor."""
    one, other = one + FLOOR_CORES, other + FLOOR_CORES
    return bool(one > other * factor or other > one * factor)
