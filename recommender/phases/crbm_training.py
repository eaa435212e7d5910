"""Training of a CRBM: held-out windows, and one epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recommender.kernels.crbm import online_kernel, reconstruction_error_kernel
from recommender.kernels.crbm_layout import Floats, Parameters, layout_of, pack, unpack, workspace
from recommender.kernels.windows import Ints, window_starts

MIN_SEGMENTS_TO_HOLD_OUT = 5
"""With fewer segments, holding one out would take a large share of the data and a whole kind of workload."""

WINDOWS_PER_DRAW = 65_536
"""Windows per draw of random numbers: 2.6 MB of float32 for ten hidden units."""


def hold_out(segments: Ints, lag: int, fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Split windows into training and held-out windows.

    `segments`: int64 (n_segments + 1,).

    Returns train and held_out, int64 (n_windows,): first rows, increasing in `train`. With at least
    `MIN_SEGMENTS_TO_HOLD_OUT` segments, random whole ones are held out, of at most twice `fraction`; otherwise, or if
    all are too large, the end of each segment, after a gap of `lag` windows, so that no row of held-out windows is
    trained on. Segments too short for that are not split.
    """
    parts: dict[int, Ints] = {}
    for i in range(len(segments) - 1):
        windows = segments[i] + window_starts(np.array([0, segments[i + 1] - segments[i]]), lag)
        if windows.size:
            parts[i] = windows
    if len(parts) < MIN_SEGMENTS_TO_HOLD_OUT:
        return _hold_out_ends(parts, lag, fraction)
    target, held_out, size = fraction * sum(map(len, parts.values())), list[Ints](), 0
    for i in np.random.default_rng([seed, 1]).permutation(list(parts)).tolist():
        # one segment may be most of the data
        if size < target and size + len(parts[i]) <= 2 * target:
            size += len(parts[i])
            held_out.append(parts.pop(i))
    if not held_out:
        return _hold_out_ends(parts, lag, fraction)
    return np.concatenate(list(parts.values())), np.concatenate(held_out)


def _hold_out_ends(parts: dict[int, Ints], lag: int, fraction: float) -> tuple[Ints, Ints]:
    """Hold out the last windows of each segment, after a gap of `lag` unused windows."""
    train, held_out = list[Ints](), list[Ints]()
    for windows in parts.values():
        first = len(windows) - int(fraction * len(windows))
        is_long = lag < first < len(windows)
        train.append(windows[: first - lag] if is_long else windows)
        held_out.append(windows[first:] if is_long else windows[:0])
    return np.concatenate(train), np.concatenate(held_out)


class Trainer:
    """The buffers and random state of one training; `epoch` is one pass over all windows.

    `values`: float (n_samples, n_features), contiguous.
    `starts`: first rows of the windows.
    """

    def __init__(
        self, values: Floats, starts: Ints, parameters: Parameters, cd_steps: int, seed: int, *, sampled: bool
    ) -> None:
        n_hidden, n_visible = parameters.W.shape
        self._layout = layout_of(n_visible, n_hidden, parameters.B.shape[1] // n_visible)
        self._values, self._starts = values.ravel(), starts
        self._cd_steps, self._seed, self._sampled = cd_steps, seed, sampled
        self._work = workspace(self._layout, values.dtype)
        pack(parameters, self._layout, self._work)

    def parameters(self) -> Parameters:
        """A copy of the present parameters."""
        return unpack(self._layout, self._work)

    def epoch(self, number: int, rate: float) -> float:
        """Train one pass over all windows in random order.

        Returns the mean reconstruction error, each window's before its own update.
        """
        rng = np.random.default_rng([self._seed, 2, number, 0])
        order = rng.permutation(self._starts)
        kernel, step = online_kernel(self._layout, self._exact), self._values.dtype.type(rate)
        missed = 0.0
        for begin in range(0, len(order), WINDOWS_PER_DRAW):
            part = order[begin : begin + WINDOWS_PER_DRAW]
            draws = self._draws(rng, len(part))
            missed += kernel(self._values, part, step, self._layout.n_history, self._cd_steps, draws, self._work)
        return missed / len(order)

    def reconstruction_errors(self, starts: Ints) -> NDArray[np.float64]:
        """Reconstruction error of each window, float64 (n_windows,)."""
        out = np.empty(len(starts))
        reconstruction_error_kernel(self._layout, self._exact)(self._values, starts, self._work, out)
        return out

    @property
    def _exact(self) -> bool:
        return self._values.dtype == np.float64

    def _draws(self, rng: np.random.Generator, n_windows: int) -> Floats:
        width = self._cd_steps * self._layout.n_hidden if self._sampled else 0
        uniform = rng.random((n_windows, width), dtype=np.float64)
        return uniform.astype(self._values.dtype)
