"""Conditional RBM arithmetic: codes, reconstruction errors, and one epoch of contrastive divergence.

Gaussian visible units v of unit variance, binary hidden units h, both conditioned on the history c of the last samples
(Taylor, Hinton and Roweis, NIPS 2006; AI4DL, HotCloud '20, section 3):

    hidden mean    sigmoid(W v + B c + b_h)
    visible mean   W^T h + A c + b_v          (never sampled)

Kernels take float arrays of one type: `values` (n_samples, n_visible), all finite; `present`, W transposed; `past`, B
on top of A, transposed; and `bias`, of the hidden units, then of the visible ones. `starts`, int64 (n_windows,), are
the first rows of the windows. Inner loops run along units, whose weights lie side by side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import FloatArray, IntArray

Floats = NDArray[np.floating[Any]]

FLAGS = {"nsz", "arcp", "contract", "afn"}
"""Fast-math flags: multiply-adds may be fused. Not `reassoc`, so that sums keep their order, and not `nnan` or `ninf`,
so that NaN and infinity propagate."""

ONE = np.float32(1.0)


class Parameters(NamedTuple):
    """A CRBM in the paper's symbols.

    The history vector c holds each feature's `lag` past samples, oldest first, one feature after another: entry
    ``feature * lag + age`` (the order in which AI4DL's published parameters reproduce its published phases).
    """

    W: Floats
    """(n_hidden, n_visible): visible to hidden."""
    A: Floats
    """(n_visible, n_visible * lag): history to visible."""
    B: Floats
    """(n_hidden, n_visible * lag): history to hidden."""
    visible_bias: Floats
    hidden_bias: Floats


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _sigmoid(x: Any) -> Any:
    return ONE / (ONE + math.exp(-x))


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _read_window(
    values: Floats, start: int, present: Floats, past: Floats, bias: Floats, history: Floats, sums: Floats
) -> None:
    """Fill `history` with c, and `sums` with W v + B c + b_h, followed by A c + b_v if `bias` has the visible ones."""
    n_visible, n_hidden = present.shape
    lag = len(past) // n_visible
    for unit in range(len(bias)):
        sums[unit] = bias[unit]
    for age in range(lag):
        for feature in range(n_visible):
            entry, used = feature * lag + age, values[start + age, feature]
            history[entry] = used
            for unit in range(len(bias)):
                sums[unit] += used * past[entry, unit]
    for feature in range(n_visible):
        for hidden in range(n_hidden):
            sums[hidden] += values[start + lag, feature] * present[feature, hidden]


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _reconstruct(sample: Floats, state: Floats, present: Floats, sums: Floats, missed: Floats) -> float:
    """Fill `missed` with the visible mean of the hidden `state` minus the sample; returns its L2 norm."""
    n_visible, n_hidden = present.shape
    squares = 0.0
    for feature in range(n_visible):
        missed[feature] = sums[n_hidden + feature] - sample[feature]
        for hidden in range(n_hidden):
            missed[feature] += state[hidden] * present[feature, hidden]
        squares += missed[feature] * missed[feature]
    return math.sqrt(squares)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _run_chain(
    sample: Floats, cd_steps: int, draws: Floats, present: Floats, sums: Floats, state: Floats, missed: Floats
) -> float:
    """Run the Gibbs chain from `state` to the hidden means of the reconstruction; returns as `_reconstruct`."""
    n_visible, n_hidden = present.shape
    norm = 0.0
    for step in range(cd_steps):
        for hidden in range(min(n_hidden, len(draws))):
            state[hidden] = draws[step * n_hidden + hidden] < state[hidden]
        norm = _reconstruct(sample, state, present, sums, missed)
        # W v' is W v plus W times the residual, which spares another sum over the history.
        for hidden in range(n_hidden):
            state[hidden] = sums[hidden]
        for feature in range(n_visible):
            for hidden in range(n_hidden):
                state[hidden] += missed[feature] * present[feature, hidden]
        for hidden in range(n_hidden):
            state[hidden] = _sigmoid(state[hidden])
    return norm


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def train_epoch(
    values: Floats,
    starts: IntArray,
    rate: Any,
    cd_steps: int,
    draws: Floats,
    present: Floats,
    past: Floats,
    bias: Floats,
) -> float:
    """Online CD-k: the gradient of each window, times `rate`, is applied before the next window is read.

    `draws`: uniform in 0..1, (n_windows, cd_steps * n_hidden), for hidden states of 0 or 1; or (n_windows, 0), for
    means throughout. `rate` has the type of `values`; `present`, `past` and `bias` are IN OUT.

    Returns the sum over windows of the L2 norm of the reconstruction error, each before the window's own update.
    """
    n_visible, n_hidden = present.shape
    history, sums, push = np.empty(len(past), values.dtype), np.empty_like(bias), np.empty_like(bias)
    mean, state, missed = np.empty_like(bias), np.empty_like(bias), np.empty_like(bias)
    error = 0.0
    for window in range(len(starts)):
        sample = values[starts[window] + len(past) // n_visible]
        _read_window(values, starts[window], present, past, bias, history, sums)
        for hidden in range(n_hidden):
            mean[hidden] = state[hidden] = _sigmoid(sums[hidden])
        error += _run_chain(sample, cd_steps, draws[window], present, sums, state, missed)
        # With d = v' - v the gradient of W, h v^T - h' v'^T, is (h - h') v^T - h' d^T.
        for hidden in range(n_hidden):
            push[hidden] = rate * (mean[hidden] - state[hidden])
        for feature in range(n_visible):
            push[n_hidden + feature] = -rate * missed[feature]
            for hidden in range(n_hidden):
                present[feature, hidden] += push[hidden] * sample[feature] + push[n_hidden + feature] * state[hidden]
        bias += push
        for entry in range(len(past)):
            for unit in range(len(bias)):
                past[entry, unit] += history[entry] * push[unit]
    return error


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def reconstruction_errors(
    values: Floats, starts: IntArray, present: Floats, past: Floats, bias: Floats, errors: FloatArray
) -> None:
    """Fill OUT float64 (n_windows,) with the L2 norm of v minus the visible mean of the hidden mean of v."""
    n_visible, n_hidden = present.shape
    history, sums, state = np.empty(len(past), values.dtype), np.empty_like(bias), np.empty_like(bias)
    missed = np.empty_like(bias)
    for window in range(len(starts)):
        _read_window(values, starts[window], present, past, bias, history, sums)
        for hidden in range(n_hidden):
            state[hidden] = _sigmoid(sums[hidden])
        sample = values[starts[window] + len(past) // n_visible]
        errors[window] = _reconstruct(sample, state, present, sums, missed)


@njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
def hidden_means(values: Floats, present: Floats, past: Floats, hidden_bias: Floats, codes: Floats) -> None:
    """Fill OUT (n_windows, n_hidden) with the codes of all windows of one series; `past` has the columns of B alone."""
    history = np.empty(len(past), values.dtype)
    for window in range(len(codes)):
        _read_window(values, window, present, past, hidden_bias, history, codes[window])
        for hidden in range(len(hidden_bias)):
            codes[window, hidden] = _sigmoid(codes[window, hidden])
