"""The published CRBM algorithm in NumPy: the baseline for speed, and the reference of the tests.

Symbols are the paper's: W (hidden, visible), A (visible, visible * lag), B (hidden, visible * lag), history c with each
feature's past samples oldest first, one feature after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


class PublishedCRBM:
    """The published algorithm: one window at a time, column vectors in NumPy, CD-k, online.

    Vectorised within a window; every gradient is the difference of its two phases, as in the paper. States are means,
    or sampled with the draws given.
    """

    def __init__(
        self, W: Array, A: Array, B: Array, b_v: Array, b_h: Array, learning_rate: float, cd_steps: int = 1
    ) -> None:
        self.W, self.A, self.B = W.copy(), A.copy(), B.copy()
        self.b_v, self.b_h = b_v[:, None].copy(), b_h[:, None].copy()
        self.learning_rate, self.cd_steps = W.dtype.type(learning_rate), cd_steps

    def hidden_mean(self, v: Array, c: Array) -> Array:
        return 1 / (1 + np.exp(-(self.W @ v + self.B @ c + self.b_h)))

    def visible_mean(self, h: Array, c: Array) -> Array:
        return self.W.T @ h + self.A @ c + self.b_v

    def split(self, window: Array) -> tuple[Array, Array]:
        return window[-1][:, None], window[:-1].T.reshape(-1, 1)

    def learn(self, window: Array, draws: Array | None = None) -> float:
        """Update on one window; return the norm of the reconstruction error."""
        v, c = self.split(window)
        h = h_negative = self.hidden_mean(v, c)
        for step in range(self.cd_steps):
            state = h_negative if draws is None else (draws[step][:, None] < h_negative).astype(self.W.dtype)
            v_negative = self.visible_mean(state, c)
            h_negative = self.hidden_mean(v_negative, c)
        self.W += self.learning_rate * (h @ v.T - h_negative @ v_negative.T)
        self.A += self.learning_rate * (v @ c.T - v_negative @ c.T)
        self.B += self.learning_rate * (h @ c.T - h_negative @ c.T)
        self.b_v += self.learning_rate * (v - v_negative)
        self.b_h += self.learning_rate * (h - h_negative)
        return float(np.linalg.norm(v - v_negative))

    def epoch(self, windows: Sequence[Array]) -> float:
        """One pass in the given order; return the mean norm."""
        return sum(self.learn(window) for window in windows) / len(windows)

    def codes(self, windows: Sequence[Array]) -> Array:
        """Hidden means of each window."""
        return np.array([self.hidden_mean(*self.split(window))[:, 0] for window in windows])
