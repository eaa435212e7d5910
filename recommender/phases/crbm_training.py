"""Training of a CRBM: held-out windows, and one epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recommender.kernels.crbm import Floats, Parameters, reconstruction_errors, train_epoch
from recommender.kernels.windows import window_starts
from recommender.records import IntArray

MIN_SEGMENTS_TO_HOLD_OUT = 5
"""With fewer segments, holding one out would take a large share of the data and a whole kind of workload."""

WINDOWS_PER_DRAW = 65_536
"""Windows per draw of random numbers: 2.6 MB of float32 for ten hidden units."""


def hold_out(segments: IntArray, lag: int, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Split windows into training and held-out windows.

    Parameters
    ----------
    segments : int64 (n_segments + 1,)

    Returns train and held_out, int64 (n_windows,): first rows, increasing in `train`. With at least
    `MIN_SEGMENTS_TO_HOLD_OUT` segments, random whole ones are held out, of at most twice `fraction`; otherwise, or if
    all are too large, the end of each segment, after a gap of `lag` windows, so that no row of held-out windows is
    trained on. Segments too short for that are not split.
    """
    parts: dict[int, IntArray] = {}
    for i in range(len(segments) - 1):
        windows = segments[i] + window_starts(np.array([0, segments[i + 1] - segments[i]]), lag)
        if windows.size:
            parts[i] = windows
    if len(parts) < MIN_SEGMENTS_TO_HOLD_OUT:
        return _hold_out_ends(parts, lag, fraction)
    target, held_out, size = fraction * sum(map(len, parts.values())), list[IntArray](), 0
    for i in np.random.default_rng([seed, 1]).permutation(list(parts)).tolist():
        # one segment may be most of the data
        if size < target and size + len(parts[i]) <= 2 * target:
            size += len(parts[i])
            held_out.append(parts.pop(i))
    if not held_out:
        return _hold_out_ends(parts, lag, fraction)
    return np.concatenate(list(parts.values())), np.concatenate(held_out)


def _hold_out_ends(parts: dict[int, IntArray], lag: int, fraction: float) -> tuple[IntArray, IntArray]:
    """Hold out the last windows of each segment, after a gap of `lag` unused windows."""
    train, held_out = list[IntArray](), list[IntArray]()
    for windows in parts.values():
        first = len(windows) - int(fraction * len(windows))
        is_long = lag < first < len(windows)
        train.append(windows[: first - lag] if is_long else windows)
        held_out.append(windows[first:] if is_long else windows[:0])
    return np.concatenate(train), np.concatenate(held_out)


class Trainer:
    """The parameters and random state of one training; `epoch` is one pass over all windows.

    Parameters
    ----------
    values : float (n_samples, n_features), contiguous
    starts
        First rows of the windows.
    """

    def __init__(
        self, values: Floats, starts: IntArray, parameters: Parameters, cd_steps: int, seed: int, *, sampled: bool
    ) -> None:
        self._values, self._starts = values, starts
        self._cd_steps, self._seed, self._sampled = cd_steps, seed, sampled
        self._present = parameters.W.T.copy()
        self._past = np.concatenate([parameters.B, parameters.A]).T.copy()
        self._bias = np.concatenate([parameters.hidden_bias, parameters.visible_bias])

    def parameters(self) -> Parameters:
        """A copy of the present parameters."""
        n_hidden = self._present.shape[1]
        to_hidden, to_visible = (part.T.copy() for part in np.split(self._past, [n_hidden], axis=1))
        hidden_bias, visible_bias = (part.copy() for part in np.split(self._bias, [n_hidden]))
        return Parameters(self._present.T.copy(), to_visible, to_hidden, visible_bias, hidden_bias)

    def epoch(self, number: int, rate: float) -> float:
        """Train one pass over all windows in random order.

        Returns the mean reconstruction error, each window's before its own update.
        """
        rng = np.random.default_rng([self._seed, 2, number, 0])
        order, step = rng.permutation(self._starts), self._values.dtype.type(rate)
        missed = 0.0
        for begin in range(0, len(order), WINDOWS_PER_DRAW):
            part = order[begin : begin + WINDOWS_PER_DRAW]
            draws, weights = self._draws(rng, len(part)), (self._present, self._past, self._bias)
            missed += train_epoch(self._values, part, step, self._cd_steps, draws, *weights)
        return missed / len(order)

    def reconstruction_errors(self, starts: IntArray) -> NDArray[np.float64]:
        """Reconstruction error of each window, float64 (n_windows,)."""
        errors = np.empty(len(starts))
        reconstruction_errors(self._values, starts, self._present, self._past, self._bias, errors)
        return errors

    def _draws(self, rng: np.random.Generator, n_windows: int) -> Floats:
        width = self._cd_steps * self._present.shape[1] if self._sampled else 0
        uniform = rng.random((n_windows, width), dtype=np.float64)
        return uniform.astype(self._values.dtype)
