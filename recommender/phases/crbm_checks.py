"""What a CRBM refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from recommender.errors import BadArtifact, BadInput, Misuse
from recommender.kernels.crbm_layout import Floats, Parameters
from recommender.kernels.windows import Ints

MOST_DELAY = 64
"""Samples: a code that comes later tells nothing of now, and the rows of it are kept for each live container."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `Misuse` for the first constructor parameter of `ConditionalRBM` that is out of its range."""
    within = {
        "n_hidden": options["n_hidden"] >= 1,
        "lag": options["lag"] >= 1,
        "delay": 0 <= options["delay"] <= MOST_DELAY,
        "cd_steps": options["cd_steps"] >= 1,
        "learning_rate": options["learning_rate"] > 0,
        "hidden_states": options["hidden_states"] in ("mean", "sampled"),
        "max_epochs": options["max_epochs"] >= 1,
        "patience": options["patience"] >= 0,
        "dtype": np.dtype(options["dtype"]) in FLOATS,
    }
    for name, fits in within.items():
        if not fits:
            raise Misuse(f"ConditionalRBM: {name}={options[name]!r} is out of range. See its description.")


def checked_rows(values: ArrayLike, segments: ArrayLike, dtype: DTypeLike) -> tuple[Floats, Ints]:
    """Values as C-contiguous `dtype` (n_samples, n_features) and borders as int64, or `BadInput`."""
    data = np.ascontiguousarray(values, dtype=dtype)
    if data.ndim != 2 or 0 in data.shape:
        raise BadInput(f"values has shape {np.shape(values)}", remedy="Give rows of samples and columns of features.")
    # both extremes are NaN where one value is; without a mask as long as the data there is less memory to touch
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


def checked_parameters(arrays: Sequence[NDArray[Any]], lag: int, delay: int, dtype: DTypeLike) -> Parameters:
    """W, A, B and both biases, copied as `dtype`, or `BadArtifact` where they do not make an encoder."""
    if np.dtype(dtype) not in FLOATS or lag < 1 or not 0 <= delay <= MOST_DELAY:
        raise BadArtifact(f"an encoder of {np.dtype(dtype)}, lag {lag}, delay {delay} does not exist. Train it again.")
    if any(a.dtype.kind not in "fiu" or not np.isfinite(a).all() for a in arrays):
        raise BadArtifact("the encoder's parameters hold something that is no finite number. Train it again.")
    n_hidden, n_visible = arrays[0].shape if arrays[0].ndim == 2 else (0, 0)
    history = n_visible * lag
    shapes = [(n_hidden, n_visible), (n_visible, history), (n_hidden, history), (n_visible,), (n_hidden,)]
    if [a.shape for a in arrays] != shapes or n_hidden * n_visible == 0:
        given = ", ".join(f"{name} {a.shape}" for name, a in zip(Parameters._fields, arrays, strict=True))
        raise BadArtifact(f"the encoder's shapes do not fit each other at lag {lag}: {given}. Train it again.")
    return Parameters._make(np.array(a, dtype=dtype, order="C") for a in arrays)
