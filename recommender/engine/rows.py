"""The latest samples of every live container, for histograms and for labelling under another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from recommender.records import UNKNOWN_PHASE, FloatArray, IntArray
from recommender.slots import SlotArrays


class Rows(SlotArrays):
    """Usage and phases by slot, newest row last, `width` of each.

    The rows of a slot move through a wider array, so that an append writes one row instead of shifting all; rows that
    have reached its end are moved back to its start.
    """

    usage: FloatArray
    labels: NDArray[np.int16]
    end: IntArray

    def __init__(self, width: int) -> None:
        self.width, self._room = width, width + max(1, width // 8)
        nothing, unknown = np.full((self._room, 2), np.nan), np.full(self._room, UNKNOWN_PHASE, np.int16)
        super().__init__({"usage": nothing, "labels": unknown, "end": width})

    def append(self, slots: IntArray, usage: FloatArray, labels: IntArray) -> None:
        """Append one row each, float64 (m, 2) and int64 (m,); the oldest are dropped."""
        full = slots[self.end[slots] == self._room]
        if len(full):
            kept = slice(self._room - self.width, self._room)
            self.usage[full, : self.width] = self.usage[full, kept]
            self.labels[full, : self.width] = self.labels[full, kept]
            self.end[full] = self.width
        ends = self.end[slots]
        self.usage[slots, ends], self.labels[slots, ends] = usage, labels
        self.end[slots] = ends + 1

    def refill(self, slot: int, usage: FloatArray) -> None:
        """Set the newest rows, float64 (n, 2), without a phase."""
        self.reset(slot)
        self.usage[slot, self.width - len(usage) : self.width] = usage

    def raise_latest(self, slots: IntArray, usage: FloatArray) -> FloatArray:
        """Raise the newest rows to this usage where it is larger, float64 (m, 2); returns them.

        A slot may repeat.
        """
        newest = slots, self.end[slots] - 1
        np.maximum.at(self.usage, newest, usage)
        raised: FloatArray = self.usage[newest]
        return raised

    def latest(self, slot: int, n: int) -> tuple[FloatArray, IntArray]:
        """The newest `n` rows, oldest first: float64 (n, 2) and int64 (n,)."""
        rows = slice(self.end[slot] - n, self.end[slot])
        return self.usage[slot, rows].copy(), self.labels[slot, rows].astype(np.int64)

    def newest_usage(self, slots: IntArray, n: IntArray) -> Iterator[FloatArray]:
        """Usage of the newest `n` rows of each slot, int64 (m,): views."""
        ends = self.end[slots]
        for slot, begin, end in zip(slots.tolist(), (ends - n).tolist(), ends.tolist(), strict=True):
            yield self.usage[slot, begin:end]

    def relabel(self, slots: IntArray, label: Callable[[IntArray, FloatArray], IntArray]) -> IntArray:
        """Label all rows of these again, oldest first; returns the newest labels, int64 (m,).

        If `label` fails the labels are unchanged.
        """
        places = self.end[slots] - np.arange(self.width, 0, -1)[:, np.newaxis]
        labels = np.array([label(slots, self.usage[slots, column]) for column in places])
        self.labels[slots, places] = labels
        newest: IntArray = labels[-1]
        return newest
