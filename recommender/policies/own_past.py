"""Forecast from a container's own past: what followed when it was in the same stage before.

A job that trains for a hundred epochs repeats itself a hundred times, and its own earlier epochs are the best forecast
of the present one. The runs of its class are kept in a few hundred buckets each, too coarse for the epochs of a long
run, and a job without a class has none. So CPU is kept as segments between two jumps. If a container was in the same
stage several times before, after the same preceding stage, what followed tells what may come, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.base.records import FloatArray, IntArray
from recommender.base.slots import SlotArrays
from recommender.kernels.own_past import MAX_SEGMENT_SAMPLES, OwnPastArrays, observe_segments, peak_after_matches

SEGMENTS = 32  # segments kept of a container: sixteen epochs of two stages
MAX_VALUE = 1e15  # larger numbers in a checkpoint are refused


class OwnPast(SlotArrays):
    """Segments of many live containers, see `OwnPastArrays`."""

    samples: IntArray

    def __init__(self, slots: int = 0) -> None:
        of_ended = {"ended": 0, "lengths": np.zeros(SEGMENTS, np.uint16), "cores": np.zeros(SEGMENTS, np.float32)}
        of_present = dict.fromkeys(("first_cores", "inside_cores", "latest_cores"), np.float32(0.0))
        super().__init__(slots, {**of_ended, "samples": 0, **of_present})

    def observe(self, slots: IntArray, cpu_cores: FloatArray) -> None:
        """Add the next sample of each container, float64 (m,); NaN is a gap."""
        observe_segments(slots, cpu_cores, self.arrays(OwnPastArrays))

    def find_matches(self, slots: IntArray, ahead: IntArray) -> tuple[IntArray, FloatArray]:
        """Earlier matches of each segment, int64 (m,), and peaks in each of `ahead` samples, float64 (m, w), or NaN."""
        matches, peak_cores = np.empty(len(slots), np.int64), np.empty((len(slots), len(ahead)))
        peak_after_matches(slots, ahead, self.arrays(OwnPastArrays), matches, peak_cores)
        return matches, peak_cores

    def restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Restore what `of` returned; ValueError, KeyError or TypeError, and an unchanged slot, if it does not fit."""
        if not all((np.abs(np.asarray(part, np.float64)) < MAX_VALUE).all() for part in kept.values()):
            raise ValueError("a value is not a finite number, or too large")
        if not all(0 <= length <= MAX_SEGMENT_SAMPLES for length in kept["lengths"]):
            raise ValueError("a segment is too long")
        self.put(slot, kept)
