"""What a container itself did after it had been where it is now: the best witness of a run that goes on for days.

A job that trains for a hundred epochs does the same a hundred times, and nobody's epochs are as like its present one as
its own earlier ones. Earlier runs of its class are kept in a few hundred buckets each, in which an epoch of a long run
is not seen any more, and of a stranger nobody knows any. So CPU is kept as segments, between two jumps. Where a
container was in the same stage several times before, after the same one, what followed then says what may come, and
when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.kernels.own_past import LONGEST, OwnPastArrays, look_back, observe_segments
from recommender.records import FloatArray, IntArray
from recommender.slots import SlotArrays

SEGMENTS = 32
"""The latest ones are kept: sixteen epochs of two stages."""

MOST = 1e15
"""No number that is kept is larger."""


class OwnPast(SlotArrays):
    """The segments of many live containers, see `OwnPastArrays`."""

    samples: IntArray

    def __init__(self, slots: int = 0) -> None:
        of_ended = {"ended": 0, "lengths": np.zeros(SEGMENTS, np.uint16), "cores": np.zeros(SEGMENTS, np.float32)}
        of_present = dict.fromkeys(("first_cores", "inside_cores", "latest_cores"), np.float32(0.0))
        super().__init__({**of_ended, "samples": 0, **of_present}, slots)

    def observe(self, slots: IntArray, cpu_cores: FloatArray) -> None:
        """Take in the next sample of each container, float64 (m,); NaN is a gap."""
        observe_segments(slots, cpu_cores, self.arrays(OwnPastArrays))

    def look(self, slots: IntArray, ahead: IntArray) -> tuple[IntArray, FloatArray]:
        """How often each was where it is now, int64 (m,), and the most it used after that, float64 (m, w), or NaN.

        Parameters
        ----------
        ahead
            int64 (w,): in so many samples.
        """
        times, largest_cores = np.empty(len(slots), np.int64), np.empty((len(slots), len(ahead)))
        look_back(slots, ahead, self.arrays(OwnPastArrays), times, largest_cores)
        return times, largest_cores

    def restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Go on with what `of` said.

        Raises
        ------
        ValueError, KeyError, TypeError
            It does not fit; the slot is as it was.
        """
        if not all((np.abs(np.asarray(part, np.float64)) < MOST).all() for part in kept.values()):
            raise ValueError("not all of it is a number")
        if not all(0 <= length <= LONGEST for length in kept["lengths"]):
            raise ValueError("no segment is so long")
        self.put(slot, kept)
