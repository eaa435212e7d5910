"""The latest two cycles of every live container, side by side: what a decision and a history still have to see."""

from __future__ import annotations

import numpy as np

from recommender.records import UNKNOWN_PHASE, FloatArray, IntArray


class Rows:
    """Usage and phases by slot, the newest row last.

    Parameters
    ----------
    width
        How many rows are kept.

    Attributes
    ----------
    usage
        float64 (slots, width, 2): cores and bytes, NaN in gaps.
    labels
        int16 (slots, width): the phase of each.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.usage = np.empty((0, width, 2))
        self.labels = np.empty((0, width), np.int16)

    def __len__(self) -> int:
        return len(self.usage)

    def grow(self, slots: int) -> None:
        """Have room for containers 0..slots - 1."""
        more = slots - len(self)
        self.usage = np.concatenate([self.usage, np.full((more, self.width, 2), np.nan)])
        self.labels = np.concatenate([self.labels, np.full((more, self.width), UNKNOWN_PHASE, np.int16)])

    def reset(self, slot: int) -> None:
        """Forget who was there."""
        self.usage[slot], self.labels[slot] = np.nan, UNKNOWN_PHASE

    def append(self, slots: IntArray, usage: FloatArray, labels: IntArray) -> None:
        """One row each, float64 (m, 2) and int64 (m,); the oldest go."""
        self.usage[slots, :-1], self.labels[slots, :-1] = self.usage[slots, 1:], self.labels[slots, 1:]
        self.usage[slots, -1], self.labels[slots, -1] = usage, labels

    def refill(self, slot: int, usage: FloatArray) -> None:
        """The newest rows are these, float64 (n, 2), of no known phase."""
        self.reset(slot)
        self.usage[slot, self.width - len(usage) :] = usage

    def raise_latest(self, slot: int, usage: FloatArray) -> FloatArray:
        """The newest row shows the larger of what it showed and of this, float64 (2,); returns it."""
        raised: FloatArray = np.maximum(self.usage[slot, -1], usage)
        self.usage[slot, -1] = raised
        return raised

    def latest(self, slot: int, n: int) -> tuple[FloatArray, IntArray]:
        """The newest `n` rows, oldest first: float64 (n, 2) and int64 (n,)."""
        begin = self.width - n
        return np.ascontiguousarray(self.usage[slot, begin:]), self.labels[slot, begin:].astype(np.int64)
