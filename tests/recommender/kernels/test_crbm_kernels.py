"""The CRBM's codes are hidden means, for any input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.kernels.crbm import hidden_means


@pytest.mark.parametrize(("dtype", "rel"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_a_code_is_the_logistic_function_of_its_window_and_never_overflows(dtype: type, rel: float) -> None:
    """One feature, lag 1, one hidden unit with W = 1, B = 0 and no bias."""
    values = np.array([[0.0], [-1e4], [-709.9], [-40.0], [-1.0], [0.0], [1.0], [40.0], [1e4], [np.nan]], dtype)
    codes = np.empty((len(values) - 1, 1), dtype)
    hidden_means(values, np.ones((1, 1), dtype), np.zeros((1, 1), dtype), np.zeros(1, dtype), codes)
    expected = [1 / (1 + math.exp(-min(max(v, -700.0), 700.0))) for v in values[1:-1, 0].tolist()]
    assert codes[:-1, 0] == pytest.approx(expected, rel=rel, abs=1e-300)
    assert np.isnan(codes[-1, 0]), "NaN stays NaN"
