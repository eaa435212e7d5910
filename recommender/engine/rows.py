"""The latest samples of live containers, by slot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from recommender.base.records import UNKNOWN_PHASE, FloatArray, IntArray
from recommender.base.slots import SlotArrays
from recommender.kernels.samples import append_rows


class Rows(SlotArrays):
    """The latest samples, for histograms and for labelling under another model, newest row last.

    `usage` is float64 (n, width, 2), `labels`, the phases, int16 (n, width).
    """

    usage: FloatArray
    labels: NDArray[np.int16]

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(0, {"usage": np.full((width, 2), np.nan), "labels": np.full(width, UNKNOWN_PHASE, np.int16)})

    def append(self, slots: IntArray, usage: FloatArray, labels: IntArray) -> None:
        """Append one row each, float64 (m, 2) and int64 (m,); the oldest are dropped."""
        append_rows(slots, usage, labels, self.usage, self.labels)

    def refill(self, slot: int, usage: FloatArray) -> None:
        """Set the newest rows, float64 (n, 2), without a phase."""
        self.reset(slot)
        self.usage[slot, self.width - len(usage) :] = usage

    def raise_latest(self, slots: IntArray, usage: FloatArray) -> FloatArray:
        """Raise the newest rows to this usage where it is larger, float64 (m, 2); returns them.

        A slot may repeat.
        """
        newest = self.usage[:, -1]
        np.maximum.at(newest, slots, usage)
        return newest[slots]

    def latest(self, slot: int, n: int) -> tuple[FloatArray, IntArray]:
        """The newest `n` rows, oldest first: float64 (n, 2) and int64 (n,)."""
        return self.usage[slot, self.width - n :].copy(), self.labels[slot, self.width - n :].astype(np.int64)

    def relabel(self, slots: IntArray, label: Callable[[IntArray, FloatArray], IntArray]) -> IntArray:
        """Label all rows of these again, oldest first; returns the newest labels, int64 (m,).

        If `label` fails the labels are unchanged.
        """
        labels = np.array([label(slots, self.usage[slots, row]) for row in range(self.width)])
        self.labels[slots] = labels.T
        newest: IntArray = labels[-1]
        return newest
