"""The CRBM written plainly, in float64 and one scalar at a time.

Symbols are the paper's: W (hidden, visible), A (visible, visible * lag), B (hidden, visible * lag), history c with each
feature's past samples oldest first, one feature after another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class PlainCRBM:
    """CD-k in float64, one scalar at a time, with nothing shared between the steps."""

    W: Array
    A: Array
    B: Array
    visible_bias: Array
    hidden_bias: Array
    lag: int

    def parameters(self) -> list[Array]:
        return [self.W, self.A, self.B, self.visible_bias, self.hidden_bias]

    def history(self, window: Array) -> list[float]:
        n_visible = len(self.visible_bias)
        return [float(window[age, feature]) for feature in range(n_visible) for age in range(self.lag)]

    def hidden_mean(self, v: list[float], c: list[float]) -> list[float]:
        means = []
        for k in range(len(self.hidden_bias)):
            drive = float(self.hidden_bias[k])
            for i, x in enumerate(v):
                drive += self.W[k, i] * x
            for j, x in enumerate(c):
                drive += self.B[k, j] * x
            means.append(1.0 / (1.0 + math.exp(-drive)))
        return means

    def visible_mean(self, h: list[float], c: list[float]) -> list[float]:
        means = []
        for i in range(len(self.visible_bias)):
            mean = float(self.visible_bias[i])
            for k, x in enumerate(h):
                mean += self.W[k, i] * x
            for j, x in enumerate(c):
                mean += self.A[i, j] * x
            means.append(mean)
        return means

    def gradient(self, window: Array, cd_steps: int, draws: Array | None) -> tuple[list[Array], float]:
        """The five gradients of one window of lag + 1 rows, and the norm of the last reconstruction error."""
        v, c = [float(x) for x in window[self.lag]], self.history(window)
        h = self.hidden_mean(v, c)
        state = h
        for step in range(cd_steps):
            if draws is not None:
                state = [1.0 if u < p else 0.0 for u, p in zip(draws[step], state, strict=True)]
            v_negative = self.visible_mean(state, c)
            h_negative = self.hidden_mean(v_negative, c)
            state = h_negative
        dv, dh = np.subtract(v, v_negative), np.subtract(h, h_negative)
        gradients = [
            np.outer(h, v) - np.outer(h_negative, v_negative),
            np.outer(dv, c),
            np.outer(dh, c),
            dv,
            dh,
        ]
        return gradients, math.sqrt(sum(d * d for d in dv))

    def epoch(
        self,
        windows: list[Array],
        rate: float,
        *,
        cd_steps: int = 1,
        draws: list[Array] | None = None,
    ) -> float:
        """One pass in the given order; returns the sum of the norms."""
        missed = 0.0
        for w, window in enumerate(windows):
            gradients, norm = self.gradient(window, cd_steps, None if draws is None else draws[w])
            missed += norm
            for p, gradient in zip(self.parameters(), gradients, strict=True):
                p += rate * gradient  # noqa: PLW2901  in place
        return missed

    def codes(self, series: Array, delay: int) -> Array:
        """Hidden means of one segment, zero where there is no window yet."""
        out = np.zeros((len(series), len(self.hidden_bias)))
        for t in range(self.lag + delay, len(series)):
            window = series[t - delay - self.lag : t - delay + 1]
            out[t] = self.hidden_mean([float(x) for x in window[self.lag]], self.history(window))
        return out
