"""Segments of a container's CPU use: recorded, and searched for earlier matches of the present one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import FloatArray, IntArray

JUMP_FACTOR = math.e
"""A change of CPU by more than this factor between two samples starts a new segment; less is noise."""

SAME_LEVEL_FACTOR = math.exp(0.5)
"""Segments whose levels differ by no more than this factor are of one stage."""

FLOOR_CORES = 0.02
"""Added to all levels before they are compared: differences below it do not matter."""

MIN_MATCHES = 3
"""Fewer earlier matches of the present segment are chance."""

ONLY_FIRST, NOTHING_INSIDE = -2.0, -1.0
"""In place of the peak inside a segment: it has one sample so far, or two."""

MAX_SEGMENT_SAMPLES = 65_535
"""Longer segments count as this long."""


class OwnPastArrays(NamedTuple):
    """Segments per container (slot). Peaks leave out first and last sample, which may be half of another segment."""

    ended: IntArray
    """int64 (n,): number of ended segments."""
    lengths: NDArray[np.uint16]
    cores: NDArray[np.float32]
    """uint16 and float32 (n, ring): ring buffers of the samples and the peak of each of the latest of those."""
    samples: IntArray
    """int64 (n,): samples of the present segment; 0 before the first sample."""
    first_cores: NDArray[np.float32]
    inside_cores: NDArray[np.float32]
    latest_cores: NDArray[np.float32]
    """float32 (n,): its first sample; the peak of those between that and the latest, or `ONLY_FIRST` or
    `NOTHING_INSIDE`; and the latest."""


@njit(cache=True, nogil=True, error_model="numpy")
def observe_segments(slots: IntArray, cpu_cores: FloatArray, past: OwnPastArrays) -> None:
    """Add the next sample of each container, int64 and float64 (m,), in order; NaN is a gap, which lengthens the
    present segment."""
    ended, lengths, kept_cores, samples, first_cores, inside_cores, latest_cores = past
    ring = lengths.shape[1]
    for k in range(len(slots)):
        slot, cores = slots[k], cpu_cores[k]
        seen, latest, inside = samples[slot], latest_cores[slot], inside_cores[slot]
        if math.isnan(cores):
            samples[slot] = min(seen + 1, MAX_SEGMENT_SAMPLES) if seen > 0 else 0
            continue
        if seen > 0 and differ_by_factor(cores, latest, JUMP_FACTOR):
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
        samples[slot] = min(seen + 1, MAX_SEGMENT_SAMPLES)


@njit(cache=True, nogil=True, error_model="numpy")
def peak_after_matches(
    slots: IntArray, ahead: IntArray, past: OwnPastArrays, matches: IntArray, peak_cores: FloatArray
) -> None:
    """Find earlier matches of the present segment of each container, and the peak use in the time after them.

    A match has about the same level and follows a segment of about the same level. The time after it starts at the
    present age of the segment, or at its end if it was shorter, and lasts `ahead` samples, int64 (w,).

    `matches` is OUT int64 (m,): their number; 0 for fewer than `MIN_MATCHES`, and in the first sample of a segment,
    which may be half of another one. `peak_cores` is OUT float64 (m, w): after any of them; NaN without one.
    """
    ended, lengths, cores, samples, _, inside_cores, latest_cores = past
    ring = lengths.shape[1]
    for k in range(len(slots)):
        slot = slots[k]
        matches[k], last = 0, ended[slot] - 1
        if samples[slot] < 2 or last < MIN_MATCHES:
            peak_cores[k] = math.nan
            continue
        peak_cores[k] = 0.0
        now, before = max(inside_cores[slot], latest_cores[slot]), cores[slot, last % ring]
        for number in range(max(1, last - ring + 2), last):
            level, preceding = cores[slot, number % ring], cores[slot, (number - 1) % ring]
            alike = not differ_by_factor(level, now, SAME_LEVEL_FACTOR)
            if not alike or differ_by_factor(preceding, before, SAME_LEVEL_FACTOR):
                continue
            matches[k] += 1
            remaining = max(0, int(lengths[slot, number % ring]) - samples[slot])
            for window in range(len(ahead)):
                passed, peak = remaining, max(now, level) if remaining > 0 else np.float32(0.0)
                following = number + 1
                while passed < ahead[window] and following <= last:
                    peak = max(peak, cores[slot, following % ring])
                    passed += lengths[slot, following % ring]
                    following += 1
                if passed < ahead[window]:
                    peak = max(peak, now)
                peak_cores[k, window] = max(peak_cores[k, window], peak)
        if matches[k] < MIN_MATCHES:
            matches[k] = 0
            peak_cores[k] = math.nan


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def differ_by_factor(one: float, other: float, factor: float) -> bool:
    """Whether two CPU levels differ by more than a factor."""
    one, other = one + FLOOR_CORES, other + FLOOR_CORES
    return bool(one > other * factor or other > one * factor)
