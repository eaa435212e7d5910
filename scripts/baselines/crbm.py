"""The published CRBM algorithm in NumPy, as a baseline for speed.

Symbols are the paper's: W (hidden, visible), A (visible, visible * lag), B (hidden, visible * lag), history c with each
feature's past samples oldest first, one feature after another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class PublishedCRBM:
    """The published algorithm: one window at a time, column vectors in NumPy, means throughout, CD-1, online.

    Vectorised within a window; every gradient is the difference of its two phases, as in the paper.
    """

    def __init__(
        self, W: NDArray[np.float32], A: NDArray[np.float32], B: NDArray[np.float32], learning_rate: float
    ) -> None:
        self.W, self.A, self.B = W.copy(), A.copy(), B.copy()
        self.b_v = np.zeros((W.shape[1], 1), dtype=W.dtype)
        self.b_h = np.zeros((W.shape[0], 1), dtype=W.dtype)
        self.learning_rate = W.dtype.type(learning_rate)

    def hidden_mean(self, v: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
        return 1 / (1 + np.exp(-(self.W @ v + self.B @ c + self.b_h)))

    def visible_mean(self, h: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.W.T @ h + self.A @ c + self.b_v

    def split(self, window: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return window[-1][:, None], window[:-1].T.reshape(-1, 1)

    def learn(self, window: NDArray[np.float32]) -> float:
        """Update on one window; return the norm of the reconstruction error."""
        v, c = self.split(window)
        h = self.hidden_mean(v, c)
        v_negative = self.visible_mean(h, c)
        h_negative = self.hidden_mean(v_negative, c)
        self.W += self.learning_rate * (h @ v.T - h_negative @ v_negative.T)
        self.A += self.learning_rate * (v @ c.T - v_negative @ c.T)
        self.B += self.learning_rate * (h @ c.T - h_negative @ c.T)
        self.b_v += self.learning_rate * (v - v_negative)
        self.b_h += self.learning_rate * (h - h_negative)
        return float(np.linalg.norm(v - v_negative))

    def epoch(self, windows: list[NDArray[np.float32]]) -> float:
        """One pass in the given order; return the mean norm."""
        return sum(self.learn(window) for window in windows) / len(windows)

    def codes(self, windows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Hidden means of each window."""
        return np.array([self.hidden_mean(*self.split(window))[:, 0] for window in windows])
