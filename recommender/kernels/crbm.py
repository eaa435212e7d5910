"""Conditional RBM arithmetic: hidden and visible means, contrastive divergence, one epoch of training, codes.

Gaussian visible units v of unit variance, binary hidden units h, both conditioned on the history c of the last samples
(Taylor, Hinton and Roweis, NIPS 2006; AI4DL, HotCloud '20, section 3):

    hidden mean    sigmoid(W v + B c + b_h)
    visible mean   W^T h + A c + b_v          (never sampled)

Kernels are made for one shape at a time: the offsets of a `Layout` are compiled in, so that the compiler can prove that
what a loop writes is not what it reads, and keeps it in registers. All state is one flat array for the same reason.
`functools.cache` keeps one kernel per shape and Numba's own cache keeps them between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from recommender.kernels.crbm_layout import LANES, Floats, Lanes, Layout, padded

FLAGS = {"nsz", "arcp", "contract", "afn"}
"""What arithmetic may be rearranged: multiply-adds are fused. Not `reassoc`, so that sums keep their order, and not
`nnan` or `ninf`, so that what is not finite stays visible."""

BLOCK = 128
"""Windows encoded at a time: 32 rows of 128 float32 fill half of a first-level cache of 32 KiB. Between 64 and 512 the
speed differs by less than a tenth."""

SATURATION = np.float32(17.0)
"""Beyond it the float32 sigmoid is 0 or 1 to within 1e-7."""

EXPONENT_LIMIT = 700.0

# sigmoid(x) - 1/2 = x P(x²) / Q(x²) on [-17, 17]; our own least-squares fit on Chebyshev nodes, re-weighted until the
# largest error stood still (1.5e-8 in exact arithmetic)
P0, P1, P2 = np.float32(0.24999995529651642), np.float32(0.008088954724371433), np.float32(4.603094203048386e-05)
P3, P4, P5 = np.float32(3.713218532652718e-08), np.float32(-1.3212824931385647e-11), np.float32(4.949738247717701e-15)
Q1, Q2, Q3 = np.float32(0.1156890019774437), np.float32(0.0014915846986696124), np.float32(3.6193821415508864e-06)
ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


# Inlined by LLVM. The others need it before, by Numba, for their offsets to be constants; that takes longer to compile.
@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def sigmoid(x: Any, exact: bool) -> Any:
    """1 / (1 + exp(-x)), within 0..1; NaN stays NaN.

    Parameters
    ----------
    x : float
    exact : bool
        True calls the exponential; False is a fraction of polynomials for float32 that fits vector registers, within
        2.5e-7 of the true value everywhere.
    """
    if exact:
        # the exponential of more than 709 is no float64
        return ZERO if x < -EXPONENT_LIMIT else ONE / (ONE + np.exp(-x))
    # comparisons, because min() and max() would lose a NaN
    y = -SATURATION if x < -SATURATION else (SATURATION if x > SATURATION else x)
    s = y * y
    above = P0 + s * (P1 + s * (P2 + s * (P3 + s * (P4 + s * P5))))
    below = ONE + s * (Q1 + s * (Q2 + s * Q3))
    r = HALF + y * above / below
    return ZERO if r < ZERO else (ONE if r > ONE else r)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _add_rows(work: Floats, out: int, factors: int, rows: int, row: int, stride: int, lanes: int, sign: Any) -> None:
    """work[out + k] += sign * sum over j of work[factors + j] * work[row + j * stride + k], for k in `lanes`."""
    for j in range(0, rows, LANES):
        f, r = factors + j, row + j * stride
        f0, f1, f2, f3 = sign * work[f], sign * work[f + 1], sign * work[f + 2], sign * work[f + 3]
        f4, f5, f6, f7 = sign * work[f + 4], sign * work[f + 5], sign * work[f + 6], sign * work[f + 7]
        r1, r2, r3, r4 = r + stride, r + 2 * stride, r + 3 * stride, r + 4 * stride
        r5, r6, r7 = r + 5 * stride, r + 6 * stride, r + 7 * stride
        for k in range(lanes):
            # two chains of four, so that one multiply-add need not wait for the seven before it
            work[out + k] += (
                f0 * work[r + k] + f1 * work[r1 + k] + f2 * work[r2 + k] + f3 * work[r3 + k]
            ) + (f4 * work[r4 + k] + f5 * work[r5 + k] + f6 * work[r6 + k] + f7 * work[r7 + k])  # fmt: skip


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _add_outer(work: Floats, row: int, stride: int, rows: int, left: int, right: int, lanes: int) -> None:
    """work[row + j * stride + k] += work[left + j] * work[right + k], for j in `rows`, k in `lanes`."""
    for j in range(0, rows, LANES):
        f, r = left + j, row + j * stride
        f0, f1, f2, f3 = work[f], work[f + 1], work[f + 2], work[f + 3]
        f4, f5, f6, f7 = work[f + 4], work[f + 5], work[f + 6], work[f + 7]
        r1, r2, r3, r4 = r + stride, r + 2 * stride, r + 3 * stride, r + 4 * stride
        r5, r6, r7 = r + 5 * stride, r + 6 * stride, r + 7 * stride
        for k in range(lanes):
            x = work[right + k]
            work[r + k] += f0 * x
            work[r1 + k] += f1 * x
            work[r2 + k] += f2 * x
            work[r3 + k] += f3 * x
            work[r4 + k] += f4 * x
            work[r5 + k] += f5 * x
            work[r6 + k] += f6 * x
            work[r7 + k] += f7 * x


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _add_outers(
    work: Floats, row: int, stride: int, rows: int, left: int, right: int, left2: int, right2: int, lanes: int
) -> None:
    """`_add_outer` of `left` and `right` and of `left2` and `right2`, with one visit to each row."""
    for j in range(0, rows, LANES):
        f, g, r = left + j, left2 + j, row + j * stride
        f0, f1, f2, f3 = work[f], work[f + 1], work[f + 2], work[f + 3]
        f4, f5, f6, f7 = work[f + 4], work[f + 5], work[f + 6], work[f + 7]
        g0, g1, g2, g3 = work[g], work[g + 1], work[g + 2], work[g + 3]
        g4, g5, g6, g7 = work[g + 4], work[g + 5], work[g + 6], work[g + 7]
        r1, r2, r3, r4 = r + stride, r + 2 * stride, r + 3 * stride, r + 4 * stride
        r5, r6, r7 = r + 5 * stride, r + 6 * stride, r + 7 * stride
        for k in range(lanes):
            x, y = work[right + k], work[right2 + k]
            work[r + k] += f0 * x + g0 * y
            work[r1 + k] += f1 * x + g1 * y
            work[r2 + k] += f2 * x + g2 * y
            work[r3 + k] += f3 * x + g3 * y
            work[r4 + k] += f4 * x + g4 * y
            work[r5 + k] += f5 * x + g5 * y
            work[r6 + k] += f6 * x + g6 * y
            work[r7 + k] += f7 * x + g7 * y


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _positive(values: Floats, first: int, work: Floats, o: Layout, lanes: Lanes, exact: bool) -> None:
    """Copy the window that begins at row `first`; fill `drive_at` and `positive_at`."""
    at = first * o.n_visible
    for j in range(o.n_history):
        work[o.history_at + j] = values[at + j]
    at += o.n_history
    for i in range(o.n_visible):
        work[o.visible_at + i] = values[at + i]
    for k in range(lanes.outputs):
        work[o.drive_at + k] = work[o.parameters_at + k]
    history, visible = o.parameters_at + o.history_weights, o.parameters_at + o.visible_weights
    _add_rows(work, o.drive_at, o.history_at, o.history_rows, history, o.outputs, lanes.outputs, ONE)
    _add_rows(work, o.drive_at, o.visible_at, o.visible_lanes, visible, o.hidden_lanes, lanes.hidden, ONE)
    for k in range(lanes.hidden):
        work[o.positive_at + k] = sigmoid(work[o.drive_at + k], exact)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _residual(work: Floats, o: Layout, lanes: Lanes) -> None:
    """Fill `residual_at` with v minus the visible mean of the hidden state in `state_at`."""
    for i in range(lanes.visible):
        work[o.residual_at + i] = work[o.visible_at + i] - work[o.drive_at + o.hidden_lanes + i]
    weights = o.parameters_at + o.hidden_weights
    _add_rows(work, o.residual_at, o.state_at, o.hidden_lanes, weights, o.visible_lanes, lanes.visible, -ONE)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _negative(work: Floats, o: Layout, lanes: Lanes, exact: bool) -> None:
    """Fill `negative_at` with the hidden mean of the reconstruction.

    W v' is W v minus W times the residual, so that the sum over the history is not done again.
    """
    for k in range(lanes.hidden):
        work[o.echo_at + k] = work[o.drive_at + k]
    weights = o.parameters_at + o.visible_weights
    _add_rows(work, o.echo_at, o.residual_at, o.visible_lanes, weights, o.hidden_lanes, lanes.hidden, -ONE)
    for k in range(lanes.hidden):
        work[o.negative_at + k] = sigmoid(work[o.echo_at + k], exact)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _contrast(
    values: Floats, first: int, cd_steps: int, draws: Floats, work: Floats, o: Layout, lanes: Lanes, exact: bool
) -> None:
    """Both phases of CD-k for one window; with `draws` (cd_steps * n_hidden) the chain's hidden states are 0 or 1."""
    _positive(values, first, work, o, lanes, exact)
    for k in range(lanes.hidden):
        work[o.state_at + k] = work[o.positive_at + k]
    for step in range(cd_steps):
        if step > 0:
            for k in range(lanes.hidden):
                work[o.state_at + k] = work[o.negative_at + k]
        if draws.size > 0:
            for k in range(o.n_hidden):
                fires = draws[step * o.n_hidden + k] < work[o.state_at + k]
                work[o.state_at + k] = ONE if fires else ZERO
        _residual(work, o, lanes)
        _negative(work, o, lanes, exact)


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _add_gradient(work: Floats, block: int, rate: Any, o: Layout, lanes: Lanes) -> None:
    """Add `rate` times the window's gradient to the block of parameters (or of gradients) at offset `block`.

    With d = v - v' the gradient of W, h v^T - h' v'^T, is (h - h') v^T + h' d^T: both factors are at hand.
    """
    for k in range(lanes.hidden):
        work[o.push_at + k] = work[o.rate_at + k] * (work[o.positive_at + k] - work[o.negative_at + k])
        work[o.pull_at + k] = work[o.rate_at + k] * work[o.negative_at + k]
    for i in range(lanes.visible):
        work[o.push_at + o.hidden_lanes + i] = rate * work[o.residual_at + i]
    for k in range(lanes.outputs):
        work[block + k] += work[o.push_at + k]
    history, visible, hidden = block + o.history_weights, block + o.visible_weights, block + o.hidden_weights
    _add_outer(work, history, o.outputs, o.history_rows, o.history_at, o.push_at, lanes.outputs)
    _add_outers(
        work, visible, o.hidden_lanes, o.visible_lanes, o.visible_at, o.push_at, o.residual_at, o.pull_at, lanes.hidden
    )
    _add_outers(
        work, hidden, o.visible_lanes, o.hidden_lanes, o.push_at, o.visible_at, o.pull_at, o.residual_at, lanes.visible
    )


@njit(cache=True, nogil=True, fastmath=FLAGS, inline="always", error_model="numpy")
def _missed(work: Floats, o: Layout) -> float:
    """L2 norm of v - v'."""
    total = ZERO
    for i in range(o.n_visible):
        total += work[o.residual_at + i] * work[o.residual_at + i]
    return math.sqrt(total)


@cache
def online_kernel(o: Layout, exact: bool) -> Callable[..., float]:
    """The kernel for online CD-k: every window's gradient is applied before the next window is looked at.

    The kernel is ``epoch(values, starts, rate, cd_steps, draws, lanes, work) -> float``: the sum over windows of the
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
    or (n_windows, 0) for means throughout; lanes : `lanes_of(o)`; work : float, IN and OUT, its first block the
    parameters.
    """

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def epoch(
        values: Floats, starts: Any, rate: Any, cd_steps: int, draws: Floats, lanes: Lanes, work: Floats
    ) -> float:
        missed = 0.0
        for k in range(o.n_hidden):
            work[o.rate_at + k] = rate
        for w in range(starts.shape[0]):
            _contrast(values, starts[w], cd_steps, draws[w], work, o, lanes, exact)
            missed += _missed(work, o)
            _add_gradient(work, o.parameters_at, rate, o, lanes)
        return missed

    return epoch


@cache
def batch_kernel(o: Layout, exact: bool) -> Callable[..., float]:
    """The kernel for mini-batches, momentum and weight decay.

    The kernel is ``epoch(values, starts, rates, batch_size, cd_steps, draws, lanes, work) -> float`` with
    ``rates = (learning rate, momentum, weight decay)``; the rest and the result are as in `online_kernel`. `work` has
    three blocks: parameters, gradient (zero before and after), velocity. After each batch, with g the mean gradient:
    velocity = momentum * velocity + rate * (g - decay * parameters), parameters += velocity. Biases do not decay.
    """

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def epoch(
        values: Floats,
        starts: Any,
        rates: Any,
        batch_size: int,
        cd_steps: int,
        draws: Floats,
        lanes: Lanes,
        work: Floats,
    ) -> float:
        rate, momentum, decay = rates
        n = starts.shape[0]
        gradient, velocity = o.parameters_at + o.block, o.parameters_at + 2 * o.block
        missed = 0.0
        for begin in range(0, n, batch_size):
            end = min(begin + batch_size, n)
            share = work.dtype.type(1.0 / (end - begin))
            for k in range(o.n_hidden):
                work[o.rate_at + k] = share
            for w in range(begin, end):
                _contrast(values, starts[w], cd_steps, draws[w], work, o, lanes, exact)
                missed += _missed(work, o)
                _add_gradient(work, gradient, share, o, lanes)
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
    """The kernel that measures reconstructions: ``miss(values, starts, lanes, work, out)``.

    `out` (float64 (n_windows,), OUT) is the L2 norm of v minus the visible mean of the hidden mean of v.
    """

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def miss(values: Floats, starts: Any, lanes: Lanes, work: Floats, out: Any) -> None:
        for w in range(starts.shape[0]):
            _positive(values, starts[w], work, o, lanes, exact)
            for k in range(lanes.hidden):
                work[o.state_at + k] = work[o.positive_at + k]
            _residual(work, o, lanes)
            out[w] = _missed(work, o)

    return miss


@cache
def hidden_means_kernel(n_visible: int, n_hidden: int, lag: int, exact: bool) -> Callable[..., None]:
    """The kernel for codes: ``means(values, taps, hidden_bias, lanes, work, codes)``.

    It slides over all rows as if they were one series, eight windows to a register; the caller blanks the rows whose
    window would cross a border. values : float (n * n_visible,); taps : `taps_of`; lanes : int, `BLOCK`; work : float
    (`scratch_size`,), OUT; codes : float (n - lag, n_hidden), OUT, row t for the window of rows t..t + lag.
    """
    span, window = BLOCK + padded(lag), lag + 1
    rows = padded(n_visible * window)
    row_count = -(-rows // window)
    drive = row_count * span

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def means(values: Floats, taps: Floats, hidden_bias: Floats, lanes: int, work: Floats, codes: Floats) -> None:
        n = codes.shape[0]
        for begin in range(0, n, BLOCK):
            size = min(BLOCK, n - begin)
            for t in range(size + lag):
                at = (begin + t) * n_visible
                for i in range(n_visible):
                    work[i * span + t] = values[at + i]
            for h in range(n_hidden):
                bias = hidden_bias[h]
                for t in range(lanes):
                    work[drive + t] = bias
                for j in range(0, rows, LANES):
                    f0, f1, f2, f3 = taps[h, j], taps[h, j + 1], taps[h, j + 2], taps[h, j + 3]
                    f4, f5, f6, f7 = taps[h, j + 4], taps[h, j + 5], taps[h, j + 6], taps[h, j + 7]
                    r0, r1 = (j // window) * span + j % window, ((j + 1) // window) * span + (j + 1) % window
                    r2, r3 = (
                        ((j + 2) // window) * span + (j + 2) % window,
                        ((j + 3) // window) * span + (j + 3) % window,
                    )
                    r4, r5 = (
                        ((j + 4) // window) * span + (j + 4) % window,
                        ((j + 5) // window) * span + (j + 5) % window,
                    )
                    r6, r7 = (
                        ((j + 6) // window) * span + (j + 6) % window,
                        ((j + 7) // window) * span + (j + 7) % window,
                    )
                    for t in range(lanes):
                        work[drive + t] += (
                            f0 * work[r0 + t] + f1 * work[r1 + t] + f2 * work[r2 + t] + f3 * work[r3 + t]
                        ) + (f4 * work[r4 + t] + f5 * work[r5 + t] + f6 * work[r6 + t] + f7 * work[r7 + t])  # fmt: skip
                for t in range(lanes):
                    work[drive + t] = sigmoid(work[drive + t], exact)
                for t in range(size):
                    codes[begin + t, h] = work[drive + t]

    return means


def scratch_size(n_visible: int, lag: int) -> int:
    """Elements of `work` that the kernel of `hidden_means_kernel` needs."""
    row_count = -(-padded(n_visible * (lag + 1)) // (lag + 1))
    return row_count * (BLOCK + padded(lag)) + BLOCK
