"""Where everything a CRBM kernel touches lies in its one flat workspace, and how parameters get in and out of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CACHE_LINE = 64
"""Bytes."""

LANES = 8
"""Rows and coefficients are padded to whole groups of 8: one AVX2 register of float32, two of float64."""


class Parameters(NamedTuple):
    """A CRBM in the paper's symbols.

    The history vector c holds each feature's `lag` past samples, oldest first, one feature after another: entry
    ``feature * lag + age`` (the order in which AI4DL's published parameters reproduce its published phases).

    Attributes
    ----------
    W : (n_hidden, n_visible)
        Visible to hidden.
    A : (n_visible, n_visible * lag)
        History to visible.
    B : (n_hidden, n_visible * lag)
        History to hidden.
    visible_bias, hidden_bias : (n_visible,), (n_hidden,)
    """

    W: Floats
    A: Floats
    B: Floats
    visible_bias: Floats
    hidden_bias: Floats


class Layout(NamedTuple):
    """Sizes and offsets, in elements, of the workspace of a training kernel.

    The buffers come first: the window (`history_at`, `visible_at`), the pre-activations of all outputs (`drive_at`:
    hidden lanes, then visible lanes), those of the reconstruction (`echo_at`), what the reconstruction misses
    (`residual_at`), hidden means of data and reconstruction (`positive_at`, `negative_at`), the state that the Gibbs
    chain goes on from (`state_at`), the rate of each hidden unit, zero for the padding, whose mean is a half and which
    must not learn (`rate_at`), the negative means times the rate (`pull_at`) and the rate times the contrast of
    both phases (`push_at`). Behind them lie blocks of `block` elements: parameters, gradient, velocity. Offsets within
    a block: bias (outputs), then three matrices by rows: history (one row an entry of c, oldest sample first,
    features together, as a window lies in memory; columns are outputs), W transposed (columns are hidden lanes), and W
    (columns are visible lanes), which spares the kernels every sum across lanes.
    """

    n_visible: int
    n_hidden: int
    lag: int
    n_history: int
    history_rows: int
    visible_lanes: int
    hidden_lanes: int
    outputs: int
    history_at: int
    visible_at: int
    drive_at: int
    echo_at: int
    residual_at: int
    positive_at: int
    negative_at: int
    state_at: int
    rate_at: int
    pull_at: int
    push_at: int
    parameters_at: int
    history_weights: int
    visible_weights: int
    hidden_weights: int
    block: int


class Lanes(NamedTuple):
    """The inner loops' lengths, handed over at run time.

    They repeat what the layout says. A length that the compiler knows makes it unroll the short loop into scalars
    before it comes to vectorising; one it does not know keeps the loop, which then becomes whole registers.
    """

    outputs: int
    hidden: int
    visible: int


def padded(n: int) -> int:
    """`n` rounded up to whole lanes."""
    return -(-n // LANES) * LANES


def layout_of(n_visible: int, n_hidden: int, lag: int) -> Layout:
    """The layout for one shape of CRBM."""
    visible, hidden, history = padded(n_visible), padded(n_hidden), padded(n_visible * lag)
    outputs = hidden + visible
    sizes = (history, visible, outputs, hidden, visible, hidden, hidden, hidden, hidden, hidden, outputs)
    at = [0]
    for size in sizes:
        at.append(at[-1] + size)
    history_weights = outputs
    visible_weights = history_weights + history * outputs
    hidden_weights = visible_weights + visible * hidden
    weights = (history_weights, visible_weights, hidden_weights, hidden_weights + hidden * visible)
    return Layout._make((n_visible, n_hidden, lag, n_visible * lag, history, visible, hidden, outputs, *at, *weights))


def lanes_of(o: Layout) -> Lanes:
    """The loop lengths for a layout."""
    return Lanes(o.outputs, o.hidden_lanes, o.visible_lanes)


def workspace(o: Layout, dtype: Any, blocks: int = 1) -> Floats:
    """A zeroed workspace; `blocks` is 1 for parameters alone, 3 with gradient and velocity.

    It begins at a cache line: NumPy alone promises 16 bytes, and rows that straddle two lines cost up to a fifth of the
    training speed, in some processes and not in others.
    """
    length, width = o.parameters_at + blocks * o.block, np.dtype(dtype).itemsize
    roomy = np.zeros(length + CACHE_LINE // width, dtype=dtype)
    skipped = (-roomy.ctypes.data % CACHE_LINE) // width
    return roomy[skipped : skipped + length]


def pack(parameters: Parameters, o: Layout, work: Floats) -> None:
    """Write parameters into the first block of `work` (OUT); the padding is left as it is."""
    nv, nh = o.n_visible, o.n_hidden
    bias, history, transposed, plain = _views(o, work)
    bias[:nh], bias[o.hidden_lanes : o.hidden_lanes + nv] = parameters.hidden_bias, parameters.visible_bias
    for weights, first in ((parameters.B, 0), (parameters.A, o.hidden_lanes)):
        by_time = weights.reshape(-1, nv, o.lag).transpose(2, 1, 0).reshape(o.n_history, -1)
        history[: o.n_history, first : first + len(weights)] = by_time
    transposed[:nv, :nh] = parameters.W.T
    plain[:nh, :nv] = parameters.W


def unpack(o: Layout, work: Floats) -> Parameters:
    """The parameters of the first block, copied."""
    nv, nh = o.n_visible, o.n_hidden
    bias, history, transposed, _ = _views(o, work)

    def by_feature(first: int, count: int) -> Floats:
        columns = history[: o.n_history, first : first + count]
        return np.ascontiguousarray(columns.reshape(o.lag, nv, count).transpose(2, 1, 0).reshape(count, o.n_history))

    return Parameters(
        np.ascontiguousarray(transposed[:nv, :nh].T),
        by_feature(o.hidden_lanes, nv),
        by_feature(0, nh),
        bias[o.hidden_lanes : o.hidden_lanes + nv].copy(),
        bias[:nh].copy(),
    )


def taps_of(parameters: Parameters, lag: int) -> Floats:
    """B and W as one filter bank for `hidden_means_kernel`: (n_hidden, padded n_visible * (lag + 1)).

    Column ``feature * (lag + 1) + age`` weighs that feature's sample of that age, oldest first, the present one last.
    """
    n_hidden, nv = parameters.W.shape
    taps = np.zeros((n_hidden, padded(nv * (lag + 1))), dtype=parameters.W.dtype)
    bank = taps[:, : nv * (lag + 1)].reshape(n_hidden, nv, lag + 1)
    bank[:, :, :lag] = parameters.B.reshape(n_hidden, nv, lag)
    bank[:, :, lag] = parameters.W
    return taps


def _views(o: Layout, work: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    block = work[o.parameters_at : o.parameters_at + o.block]
    return (
        block[: o.outputs],
        block[o.history_weights : o.visible_weights].reshape(o.history_rows, o.outputs),
        block[o.visible_weights : o.hidden_weights].reshape(o.visible_lanes, o.hidden_lanes),
        block[o.hidden_weights :].reshape(o.hidden_lanes, o.visible_lanes),
    )
