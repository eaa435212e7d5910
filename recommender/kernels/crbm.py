"""Conditional RBM arithmetic: hidden and visible means, contrastive divergence, one epoch of training, codes.

Gaussian visible units v of unit variance, binary hidden units h, both conditioned on the history c of the last samples
(Taylor, Hinton and Roweis, NIPS 2006; AI4DL, HotCloud '20, section 3):

    hidden mean    sigmoid(W v + B c + b_h)
    visible mean   W^T h + A c + b_v          (never sampled)

Kernels are made for one shape at a time: the offsets of a `Layout` are compiled in, and what a window needs of hidden
and visible units is a `Row` each. Parameters and what has to be read lane by lane are in one flat array.
`functools.cache` keeps one kernel per shape and Numba's own cache keeps them between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from recommender.kernels.crbm_layout import Floats, Layout
from recommender.kernels.rows import (
    LANES,
    exponential,
    number_at,
    padded,
    put_row,
    put_used,
    row_at,
    total,
    used_at,
    where_less,
    zeros,
)

FLAGS = {"nsz", "arcp", "contract", "afn"}
"""What arithmetic may be rearranged: multiply-adds are fused. Not `reassoc`, so that sums keep their order, and not
`nnan` or `ninf`, so that what is not finite stays visible."""

TILE = 6
"""Windows encoded side by side: with 16 hidden lanes of float32 their sums fill 12 of 16 AVX2 registers."""

BLOCK = 16 * TILE
"""Windows whose sums go through the sigmoid together, all lanes in use: with 10 hidden units 4 KiB of float32."""

SATURATION = np.float32(17.0)
"""Beyond it the float32 sigmoid is 0 or 1 to within 1e-7."""

EXPONENT_LIMIT = 700.0

# sigmoid(x) - 1/2 = x P(x²) / Q(x²) on [-17, 17]; our own least-squares fit on Chebyshev nodes, re-weighted until the
# largest error stood still (1.5e-8 in exact arithmetic)
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
        True calls the exponential; False is a fraction of polynomials for float32 that fits vector registers, within
        2.5e-7 of the true value everywhere.
    """
    if exact:
        # the exponential of more than 709 is no float64
        return where_less(x, -EXPONENT_LIMIT, ZERO, ONE / (ONE + exponential(ZERO - x)))
    # comparisons, because min() and max() would lose a NaN
    y = where_less(x, -SATURATION, -SATURATION, where_less(SATURATION, x, SATURATION, x))
    s = y * y
    above = P0 + s * (P1 + s * (P2 + s * (P3 + s * (P4 + s * P5))))
    below = ONE + s * (Q1 + s * (Q2 + s * Q3))
    r = HALF + y * above / below
    return where_less(r, ZERO, ZERO, where_less(ONE, r, ONE, r))


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _plus_product(start: Any, work: Floats, rows: int, stride: int, factors: Floats, first: int, n: int) -> Any:
    """`start` plus the sum over j < n of factors[first + j] times the row at work[rows + j * stride]."""
    # two sums, so that one multiply-add need not wait for the one before it
    even, odd = start, start - start
    for j in range(0, n, 2):
        even += number_at(factors, first + j) * row_at(start, work, rows + j * stride)
    for j in range(1, n, 2):
        odd += number_at(factors, first + j) * row_at(start, work, rows + j * stride)
    return even + odd


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _drives(values: Floats, at: int, hidden: Any, visible: Any, work: Floats, o: Layout) -> tuple[Any, Any]:
    """Pre-activations of hidden and visible units for the window that begins at element `at`: W v + B c + b_h, A c + b_v."""
    p = o.parameters_at
    h, v = row_at(hidden, work, p), row_at(visible, work, p + o.hidden_lanes)
    rows = p + o.history_weights
    h = _plus_product(h, work, rows, o.outputs, values, at, o.n_history)
    v = _plus_product(v, work, rows + o.hidden_lanes, o.outputs, values, at, o.n_history)
    return _plus_product(h, work, p + o.visible_weights, o.hidden_lanes, values, at + o.n_history, o.n_visible), v


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _excess(state: Any, start: Any, work: Floats, o: Layout) -> Any:
    """`start`, which is A c + b_v - v, plus W^T times the hidden state: the visible mean minus v."""
    put_row(work, o.state_at, state)
    weights = o.parameters_at + o.hidden_weights
    return _plus_product(start, work, weights, o.visible_lanes, work, o.state_at, o.n_hidden)


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _add_contrast(
    values: Floats,
    at: int,
    cd_steps: int,
    draws: Floats,
    rate: Any,
    block: int,
    hidden: Any,
    visible: Any,
    work: Floats,
    o: Layout,
    exact: bool,
) -> float:
    """CD-k for one window: add its gradient, times the rate, to the block of parameters (or of gradients) at `block`.

    With `draws` (cd_steps * n_hidden) the chain's hidden states are 0 or 1. Returns the L2 norm of the reconstruction's
    miss.
    """
    v = used_at(visible, values, at + o.n_history)
    drive, expected = _drives(values, at, hidden, visible, work, o)
    start = expected - v
    positive = sigmoid(drive, exact)
    negative, excess, weights = positive, start, o.parameters_at + o.visible_weights
    for step in range(cd_steps):
        state = negative
        if draws.size > 0:
            state = where_less(used_at(hidden, draws, step * o.n_hidden), state, ONE, ZERO)
        excess = _excess(state, start, work, o)
        put_row(work, o.excess_at, excess)
        # W v' is W v plus W times the excess, so that the sum over the history is not done again
        echo = _plus_product(drive, work, weights, o.hidden_lanes, work, o.excess_at, o.n_visible)
        negative = sigmoid(echo, exact)
    rates = row_at(hidden, work, o.rate_at)
    push, pull = rates * (positive - negative), (hidden - rates) * negative
    _add_gradient(values, at, push, pull, v, excess, rate, block, work, o)
    return math.sqrt(total(excess * excess))


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _add_gradient(
    values: Floats, at: int, push: Any, pull: Any, v: Any, excess: Any, rate: Any, block: int, work: Floats, o: Layout
) -> None:
    """With d = v' - v the gradient of W, h v^T - h' v'^T, is (h - h') v^T - h' d^T: both factors are at hand."""
    put_row(work, o.push_at, push)
    put_row(work, o.pull_at, pull)
    beside, visible_push = o.hidden_lanes, excess * -rate
    put_row(work, block, row_at(push, work, block) + push)
    put_row(work, block + beside, row_at(v, work, block + beside) + visible_push)
    for k in range(o.n_hidden):
        r = block + o.hidden_weights + k * o.visible_lanes
        here = row_at(v, work, r) + number_at(work, o.push_at + k) * v
        put_row(work, r, here + number_at(work, o.pull_at + k) * excess)
    for i in range(o.n_visible):
        r = block + o.visible_weights + i * o.hidden_lanes
        here = row_at(push, work, r) + number_at(values, at + o.n_history + i) * push
        put_row(work, r, here + number_at(work, o.excess_at + i) * pull)
    for j in range(o.n_history):
        r, c = block + o.history_weights + j * o.outputs, number_at(values, at + j)
        put_row(work, r, row_at(push, work, r) + c * push)
        put_row(work, r + beside, row_at(v, work, r + beside) + c * visible_push)


@cache
def online_kernel(o: Layout, exact: bool) -> Callable[..., float]:
    """The kernel for online CD-k: every window's gradient is applied before the next window is looked at.

    The kernel is ``epoch(values, starts, rate, cd_steps, draws, work) -> float``: the sum over windows of the
    L2 norm of the reconstruction's miss, before each window's own update.

    Parameters
    ----------
    o
        Layout of `work`.
    exact
        Whether sigmoids call the exponential.

    Notes
    -----
    values : float (n_samples * n_visible,), contiguous, all finite; starts : int64 (n_windows,), first rows, in the
    order of training; rate : float, of `values`' type; draws : float (n_windows, cd_steps * n_hidden) uniform in 0..1,
    or (n_windows, 0) for means throughout; work : float, IN and OUT, its first block the
    parameters.
    """

    n_visible, n_hidden = o.n_visible, o.n_hidden  # whole numbers by themselves are constants to Numba

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def epoch(
        values: Floats, starts: Any, rate: Any, cd_steps: int, draws: Floats, work: Floats
    ) -> float:
        hidden, visible = zeros(work, n_hidden), zeros(work, n_visible)
        missed = 0.0
        for k in range(n_hidden):
            work[o.rate_at + k] = rate
        for w in range(starts.shape[0]):
            missed += _add_contrast(
                values, starts[w] * n_visible, cd_steps, draws[w], rate, o.parameters_at, hidden, visible, work, o, exact
            )
        return missed

    return epoch


@cache
def batch_kernel(o: Layout, exact: bool) -> Callable[..., float]:
    """The kernel for mini-batches, momentum and weight decay.

    The kernel is ``epoch(values, starts, rates, batch_size, cd_steps, draws, work) -> float`` with
    ``rates = (learning rate, momentum, weight decay)``; the rest and the result are as in `online_kernel`. `work` has
    three blocks: parameters, gradient (zero before and after), velocity. After each batch, with g the mean gradient:
    velocity = momentum * velocity + rate * (g - decay * parameters), parameters += velocity. Biases do not decay.
    """

    n_visible, n_hidden = o.n_visible, o.n_hidden  # whole numbers by themselves are constants to Numba

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def epoch(
        values: Floats,
        starts: Any,
        rates: Any,
        batch_size: int,
        cd_steps: int,
        draws: Floats,
        work: Floats,
    ) -> float:
        hidden, visible = zeros(work, n_hidden), zeros(work, n_visible)
        rate, momentum, decay = rates
        n = starts.shape[0]
        gradient, velocity = o.parameters_at + o.block, o.parameters_at + 2 * o.block
        missed = 0.0
        for begin in range(0, n, batch_size):
            end = min(begin + batch_size, n)
            share = work.dtype.type(1.0 / (end - begin))
            for k in range(n_hidden):
                work[o.rate_at + k] = share
            for w in range(begin, end):
                missed += _add_contrast(
                    values, starts[w] * n_visible, cd_steps, draws[w], share, gradient, hidden, visible, work, o, exact
                )
            for k in range(o.block):
                pull = decay * work[o.parameters_at + k] if k >= o.outputs else ZERO
                v = momentum * work[velocity + k] + rate * (work[gradient + k] - pull)
                work[velocity + k] = v
                work[o.parameters_at + k] += v
                work[gradient + k] = ZERO
        return missed

    return epoch


@cache
def miss_kernel(o: Layout, exact: bool) -> Callable[..., None]:
    """The kernel that measures reconstructions: ``miss(values, starts, work, out)``.

    `out` (float64 (n_windows,), OUT) is the L2 norm of v minus the visible mean of the hidden mean of v.
    """

    n_visible, n_hidden = o.n_visible, o.n_hidden  # whole numbers by themselves are constants to Numba

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def miss(values: Floats, starts: Any, work: Floats, out: Any) -> None:
        hidden, visible = zeros(work, n_hidden), zeros(work, n_visible)
        for w in range(starts.shape[0]):
            at = starts[w] * n_visible
            drive, expected = _drives(values, at, hidden, visible, work, o)
            start = expected - used_at(visible, values, at + o.n_history)
            excess = _excess(sigmoid(drive, exact), start, work, o)
            out[w] = math.sqrt(total(excess * excess))

    return miss


@cache
def hidden_means_kernel(n_visible: int, n_hidden: int, lag: int, exact: bool) -> Callable[..., None]:
    """The kernel for codes: ``means(values, taps, hidden_bias, work, codes)``.

    It slides over all rows as if they were one series, `TILE` windows side by side; the caller blanks the rows whose
    window would cross a border. values : float (n * n_visible,); taps : `taps_of`, flat; hidden_bias : (n_hidden,);
    work : float (`BLOCK` * n_hidden,), OUT; codes : float ((n - lag) * n_hidden,), OUT, the code of the window of rows
    t..t + lag at t * n_hidden.
    """
    inputs, stride = n_visible * (lag + 1), padded(n_hidden)

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def means(values: Floats, taps: Floats, hidden_bias: Floats, work: Floats, codes: Floats) -> None:
        n, whole = codes.size // n_hidden, zeros(work, LANES)
        bias = used_at(zeros(work, n_hidden), hidden_bias, 0)
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            for t in range(begin, end, TILE):
                # a tile's windows beyond the end are the last one again
                w0, w1, w2 = t, min(t + 1, n - 1), min(t + 2, n - 1)
                w3, w4, w5 = min(t + 3, n - 1), min(t + 4, n - 1), min(t + 5, n - 1)
                s0, s1, s2, s3, s4, s5 = bias, bias, bias, bias, bias, bias
                for j in range(inputs):
                    tap = row_at(bias, taps, j * stride)
                    s0 += number_at(values, w0 * n_visible + j) * tap
                    s1 += number_at(values, w1 * n_visible + j) * tap
                    s2 += number_at(values, w2 * n_visible + j) * tap
                    s3 += number_at(values, w3 * n_visible + j) * tap
                    s4 += number_at(values, w4 * n_visible + j) * tap
                    s5 += number_at(values, w5 * n_visible + j) * tap
                put_used(work, (w0 - begin) * n_hidden, s0)
                put_used(work, (w1 - begin) * n_hidden, s1)
                put_used(work, (w2 - begin) * n_hidden, s2)
                put_used(work, (w3 - begin) * n_hidden, s3)
                put_used(work, (w4 - begin) * n_hidden, s4)
                put_used(work, (w5 - begin) * n_hidden, s5)
            first, count = begin * n_hidden, (end - begin) * n_hidden
            for k in range(0, count, LANES):
                put_row(work, k, sigmoid(row_at(whole, work, k), exact))
            for k in range(count):
                codes[first + k] = work[k]

    return means
