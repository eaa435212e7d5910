"""The CRBM as an estimator: held-out windows, epochs and early stopping; `recommender.kernels.crbm` has its arithmetic.

Source: AI4DL (Berral, Wang, Youssef, HotCloud '20), section 3: ten hidden units, three samples of history, contrastive
divergence with means throughout, one window per update, a learning rate of 1e-3, and early stopping after three epochs
without a lower error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from recommender.base.errors import BadArtifact, BadInput, Misuse
from recommender.base.records import IntArray
from recommender.kernels.crbm import hidden_means_kernel, online_kernel, reconstruction_error_kernel
from recommender.kernels.crbm_layout import Floats, Parameters, layout_of, pack, taps_of, unpack, workspace
from recommender.kernels.rows import LANES

HELD_OUT_FRACTION = 0.1
"""Share of the windows held out for early stopping. The published package uses the training error instead."""

MIN_SEGMENTS_TO_HOLD_OUT = 5
"""With fewer segments, holding one out would take a large share of the data and a whole kind of workload."""

INITIAL_WEIGHT_SD = 0.2  # standard deviation of the initial weights, which are normal, times the length of the history
WINDOWS_PER_DRAW = 65_536  # windows per draw of random numbers: 2.6 MB of float32 for ten hidden units
MAX_DELAY = 64  # samples; bounds the rows that are stored for each live container

PARAMETER_NAMES = ("weights", "visible_history", "hidden_history", "visible_bias", "hidden_bias")


@dataclass(eq=False)
class ConditionalRBM:
    """A conditional restricted Boltzmann machine over windows of standardised metrics.

    The reconstruction error is the L2 norm of v - v', averaged over windows, v' being the visible mean of the hidden
    mean of v; in `errors_`, of the last hidden state of the Gibbs chain.
    """

    n_hidden: int = 10  # length of a code
    lag: int = 3  # samples of history in a window
    _: KW_ONLY
    learning_rate: float = 1e-3  # each window's gradient is applied before the next window is read
    cd_steps: int = 1  # steps of the Gibbs chain (the k of CD-k)
    # The chain uses hidden means, as the published package does, or binary samples of them. Gradients always use means.
    hidden_states: Literal["mean", "sampled"] = "mean"
    max_epochs: int = 1000
    patience: int = 3  # consecutive epochs without a lower error after which `fit` stops; 0 disables early stopping
    # Rows by which codes are delayed. 0: the code of row t is that of the window that ends at t. 1: the window ends at
    # t - 1, as in the published package, whose first lag + 1 samples therefore have no code.
    delay: int = 0
    dtype: DTypeLike = "float32"  # "float32" (fast; codes within 1e-6) or "float64" (exact exponentials)
    seed: int = 0  # of initial weights, orders, samples and held-out windows
    parameters_: Parameters = field(init=False)  # of the epoch with the lowest error, of `dtype`
    # Reconstruction error of each epoch, float64 (n_epochs,): on the training windows, each before its own update, and
    # on the held-out windows after it; empty if nothing is held out.
    errors_: NDArray[np.float64] = field(init=False, default_factory=lambda: np.empty(0))
    validation_errors_: NDArray[np.float64] = field(init=False, default_factory=lambda: np.empty(0))

    def fit(
        self, values: ArrayLike, segments: ArrayLike, *, progress: Callable[[int, int], object] = lambda *_: None
    ) -> ConditionalRBM:
        """Train from new initial weights until the error stops falling or `max_epochs` is reached.

        `values`: float (n_samples, n_features): standardised, all finite; segments concatenated.
        `segments`: int (n_segments + 1,): rows ``segments[i]:segments[i + 1]`` are a gap-free stretch of one container;
        one at least has lag + 1 rows.
        `progress`: called after each epoch with (epochs done, max_epochs).

        Raises Misuse: the training diverged.
        """
        data, borders = np.ascontiguousarray(values, dtype=self.dtype), np.asarray(segments)
        self.initialise(data.shape[1])
        train, held_out = hold_out(borders, self.lag, HELD_OUT_FRACTION, self.seed)
        trainer = Trainer(self, data, train)
        best_error, since_best = np.inf, 0
        for epoch in range(self.max_epochs):
            error = self._epoch(trainer, epoch)
            if held_out.size:
                error = float(np.mean(trainer.reconstruction_errors(held_out)))
                self.validation_errors_ = np.append(self.validation_errors_, error)
            if error < best_error:
                self.parameters_, best_error, since_best = trainer.parameters(), error, 0
            else:
                since_best += 1
            progress(epoch + 1, self.max_epochs)
            if self.patience and since_best >= self.patience:
                break
        return self

    def transform(self, values: ArrayLike, segments: ArrayLike) -> Floats:
        """The code of every row, float (n_samples, n_hidden): the hidden mean of its window.

        `values`, `segments`: as in `fit`; BadInput if a value is not finite, as with a scaler that overflows. The first
        ``lag + delay`` rows of each segment, which have no full window, have a code of zeros.
        """
        codes, borders = self._codes(np.ascontiguousarray(values, dtype=self.dtype)), np.asarray(segments)
        for age in range(min(self.lag + self.delay, len(codes))):
            row = borders[:-1] + age
            codes[row[row < borders[1:]]] = 0.0
        return codes

    def transform_windows(self, windows: Floats) -> Floats:
        """The code of each of these windows, contiguous float (m, lag + delay + 1, n_features)."""
        _, length, n_features = windows.shape
        return self._codes(windows.reshape(-1, n_features))[length - 1 :: length]

    def _codes(self, data: Floats) -> Floats:
        """The code of each row that has enough before it."""
        # The minimum and maximum are NaN if any value is, and need no mask as long as the data.
        if not (np.isfinite(data.min()) and np.isfinite(data.max())):
            raise BadInput("a value that is not finite in the encoder's input", remedy="Train the model again.")
        parameters = self.parameters_
        flat = np.empty(len(data) * self.n_hidden + LANES, dtype=data.dtype)  # the kernel writes whole SIMD lanes
        codes = flat[:-LANES].reshape(len(data), self.n_hidden)
        warm_up = self.lag + self.delay
        if len(data) > warm_up:
            kernel = hidden_means_kernel(data.shape[1], self.n_hidden, self.lag, data.dtype == np.float64)
            taps, n = taps_of(parameters).ravel(), len(data) - warm_up
            kernel(data.ravel(), taps, parameters.hidden_bias, n, flat[warm_up * self.n_hidden :])
        return codes

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `from_state` restores an encoder with bit-identical codes."""
        arrays = dict(zip(PARAMETER_NAMES, self.parameters_, strict=True))
        times = {"lag": np.array(self.lag, dtype=np.int64), "delay": np.array(self.delay, dtype=np.int64)}
        return {**arrays, **times, "errors": self.errors_, "validation_errors": self.validation_errors_}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ConditionalRBM:
        """Read the arrays of `to_state`; BadArtifact if one is missing, not finite, or does not fit the others."""
        missing = [name for name in (*PARAMETER_NAMES, "lag", "delay") if name not in state]
        if missing:
            raise BadArtifact(f"the encoder lacks the arrays {', '.join(missing)}. Train it again.")
        if any(state[name].size != 1 or state[name].dtype.kind not in "iu" for name in ("lag", "delay")):
            raise BadArtifact("the encoder's lag and delay must be whole numbers. Train it again.")
        parameters = [state[name] for name in PARAMETER_NAMES]
        lag, delay = int(state["lag"].item()), int(state["delay"].item())
        encoder = cls.from_parameters(*parameters, lag=lag, delay=delay, dtype=state["weights"].dtype.name)
        encoder.errors_ = np.asarray(state.get("errors", np.empty(0)), dtype=np.float64)
        encoder.validation_errors_ = np.asarray(state.get("validation_errors", np.empty(0)), dtype=np.float64)
        return encoder

    @classmethod
    def from_parameters(
        cls, *parameters: NDArray[Any], lag: int, delay: int = 1, dtype: DTypeLike = "float64"
    ) -> ConditionalRBM:
        """Make an encoder from parameters trained elsewhere; by default it encodes as the published package does.

        `parameters`: in the order of `Parameters`; the biases may be columns or rows.
        `dtype`: float32 may change the nearest centre of a window half-way between two.

        Raises BadArtifact: a value is not numeric or not finite, or the shapes are inconsistent.
        """
        if np.dtype(dtype) not in (np.float32, np.float64) or lag < 1 or not 0 <= delay <= MAX_DELAY:
            raise BadArtifact(
                f"an encoder of {np.dtype(dtype)}, lag {lag}, delay {delay} is not supported. Train it again."
            )
        if any(array.dtype.kind not in "fiu" or not np.isfinite(array).all() for array in parameters):
            raise BadArtifact("the encoder's parameters hold values that are not finite numbers. Train it again.")
        arrays = [*parameters[:3], *map(np.ravel, parameters[3:])]
        n_hidden, n_visible = arrays[0].shape if arrays[0].ndim == 2 else (0, 0)
        history = n_visible * lag
        shapes = [(n_hidden, n_visible), (n_visible, history), (n_hidden, history), (n_visible,), (n_hidden,)]
        if [array.shape for array in arrays] != shapes or n_hidden * n_visible == 0:
            given = ", ".join(f"{name} {array.shape}" for name, array in zip(Parameters._fields, arrays, strict=True))
            raise BadArtifact(f"the encoder's shapes are inconsistent at lag {lag}: {given}. Train it again.")
        encoder = cls(n_hidden, lag, delay=delay, dtype=dtype)
        encoder.parameters_ = Parameters._make(np.array(array, dtype=dtype, order="C") for array in arrays)
        return encoder

    def initialise(self, n_visible: int) -> None:
        rng, history = np.random.default_rng(self.seed), n_visible * self.lag
        spread = INITIAL_WEIGHT_SD / history
        shapes = ((self.n_hidden, n_visible), (n_visible, history), (self.n_hidden, history))
        weights = [rng.normal(0.0, spread, shape).astype(self.dtype) for shape in shapes]
        biases = (np.zeros(n_visible, dtype=self.dtype), np.zeros(self.n_hidden, dtype=self.dtype))
        self.parameters_ = Parameters._make((*weights, *biases))
        self.errors_, self.validation_errors_ = np.empty(0), np.empty(0)

    def _epoch(self, trainer: Trainer, epoch: int) -> float:
        error = trainer.epoch(epoch)
        if not np.isfinite(error):
            raise Misuse(
                f"the training of the CRBM diverged in epoch {epoch + 1}. "
                f"Lower learning_rate (now {self.learning_rate:g}), or standardise the features."
            )
        self.errors_ = np.append(self.errors_, error)
        return error


def hold_out(segments: IntArray, lag: int, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """First rows of the windows to train on, increasing, and of the held-out ones, int64 (n_windows,) each.

    With at least `MIN_SEGMENTS_TO_HOLD_OUT` segments, random whole ones are held out, of at most twice `fraction`;
    otherwise, or if all are too large, the end of each segment, after a gap of `lag` windows, so that no row of
    held-out windows is trained on. Segments too short for that are not split.
    """
    windows_of = (np.arange(start, stop - lag) for start, stop in pairwise(segments))
    parts = {number: windows for number, windows in enumerate(windows_of) if windows.size}
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
    """The buffers of a training on contiguous values, float (n_samples, n_features); windows begin at `starts`."""

    def __init__(self, encoder: ConditionalRBM, values: Floats, starts: IntArray) -> None:
        self._encoder, self._values, self._starts = encoder, values.ravel(), starts
        self._layout = layout_of(values.shape[1], encoder.n_hidden, encoder.lag)
        self._exact = values.dtype == np.float64
        self._work = workspace(self._layout, values.dtype)
        pack(encoder.parameters_, self._layout, self._work)

    def parameters(self) -> Parameters:
        """A copy of the present parameters."""
        return unpack(self._layout, self._work)

    def epoch(self, number: int) -> float:
        """Train on all windows in random order; the mean reconstruction error, each window's before its own update."""
        encoder, o = self._encoder, self._layout
        rng = np.random.default_rng([encoder.seed, 2, number, 0])
        order = rng.permutation(self._starts)
        kernel, rate = online_kernel(o, self._exact), self._values.dtype.type(encoder.learning_rate)
        width = encoder.cd_steps * o.n_hidden if encoder.hidden_states == "sampled" else 0
        missed = 0.0
        for begin in range(0, len(order), WINDOWS_PER_DRAW):
            part = order[begin : begin + WINDOWS_PER_DRAW]
            draws = rng.random((len(part), width)).astype(self._values.dtype)
            missed += kernel(self._values, part, rate, o.n_history, encoder.cd_steps, draws, self._work)
        return missed / len(order)

    def reconstruction_errors(self, starts: IntArray) -> NDArray[np.float64]:
        """Reconstruction error of each window, float64 (n_windows,)."""
        out = np.empty(len(starts))
        reconstruction_error_kernel(self._layout, self._exact)(self._values, starts, self._work, out)
        return out
