"""The latest two cycles of every live container, side by side: what a decision and a history still have to see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recommender.records import UNKNOWN_PHASE, FloatArray, IntArray


class Rows:
    """Usage and phases by slot, the newest row last.

    Each slot's rows move through an array that is wider than they are, so that an append is one row and not a shift of
    all of them; now and then those that have come to its end are moved back to its beginning.

    Parameters
    ----------
    width
        How many rows are kept.
    """

    def __init__(self, width: int) -> None:
        self.width, self._room = width, width + max(1, width // 8)
        self._usage = np.empty((0, self._room, 2))
        self._labels = np.empty((0, self._room), np.int16)
        self._end = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._usage)

    def grow(self, slots: int) -> None:
        """Have room for containers 0..slots - 1."""
        more = slots - len(self)
        self._usage = np.concatenate([self._usage, np.full((more, self._room, 2), np.nan)])
        self._labels = np.concatenate([self._labels, np.full((more, self._room), UNKNOWN_PHASE, np.int16)])
        self._end = np.concatenate([self._end, np.full(more, self.width, np.int64)])

    def reset(self, slot: int) -> None:
        """Forget who was there."""
        self._usage[slot], self._labels[slot], self._end[slot] = np.nan, UNKNOWN_PHASE, self.width

    def append(self, slots: IntArray, usage: FloatArray, labels: IntArray) -> None:
        """One row each, float64 (m, 2) and int64 (m,); the oldest go."""
        full = slots[self._end[slots] == self._room]
        if len(full):
            kept = slice(self._room - self.width, self._room)
            self._usage[full, : self.width] = self._usage[full, kept]
            self._labels[full, : self.width] = self._labels[full, kept]
            self._end[full] = self.width
        ends = self._end[slots]
        self._usage[slots, ends], self._labels[slots, ends] = usage, labels
        self._end[slots] = ends + 1

    def refill(self, slot: int, usage: FloatArray) -> None:
        """The newest rows are these, float64 (n, 2), of no known phase."""
        self.reset(slot)
        self._usage[slot, self.width - len(usage) : self.width] = usage

    def raise_latest(self, slots: IntArray, usage: FloatArray) -> FloatArray:
        """The newest rows show the larger of what they showed and of these, float64 (m, 2); returns them.

        A slot may be there several times.
        """
        newest = slots, self._end[slots] - 1
        np.maximum.at(self._usage, newest, usage)
        raised: FloatArray = self._usage[newest]
        return raised

    def latest(self, slot: int, n: int) -> tuple[FloatArray, IntArray]:
        """The newest `n` rows, oldest first: float64 (n, 2) and int64 (n,)."""
        end = self._end[slot]
        return self._usage[slot, end - n : end].copy(), self._labels[slot, end - n : end].astype(np.int64)

    def latest_of(self, slots: IntArray, numbers: IntArray) -> tuple[FloatArray, IntArray]:
        """The newest rows of many, as many as each number says, one after the other: float64 (n, 2) and int64 (n,)."""
        owners = np.repeat(slots, numbers)
        before = np.cumsum(numbers) - numbers
        places = np.repeat(self._end[slots] - numbers - before, numbers) + np.arange(len(owners))
        return self._usage[owners, places], self._labels[owners, places].astype(np.int64)

    def told_anew(self, slots: IntArray, tell: Callable[[IntArray, FloatArray], IntArray]) -> IntArray:
        """Label all rows of these again, oldest first; returns the labels of the newest, int64 (m,)."""
        labels = np.full(len(slots), UNKNOWN_PHASE, np.int64)
        for back in range(self.width, 0, -1):
            places = self._end[slots] - back
            labels = tell(slots, self._usage[slots, places])
            self._labels[slots, places] = labels
        return labels
