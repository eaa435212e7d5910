"""Conditional RBM arithmetic: hidden and visible means, contrastive divergence, one epoch of training; codes.

Gaussian visible units v of unit variance, binary hidden units h, both conditioned on the history c of the last samples
(Taylor, Hinton and Roweis, NIPS 2006; AI4DL, HotCloud '20, section 3):

    hidden mean    sigmoid(W v + B c + b_h)
    visible mean   W^T h + A c + b_v          (never sampled)

Kernels are compiled per shape: with the offsets of a `Layout` as constants and all state in one flat array the compiler
can prove that rows do not alias, and keeps them in registers. `functools.cache` keeps one kernel per shape, and Numba's
own cache keeps them between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from recommender.kernels.crbm_layout import CACHE_LINE, Floats, Layout
from recommender.kernels.rows import (
    LANES,
    exponential,
    group,
    number_at,
    padded,
    prefetch,
    put_row,
    put_used,
    row_at,
    total,
    used_at,
    where_less,
    zeros,
    zeros_like,
)

FLAGS = {"nsz", "arcp", "contract", "afn"}
"""Fast-math flags: multiply-adds may be fused. Not `reassoc`, so that sums keep their order, and not `nnan` or `ninf`,
so that NaN and infinity propagate."""

PREFETCH_WINDOWS = 8
"""Prefetch distance of samples: windows come in random order, which no hardware prefetcher foresees."""

TILE = 6
"""Windows encoded side by side: with 16 hidden lanes of float32 their sums fill 12 of 16 AVX2 registers."""

BLOCK = 16 * TILE
"""Windows whose sums go through the sigmoid together, so that all lanes are used: 4 KiB at 10 float32 units."""

SATURATION = np.float32(17.0)
"""Beyond it the float32 sigmoid is 0 or 1 to within 1e-7."""

MAX_EXPONENT = 700.0

# sigmoid(x) - 1/2 = x P(x²) / Q(x²) on [-17, 17]; our own least-squares fit on Chebyshev nodes, re-weighted until the
# largest error converged (1.5e-8 in exact arithmetic)
P0, P1, P2 = np.float32(0.24999995529651642), np.float32(0.008088954724371433), np.float32(4.603094203048386e-05)
P3, P4, P5 = np.float32(3.713218532652718e-08), np.float32(-1.3212824931385647e-11), np.float32(4.949738247717701e-15)
Q1, Q2, Q3 = np.float32(0.1156890019774437), np.float32(0.0014915846986696124), np.float32(3.6193821415508864e-06)
ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def sigmoid(x: Any, exact: bool) -> Any:
    """1 / (1 + exp(-x)), within 0..1; NaN stays NaN.

    Parameters
    ----------
    x : float, or a row
    exact : bool
        True calls the exponential; False uses a rational approximation in float32, within 2.5e-7 everywhere.
    """
    if exact:
        # exp(x) overflows float64 above 709
        return where_less(x, -MAX_EXPONENT, ZERO, ONE / (ONE + exponential(ZERO - x)))
    # comparisons, because min() and max() may drop a NaN
    y = where_less(SATURATION, x, SATURATION, x)
    y = where_less(y, -SATURATION, -SATURATION, y)
    s = y * y
    t = s * s
    above = (P0 + s * P1) + t * ((P2 + s * P3) + t * (P4 + s * P5))
    below = ONE + s * (Q1 + s * (Q2 + s * Q3))
    r = HALF + y * above / below
    r = where_less(ONE, r, ONE, r)
    return where_less(r, ZERO, ZERO, r)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _add_product(start: Any, work: Floats, rows: int, stride: int, factors: Floats, first: int, n: int) -> Any:
    """`start` plus the sum over j < n of factors[first + j] times the row at work[rows + j * stride]."""
    # two sums, so that a multiply-add does not wait for the previous one
    even, odd = start, zeros_like(start)
    for j in range(0, n, 2):
        even += number_at(factors, first + j) * row_at(start, work, rows + j * stride)
    for j in range(1, n, 2):
        odd += number_at(factors, first + j) * row_at(start, work, rows + j * stride)
    return even + odd


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _pre_activations(values: Floats, at: int, hidden: Any, visible: Any, work: Floats, o: Layout) -> None:
    """Fill `pre_activation_at` for the window at element `at` of `values`: W v + B c + b_h, and A c + b_v."""
    p = o.parameters_at
    rows, visible_rows, present = p + o.history_weights, p + o.visible_weights, at + o.n_history
    for g in range(0, o.hidden_lanes, o.hidden_group):
        h = _add_product(row_at(hidden, work, p + g), work, rows + g, o.outputs, values, at, o.n_history)
        h = _add_product(h, work, visible_rows + g, o.hidden_lanes, values, present, o.n_visible)
        put_row(work, o.pre_activation_at + g, h)
    for g in range(o.hidden_lanes, o.outputs, o.visible_group):
        v = _add_product(row_at(visible, work, p + g), work, rows + g, o.outputs, values, at, o.n_history)
        put_row(work, o.pre_activation_at + g, v)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _positive(sample: Any, hidden: Any, work: Floats, o: Layout, exact: bool) -> None:
    """Store the sample of a window, and fill `positive_at` and `state_at` with the hidden means."""
    put_row(work, o.visible_at, sample)
    for g in range(0, o.hidden_lanes, o.hidden_group):
        positive = sigmoid(row_at(hidden, work, o.pre_activation_at + g), exact)
        put_row(work, o.positive_at + g, positive)
        put_row(work, o.state_at + g, positive)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _residual(visible: Any, work: Floats, o: Layout) -> None:
    """Fill `residual_at` with v' - v: the visible mean of the hidden state minus the sample."""
    for g in range(0, o.visible_lanes, o.visible_group):
        start = row_at(visible, work, o.pre_activation_at + o.hidden_lanes + g) - row_at(
            visible, work, o.visible_at + g
        )
        rows = o.parameters_at + o.hidden_weights + g
        residual = _add_product(start, work, rows, o.visible_lanes, work, o.state_at, o.n_hidden)
        put_row(work, o.residual_at + g, residual)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _residual_norm(visible: Any, work: Floats, o: Layout) -> float:
    """L2 norm of v' - v."""
    squares = zeros_like(visible)
    for g in range(0, o.visible_lanes, o.visible_group):
        residual = row_at(visible, work, o.residual_at + g)
        squares += residual * residual
    return math.sqrt(total(squares))


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _negative(
    cd_steps: int, draws: Floats, all_hidden: Any, hidden: Any, visible: Any, work: Floats, o: Layout, exact: bool
) -> None:
    """Run the Gibbs chain: fill `residual_at`, and `negative_at` with the hidden means of the reconstruction.

    With `draws` (cd_steps * n_hidden) hidden states are sampled as 0 or 1.
    """
    rows = o.parameters_at + o.visible_weights
    for step in range(cd_steps):
        if draws.size > 0:
            state = row_at(all_hidden, work, o.state_at)
            state = where_less(used_at(all_hidden, draws, step * o.n_hidden), state, ONE, ZERO)
            put_row(work, o.state_at, state)
        _residual(visible, work, o)
        for g in range(0, o.hidden_lanes, o.hidden_group):
            # W v' is W v plus W times the residual, which spares another sum over the history
            pre_activation = row_at(hidden, work, o.pre_activation_at + g)
            reconstructed = _add_product(
                pre_activation, work, rows + g, o.hidden_lanes, work, o.residual_at, o.n_visible
            )
            negative = sigmoid(reconstructed, exact)
            put_row(work, o.negative_at + g, negative)
            put_row(work, o.state_at + g, negative)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _update_history_weights(
    sums: Any, column: int, push: Any, first: int, values: Floats, at: int, next_at: int, n_history: int,
    work: Floats, o: Layout,
) -> Any:  # fmt: skip
    """Update columns of every second row of A and B, from `first` on, by the gradient `push` of the window at `at`.

    In the same pass, returns `sums` plus the part of these rows in the `_pre_activations` of the window at `next_at`.
    """
    for j in range(first, n_history, 2):
        r = o.parameters_at + o.history_weights + j * o.outputs + column
        put_row(work, r, row_at(sums, work, r) + number_at(values, at + j) * push)
        sums += number_at(values, next_at + j) * row_at(sums, work, r)
    return sums


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _update_columns(
    column: int, push: Any, values: Floats, at: int, next_at: int, n_history: int, work: Floats, o: Layout
) -> Any:
    """Update biases and history weights of some columns; returns their part in the next window's pre-activations."""
    bias = o.parameters_at + column
    put_row(work, bias, row_at(push, work, bias) + push)
    # two sums, so that a multiply-add does not wait for the previous one
    even = row_at(push, work, bias)
    even = _update_history_weights(even, column, push, 0, values, at, next_at, n_history, work, o)
    odd = _update_history_weights(zeros_like(push), column, push, 1, values, at, next_at, n_history, work, o)
    return even + odd


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _apply_gradient(
    values: Floats, at: int, next_at: int, n_history: int, rate: Any, hidden: Any, visible: Any, work: Floats, o: Layout
) -> None:
    """Add the gradient of the window at element `at`, times the learning rate, to the parameters.

    With d = v' - v the gradient of W, h v^T - h' v'^T, is (h - h') v^T - h' d^T, whose factors are already in `work`.
    Leaves the `_pre_activations` of the window at `next_at` under the updated parameters.
    """
    present, p = at + o.n_history, o.parameters_at
    for g in range(0, o.hidden_lanes, o.hidden_group):
        rates, negative = row_at(hidden, work, o.rate_at + g), row_at(hidden, work, o.negative_at + g)
        put_row(work, o.push_at + g, rates * (row_at(hidden, work, o.positive_at + g) - negative))
        put_row(work, o.pull_at + g, (zeros_like(rates) - rates) * negative)
    for g in range(0, o.visible_lanes, o.visible_group):
        v, residual = row_at(visible, work, o.visible_at + g), row_at(visible, work, o.residual_at + g)
        for k in range(o.n_hidden):
            r = p + o.hidden_weights + k * o.visible_lanes + g
            c, d = number_at(work, o.push_at + k), number_at(work, o.pull_at + k)
            put_row(work, r, row_at(v, work, r) + c * v + d * residual)
        column = o.hidden_lanes + g
        next_v = _update_columns(column, -rate * residual, values, at, next_at, n_history, work, o)
        put_row(work, o.pre_activation_at + column, next_v)
    for g in range(0, o.hidden_lanes, o.hidden_group):
        push, pull = row_at(hidden, work, o.push_at + g), row_at(hidden, work, o.pull_at + g)
        next_h = _update_columns(g, push, values, at, next_at, n_history, work, o)
        here = zeros_like(push)
        for i in range(o.n_visible):
            r = p + o.visible_weights + i * o.hidden_lanes + g
            c, d = number_at(values, present + i), number_at(work, o.residual_at + i)
            put_row(work, r, row_at(push, work, r) + c * push + d * pull)
            here += number_at(values, next_at + o.n_history + i) * row_at(push, work, r)
        put_row(work, o.pre_activation_at + g, next_h + here)


@cache
def online_kernel(o: Layout, exact: bool) -> Callable[..., float]:
    """The kernel for online CD-k: the gradient of each window is applied before the next window is read.

    The kernel is ``epoch(values, starts, rate, n_history, cd_steps, draws, work) -> float``: the sum over windows of
    the L2 norm of the reconstruction error, each before the window's own update.

    Parameters
    ----------
    o
        Layout of `work`.
    exact
        Whether sigmoids call the exponential.

    Notes
    -----
    values : float (n_samples * n_visible,), contiguous, all finite; starts : int64 (n_windows,), first rows, one or
    more, in the order of training; rate : float, learning rate, of the type of `values`; n_history : int, that of `o`,
    but at run time, since the compiler would unroll a loop of known length and spill all rows to the stack; draws :
    float (n_windows, cd_steps * n_hidden) uniform in 0..1, or (n_windows, 0) for means throughout; work : float, IN
    and OUT.
    """
    # Numba compiles captured integers in as constants
    n_visible, n_hidden, visible_lanes, hidden_lanes = o.n_visible, o.n_hidden, o.visible_group, o.hidden_group

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def epoch(
        values: Floats, starts: Any, rate: Any, n_history: int, cd_steps: int, draws: Floats, work: Floats
    ) -> float:
        hidden, visible = zeros(work, hidden_lanes), zeros(work, visible_lanes)
        all_hidden, all_visible = zeros(work, n_hidden), zeros(work, n_visible)
        for k in range(n_hidden):
            work[o.rate_at + k] = rate
        error = 0.0
        n = starts.shape[0]
        _pre_activations(values, starts[0] * n_visible, hidden, visible, work, o)
        for w in range(n):
            at, next_at = starts[w] * n_visible, starts[min(w + 1, n - 1)] * n_visible
            later = starts[min(w + PREFETCH_WINDOWS, n - 1)] * n_visible
            for j in range(0, o.n_history + n_visible, CACHE_LINE // work.itemsize):
                prefetch(values, later + j)
            _positive(used_at(all_visible, values, at + o.n_history), hidden, work, o, exact)
            _negative(cd_steps, draws[w], all_hidden, hidden, visible, work, o, exact)
            error += _residual_norm(visible, work, o)
            _apply_gradient(values, at, next_at, n_history, rate, hidden, visible, work, o)
        return error

    return epoch


@cache
def reconstruction_error_kernel(o: Layout, exact: bool) -> Callable[..., None]:
    """The kernel for reconstruction errors: ``error(values, starts, work, out)``.

    `out` (float64 (n_windows,), OUT) is the L2 norm of v minus the visible mean of the hidden mean of v.
    """
    n_visible, visible_lanes, hidden_lanes = o.n_visible, o.visible_group, o.hidden_group

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def error(values: Floats, starts: Any, work: Floats, out: Any) -> None:
        hidden, visible, all_visible = zeros(work, hidden_lanes), zeros(work, visible_lanes), zeros(work, n_visible)
        for w in range(starts.shape[0]):
            at = starts[w] * n_visible
            _pre_activations(values, at, hidden, visible, work, o)
            _positive(used_at(all_visible, values, at + o.n_history), hidden, work, o, exact)
            _residual(visible, work, o)
            out[w] = _residual_norm(visible, work, o)

    return error


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _tile(
    like: Any, column: int, values: Floats, taps: Floats, hidden_bias: Floats, w: int, n: int, codes: Floats,
    n_visible: int, n_hidden: int, lanes: int, inputs: int,
) -> None:  # fmt: skip
    """Pre-activations of `TILE` windows from `w` on for the hidden units from `column` on, as many as `like` uses."""
    # windows beyond the end repeat the last one
    w1, w2, w3, w4, w5 = min(w + 1, n - 1), min(w + 2, n - 1), min(w + 3, n - 1), min(w + 4, n - 1), min(w + 5, n - 1)
    bias = used_at(like, hidden_bias, column)
    s0, s1, s2, s3, s4, s5 = bias, bias, bias, bias, bias, bias
    for j in range(inputs):
        tap = row_at(bias, taps, j * lanes + column)
        s0 += number_at(values, w * n_visible + j) * tap
        s1 += number_at(values, w1 * n_visible + j) * tap
        s2 += number_at(values, w2 * n_visible + j) * tap
        s3 += number_at(values, w3 * n_visible + j) * tap
        s4 += number_at(values, w4 * n_visible + j) * tap
        s5 += number_at(values, w5 * n_visible + j) * tap
    put_used(codes, w * n_hidden + column, s0)
    put_used(codes, w1 * n_hidden + column, s1)
    put_used(codes, w2 * n_hidden + column, s2)
    put_used(codes, w3 * n_hidden + column, s3)
    put_used(codes, w4 * n_hidden + column, s4)
    put_used(codes, w5 * n_hidden + column, s5)


@cache
def hidden_means_kernel(n_visible: int, n_hidden: int, lag: int, exact: bool) -> Callable[..., None]:
    """The kernel for codes: ``means(values, taps, hidden_bias, n, codes)``.

    It slides over all rows as one series, `TILE` windows side by side; the caller masks windows that cross a border.
    values : float ((n + lag) * n_visible,); taps : `taps_of`, flat; hidden_bias : float
    (n_hidden,); n : int, windows; codes : float (n * n_hidden + `LANES`,), OUT, at t * n_hidden the code of the window
    of rows t..t + lag, and in the last `LANES` elements nothing of use.
    """
    inputs, lanes, columns = n_visible * (lag + 1), padded(n_hidden), group(n_hidden)
    last = (n_hidden - 1) // columns * columns
    last_columns = n_hidden - last

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def means(values: Floats, taps: Floats, hidden_bias: Floats, n: int, codes: Floats) -> None:
        whole, some, flat = zeros(codes, columns), zeros(codes, last_columns), zeros(codes, LANES)
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            for w in range(begin, end, TILE):
                for g in range(0, last, columns):
                    _tile(whole, g, values, taps, hidden_bias, w, n, codes, n_visible, n_hidden, lanes, inputs)
                _tile(some, last, values, taps, hidden_bias, w, n, codes, n_visible, n_hidden, lanes, inputs)
            # lanes of the last row that belong to the next block are overwritten by that one later
            for k in range(begin * n_hidden, end * n_hidden, LANES):
                put_row(codes, k, sigmoid(row_at(flat, codes, k), exact))

    return means
