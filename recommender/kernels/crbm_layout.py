"""Memory layout of the flat workspace of a CRBM kernel, and how parameters are packed into it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.kernels.rows import group, padded

Floats = NDArray[np.floating[Any]]

CACHE_LINE = 64
"""Bytes."""


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

    The buffers come first: the sample to be reconstructed (`visible_at`), the pre-activations of all outputs
    (`pre_activation_at`: hidden lanes, then visible lanes), the hidden means of data and reconstruction (`positive_at`,
    `negative_at`), the state of the Gibbs chain (`state_at`), the reconstruction minus the sample (`residual_at`), the
    learning rate of each hidden unit, zero for the padding, whose mean is a half and which must not learn (`rate_at`),
    and the two factors of the gradient of W: the rate times positive minus negative means (`push_at`), and minus the
    rate times the negative means (`pull_at`). The parameters follow, `block` elements. Offsets within them: bias
    (hidden lanes, then visible lanes: `outputs`), then three row-major matrices: history (a row per entry of c, oldest
    sample first, features together, as a window lies in memory; columns are outputs), W transposed (columns are hidden
    lanes), and W (columns are visible lanes): with both, no kernel sums across lanes. Columns are processed in groups
    of `hidden_group` and `visible_group`.
    """

    n_visible: int
    n_hidden: int
    lag: int
    n_history: int
    visible_group: int
    hidden_group: int
    visible_lanes: int
    hidden_lanes: int
    outputs: int
    visible_at: int
    pre_activation_at: int
    positive_at: int
    negative_at: int
    state_at: int
    residual_at: int
    rate_at: int
    push_at: int
    pull_at: int
    parameters_at: int
    history_weights: int
    visible_weights: int
    hidden_weights: int
    block: int


def layout_of(n_visible: int, n_hidden: int, lag: int) -> Layout:
    """The layout for one shape of CRBM."""
    visible, hidden, history = padded(n_visible), padded(n_hidden), n_visible * lag
    outputs = hidden + visible
    buffers = np.cumsum([0, visible, outputs, hidden, hidden, hidden, visible, hidden, hidden, hidden]).tolist()
    weights = np.cumsum([outputs, history * outputs, n_visible * hidden, n_hidden * visible]).tolist()
    return Layout(
        n_visible,
        n_hidden,
        lag,
        history,
        group(n_visible),
        group(n_hidden),
        visible,
        hidden,
        outputs,
        *buffers,
        *weights,
    )


def workspace(o: Layout, dtype: Any) -> Floats:
    """A zeroed workspace, aligned to a cache line.

    NumPy alone guarantees 16 bytes, and rows that straddle two lines cost up to a fifth of the training speed.
    """
    length, width = o.parameters_at + o.block, np.dtype(dtype).itemsize
    padded_work = np.zeros(length + CACHE_LINE // width, dtype=dtype)
    skipped = (-padded_work.ctypes.data % CACHE_LINE) // width
    return padded_work[skipped : skipped + length]


def pack(parameters: Parameters, o: Layout, work: Floats) -> None:
    """Write parameters into `work` (OUT), padding excepted."""
    nv, nh = o.n_visible, o.n_hidden
    bias, history, transposed, plain = _views(o, work)
    bias[:nh], bias[o.hidden_lanes : o.hidden_lanes + nv] = parameters.hidden_bias, parameters.visible_bias
    for weights, first in ((parameters.B, 0), (parameters.A, o.hidden_lanes)):
        history[:, first : first + len(weights)] = _by_time(weights, nv)
    transposed[:, :nh] = parameters.W.T
    plain[:, :nv] = parameters.W


def unpack(o: Layout, work: Floats) -> Parameters:
    """A copy of the parameters in `work`."""
    nv, nh = o.n_visible, o.n_hidden
    bias, history, transposed, _ = _views(o, work)

    def by_feature(first: int, count: int) -> Floats:
        columns = history[:, first : first + count]
        return np.ascontiguousarray(columns.reshape(o.lag, nv, count).transpose(2, 1, 0).reshape(count, o.n_history))

    return Parameters(
        np.ascontiguousarray(transposed[:, :nh].T),
        by_feature(o.hidden_lanes, nv),
        by_feature(0, nh),
        bias[o.hidden_lanes : o.hidden_lanes + nv].copy(),
        bias[:nh].copy(),
    )


def taps_of(parameters: Parameters) -> Floats:
    """B and W as one matrix for `hidden_means_kernel`: (n_visible * (lag + 1), hidden lanes).

    Row ``age * n_visible + feature`` has the weights of that feature at that age, oldest first, the present last.
    """
    n_hidden, nv = parameters.W.shape
    taps = np.zeros((parameters.B.shape[1] + nv, padded(n_hidden)), dtype=parameters.W.dtype)
    taps[:-nv, :n_hidden], taps[-nv:, :n_hidden] = _by_time(parameters.B, nv), parameters.W.T
    return taps


def _by_time(weights: Floats, n_visible: int) -> Floats:
    """History weights (n, n_visible * lag) as rows in the memory order of a window, (n_visible * lag, n)."""
    n = len(weights)
    return weights.reshape(n, n_visible, -1).transpose(2, 1, 0).reshape(-1, n)


def _views(o: Layout, work: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    block = work[o.parameters_at : o.parameters_at + o.block]
    return (
        block[: o.outputs],
        block[o.history_weights : o.visible_weights].reshape(o.n_history, o.outputs),
        block[o.visible_weights : o.hidden_weights].reshape(o.n_visible, o.hidden_lanes),
        block[o.hidden_weights :].reshape(o.n_hidden, o.visible_lanes),
    )
