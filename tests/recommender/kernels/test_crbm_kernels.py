"""The CRBM's arithmetic: a sigmoid of known accuracy, and a workspace that returns its parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.crbm import sigmoid
from recommender.kernels.crbm_layout import Parameters, layout_of, pack, taps_of, unpack, workspace
from recommender.kernels.rows import LANES


@njit(cache=True)
def _sigmoids(x: NDArray[np.floating], exact: bool, out: NDArray[np.floating]) -> None:
    for i in range(x.shape[0]):
        out[i] = sigmoid(x[i], exact)


def test_the_fast_sigmoid_is_accurate_to_a_quarter_of_a_millionth() -> None:
    x = np.concatenate([np.linspace(-30, 30, 40_001), [-3e38, -1e10, -1e-20, 0.0, 1e10, 3e38]]).astype(np.float32)
    out = np.empty_like(x)
    _sigmoids(x, False, out)
    true = 1.0 / (1.0 + np.exp(-np.clip(x.astype(np.float64), -700, 700)))
    assert np.abs(out - true).max() < 2.5e-7
    assert out.min() >= 0.0
    assert out.max() <= 1.0
    assert (np.diff(out[:40_001]) > -3e-7).all()


def test_the_exact_sigmoid_is_the_formula_and_does_not_overflow() -> None:
    x = np.array([-1e4, -709.9, -40.0, -1.0, 0.0, 1.0, 40.0, 1e4])
    out = np.empty_like(x)
    _sigmoids(x, True, out)
    assert out[2:] == pytest.approx([1 / (1 + math.exp(-v)) for v in x[2:]], rel=1e-14)
    assert (out[:2] < 1e-300).all()


@pytest.mark.parametrize("exact", [False, True])
def test_nan_stays_nan(exact: bool) -> None:
    x = np.array([np.nan], dtype=np.float64 if exact else np.float32)
    out = np.zeros_like(x)
    _sigmoids(x, exact, out)
    assert np.isnan(out[0])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 11), st.integers(1, 19), st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_unpacked_parameters_equal_the_packed_ones(n_visible: int, n_hidden: int, lag: int, dtype: type) -> None:
    rng = np.random.default_rng(n_visible * 100 + n_hidden)
    history = n_visible * lag
    shapes = ((n_hidden, n_visible), (n_visible, history), (n_hidden, history), (n_visible,), (n_hidden,))
    parameters = Parameters(*(rng.normal(size=shape).astype(dtype) for shape in shapes))
    layout = layout_of(n_visible, n_hidden, lag)
    work = workspace(layout, dtype)
    pack(parameters, layout, work)
    for given_array, returned in zip(parameters, unpack(layout, work), strict=True):
        assert np.array_equal(given_array, returned)
    assert layout.outputs % LANES == 0
    assert np.count_nonzero(work) == sum(p.size for p in parameters) + parameters.W.size  # W is stored in both orders


def test_taps_are_ordered_by_age_of_the_sample_oldest_first_and_then_by_feature() -> None:
    """Two features, lag 2, one hidden unit: B = (a0, a1, b0, b1), W = (a, b)."""
    B, W = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[10.0, 20.0]])
    parameters = Parameters(W, np.zeros((2, 4)), B, np.zeros(2), np.zeros(1))
    taps = taps_of(parameters)
    assert taps.shape == (6, LANES)
    assert taps[:, 0].tolist() == [1, 3, 2, 4, 10, 20]
    assert not taps[:, 1:].any()
