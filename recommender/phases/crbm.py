"""The CRBM as an estimator: validation, epochs and early stopping; the arithmetic is in `recommender.kernels.crbm`.

Source: AI4DL (Berral, Wang, Youssef, HotCloud '20), section 3: ten hidden units, three samples of history, contrastive
divergence with means throughout, one window per update, a learning rate of 1e-3, and early stopping after three epochs
without a lower error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from recommender.errors import BadArtifact, BadInput, Misuse, NotEnoughData
from recommender.kernels.crbm import Floats, Parameters, hidden_means
from recommender.kernels.windows import window_starts
from recommender.phases.crbm_training import Trainer, hold_out
from recommender.records import IntArray

HELD_OUT_FRACTION = 0.1
"""Share of the windows held out for early stopping. The published package uses the training error instead."""

INITIAL_WEIGHT_SD = 0.2
"""Standard deviation of the initial weights, which are normal, times the length of the history."""

MAX_DELAY = 64
"""Samples; bounds the rows that are stored for each live container."""

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

PARAMETER_NAMES = ("weights", "visible_history", "hidden_history", "visible_bias", "hidden_bias")


class ConditionalRBM:
    """A conditional restricted Boltzmann machine over windows of standardised metrics.

    Parameters
    ----------
    n_hidden
        Length of a code.
    lag
        Samples of history in a window.
    learning_rate
        Step size; each window's gradient is applied before the next window is read.
    cd_steps
        Steps of the Gibbs chain (the k of CD-k).
    hidden_states
        "mean": the chain uses hidden means, as the published package does; "sampled": binary samples of them. Gradients
        always use means.
    max_epochs
        Maximum number of epochs of `fit`.
    patience
        `fit` stops after so many consecutive epochs without a lower error; 0 disables early stopping.
    delay
        Rows by which codes are delayed. 0: the code of row t is that of the window that ends at t. 1: the window ends
        at t - 1, as in the published package, whose first lag + 1 samples therefore have no code.
    dtype
        "float32" (codes within 1e-6) or "float64".
    seed
        Seed of initial weights, orders, samples and held-out windows.

    Attributes
    ----------
    parameters_ : Parameters
        Those of the paper, of `dtype`.
    errors_ : float64 (n_epochs,)
        Reconstruction error of each epoch on the training windows, each before its own update.
    validation_errors_ : float64 (n_epochs,)
        Reconstruction error on the held-out windows after each epoch; empty if nothing is held out.
    n_epochs_ : int
        Epochs trained. `fit` keeps the parameters of the epoch with the lowest error.

    Notes
    -----
    The reconstruction error is the L2 norm of v - v', averaged over windows, v' being the visible mean of the hidden
    mean of v; in `errors_`, of the last hidden state of the Gibbs chain.
    """

    parameters_: Parameters
    errors_: NDArray[np.float64]
    validation_errors_: NDArray[np.float64]
    n_epochs_: int

    def __init__(
        self,
        n_hidden: int = 10,
        lag: int = 3,
        *,
        learning_rate: float = 1e-3,
        cd_steps: int = 1,
        hidden_states: Literal["mean", "sampled"] = "mean",
        max_epochs: int = 1000,
        patience: int = 3,
        delay: int = 0,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        self.n_hidden = n_hidden
        self.lag = lag
        self.learning_rate = learning_rate
        self.cd_steps = cd_steps
        self.hidden_states = hidden_states
        self.max_epochs = max_epochs
        self.patience = patience
        self.delay = delay
        self.dtype = dtype
        self.seed = seed

    def fit(
        self,
        values: ArrayLike,
        segments: ArrayLike,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> ConditionalRBM:
        """Train from new initial weights until the error stops falling or `max_epochs` is reached.

        Parameters
        ----------
        values : float (n_samples, n_features)
            Standardised, all finite; segments concatenated.
        segments : int (n_segments + 1,)
            Bounds: rows ``segments[i]:segments[i + 1]`` are one gap-free stretch of one container.
        progress
            Called after each epoch with (epochs done, max_epochs).

        Raises BadInput: wrong shapes, a value that is not finite, or bounds that are not increasing.
        Raises NotEnoughData: no segment has lag + 1 rows.
        Raises Misuse: an option is out of its range, or the training diverged; the encoder is not fitted then.
        """
        self._check_options()
        data, borders = _checked_rows(values, segments, self.dtype)
        if not window_starts(borders, self.lag).size:
            raise NotEnoughData(
                f"no segment has {self.lag + 1} samples in a row. Give longer series, or a smaller lag."
            )
        self._initialise(data.shape[1])
        train, held_out = hold_out(borders, self.lag, HELD_OUT_FRACTION, self.seed)
        trainer = self._trainer(data, train)
        del self.parameters_  # until they are trained
        best, best_error, since_best = trainer.parameters(), np.inf, 0
        for epoch in range(self.max_epochs):
            error = self._epoch(trainer, epoch)
            if held_out.size:
                error = float(np.mean(trainer.reconstruction_errors(held_out)))
                self.validation_errors_ = np.append(self.validation_errors_, error)
            if error < best_error:
                best, best_error, since_best = trainer.parameters(), error, 0
            else:
                since_best += 1
            if progress is not None:
                progress(epoch + 1, self.max_epochs)
            if self.patience and since_best >= self.patience:
                break
        self.parameters_ = best
        return self

    def transform(self, values: ArrayLike, segments: ArrayLike) -> Floats:
        """The code of every row: the hidden mean of its window.

        `values`, `segments`: as in `fit`.

        Returns float (n_samples, n_hidden), of `dtype`: all zero in the first ``lag + delay`` rows of each segment,
        which have no full window.

        Raises BadInput: as `fit`, or another number of features than fitted.
        Raises Misuse: not fitted yet.
        """
        data, borders = _checked_rows(values, segments, self.dtype)
        self._require_fit()
        parameters = self.parameters_
        if data.shape[1] != parameters.W.shape[1]:
            raise BadInput(
                f"{data.shape[1]} features where the encoder was fitted on {parameters.W.shape[1]}",
                remedy="Give the same features in the same order.",
            )
        codes, warm_up = np.empty((len(data), self.n_hidden), data.dtype), self.lag + self.delay
        present, past = parameters.W.T.copy(), parameters.B.T.copy()
        hidden_means(data, present, past, parameters.hidden_bias, codes[warm_up:])
        for age in range(min(warm_up, len(data))):
            row = borders[:-1] + age
            codes[row[row < borders[1:]]] = 0.0
        return codes

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which `from_state` restores an encoder with bit-identical codes."""
        self._require_fit()
        arrays = dict(zip(PARAMETER_NAMES, self.parameters_, strict=True))
        times = {"lag": np.array(self.lag, dtype=np.int64), "delay": np.array(self.delay, dtype=np.int64)}
        return {**arrays, **times, "errors": self.errors_, "validation_errors": self.validation_errors_}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> ConditionalRBM:
        """Read the arrays of `to_state`.

        Raises BadArtifact: an array is missing, not numeric, not finite, or its shape does not fit the others.
        """
        missing = [name for name in (*PARAMETER_NAMES, "lag", "delay") if name not in state]
        if missing:
            raise BadArtifact(f"the encoder lacks the arrays {', '.join(missing)}. Train it again.")
        if any(state[name].size != 1 or state[name].dtype.kind not in "iu" for name in ("lag", "delay")):
            raise BadArtifact("the encoder's lag and delay must be whole numbers. Train it again.")
        weights, lag, delay = state["weights"], int(state["lag"].item()), int(state["delay"].item())
        arrays = [state[name] for name in PARAMETER_NAMES]
        encoder = cls.from_parameters(*arrays, lag=lag, delay=delay, dtype=weights.dtype.name)
        encoder.errors_ = np.asarray(state.get("errors", np.empty(0)), dtype=np.float64)
        encoder.validation_errors_ = np.asarray(state.get("validation_errors", np.empty(0)), dtype=np.float64)
        encoder.n_epochs_ = len(encoder.errors_)
        return encoder

    @classmethod
    def from_parameters(
        cls,
        weights: NDArray[Any],
        visible_history: NDArray[Any],
        hidden_history: NDArray[Any],
        visible_bias: NDArray[Any],
        hidden_bias: NDArray[Any],
        *,
        lag: int,
        delay: int = 1,
        dtype: DTypeLike = "float64",
    ) -> ConditionalRBM:
        """Make an encoder from parameters trained elsewhere; by default it encodes as the published package does.

        Parameters
        ----------
        weights, visible_history, hidden_history
            W, A, B with the shapes and column order of `Parameters`.
        visible_bias, hidden_bias
            One number per unit; may be a single column or row.
        lag, delay, dtype
            As in the constructor. float32 may change the nearest centre of a window half-way between two.

        Raises BadArtifact: a value is not numeric or not finite, or the shapes are inconsistent.
        """
        arrays = (weights, visible_history, hidden_history, np.ravel(visible_bias), np.ravel(hidden_bias))
        parameters = _checked_parameters(arrays, lag, delay, dtype)
        encoder = cls(len(parameters.W), lag, delay=delay, dtype=dtype)
        encoder.parameters_ = parameters
        encoder._reset_errors()
        return encoder

    def _reset_errors(self) -> None:
        self.errors_ = np.empty(0)
        self.validation_errors_ = np.empty(0)
        self.n_epochs_ = 0

    def _initialise(self, n_visible: int) -> None:
        rng, history = np.random.default_rng(self.seed), n_visible * self.lag
        spread = INITIAL_WEIGHT_SD / history
        shapes = ((self.n_hidden, n_visible), (n_visible, history), (self.n_hidden, history))
        weights = [rng.normal(0.0, spread, shape).astype(self.dtype) for shape in shapes]
        biases = (np.zeros(n_visible, dtype=self.dtype), np.zeros(self.n_hidden, dtype=self.dtype))
        self.parameters_ = Parameters._make((*weights, *biases))
        self._reset_errors()

    def _trainer(self, data: Floats, starts: IntArray) -> Trainer:
        sampled = self.hidden_states == "sampled"
        return Trainer(data, starts, self.parameters_, self.cd_steps, self.seed, sampled=sampled)

    def _epoch(self, trainer: Trainer, epoch: int) -> float:
        error = trainer.epoch(epoch, self.learning_rate)
        if not np.isfinite(error):
            raise Misuse(
                f"the training of the CRBM diverged in epoch {epoch + 1}. "
                f"Lower learning_rate (now {self.learning_rate:g}), or standardise the features."
            )
        self.errors_ = np.append(self.errors_, error)
        self.n_epochs_ += 1
        return error

    def _check_options(self) -> None:
        possible = {
            "n_hidden": self.n_hidden >= 1,
            "lag": self.lag >= 1,
            "learning_rate": self.learning_rate > 0.0,
            "cd_steps": self.cd_steps >= 1,
            "hidden_states": self.hidden_states in ("mean", "sampled"),
            "max_epochs": self.max_epochs >= 1,
            "patience": self.patience >= 0,
            "delay": 0 <= self.delay <= MAX_DELAY,
            "dtype": np.dtype(self.dtype) in DTYPES,
        }
        for name, is_possible in possible.items():
            if not is_possible:
                raise Misuse(f"{name} cannot be {getattr(self, name)!r}. See the parameters of ConditionalRBM.")

    def _require_fit(self) -> None:
        if not hasattr(self, "parameters_"):
            raise Misuse("this ConditionalRBM has not been fitted. Call fit, or load its state.")


def _checked_rows(values: ArrayLike, segments: ArrayLike, dtype: DTypeLike) -> tuple[Floats, IntArray]:
    """Validate and convert values to C-contiguous `dtype` (n_samples, n_features), and segments to int64."""
    data = np.ascontiguousarray(values, dtype=dtype)
    if data.ndim != 2 or 0 in data.shape:
        raise BadInput(f"values has shape {np.shape(values)}", remedy="Give rows of samples and columns of features.")
    # min and max are NaN if any value is; this avoids a mask as long as the data
    if not (np.isfinite(data.min()) and np.isfinite(data.max())):
        row, column = np.argwhere(~np.isfinite(data))[0].tolist()
        raise BadInput(
            "a value that is not finite in the encoder's input",
            remedy="Cut the series into gap-free segments before encoding it.",
            row=row + 1,
            column=str(column),
        )
    borders = np.asarray(segments)
    whole = borders.ndim == 1 and borders.size >= 2 and borders.dtype.kind in "iu"
    if not whole or borders[0] != 0 or borders[-1] != len(data) or (np.diff(borders.astype(np.int64)) < 0).any():
        raise BadInput(
            f"segments do not cover the {len(data)} rows",
            remedy="Give whole numbers that increase from 0 to the number of rows.",
        )
    return data, borders.astype(np.int64)


def _checked_parameters(arrays: Sequence[NDArray[Any]], lag: int, delay: int, dtype: DTypeLike) -> Parameters:
    """Validate W, A, B and both biases, and copy them as `dtype`."""
    if np.dtype(dtype) not in DTYPES or lag < 1 or not 0 <= delay <= MAX_DELAY:
        raise BadArtifact(
            f"an encoder of {np.dtype(dtype)}, lag {lag}, delay {delay} is not supported. Train it again."
        )
    if any(a.dtype.kind not in "fiu" or not np.isfinite(a).all() for a in arrays):
        raise BadArtifact("the encoder's parameters hold values that are not finite numbers. Train it again.")
    n_hidden, n_visible = arrays[0].shape if arrays[0].ndim == 2 else (0, 0)
    history = n_visible * lag
    shapes = [(n_hidden, n_visible), (n_visible, history), (n_hidden, history), (n_visible,), (n_hidden,)]
    if [a.shape for a in arrays] != shapes or n_hidden * n_visible == 0:
        given = ", ".join(f"{name} {a.shape}" for name, a in zip(Parameters._fields, arrays, strict=True))
        raise BadArtifact(f"the encoder's shapes are inconsistent at lag {lag}: {given}. Train it again.")
    return Parameters._make(np.array(a, dtype=dtype, order="C") for a in arrays)
