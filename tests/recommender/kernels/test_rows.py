"""Rows compute lane by lane what numpy computes, and write nothing beyond the lanes in use."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from recommender.kernels.rows import (
    LANES,
    exponential,
    group,
    number_at,
    padded,
    put_row,
    put_used,
    row_at,
    total,
    used_at,
    where_less,
    zeros,
    zeros_like,
)

USED = 10
"""Two lanes beyond a first register."""

PADDED = padded(USED)


@njit(cache=True)
def _combined(a: NDArray[np.floating], b: NDArray[np.floating], out: NDArray[np.floating]) -> float:
    like = zeros(a, USED)
    x, y = used_at(like, a, 1), used_at(like, b, 0)
    z = (x + y) * (x - number_at(b, 2)) / (y + 2.0)
    z += 1.0
    z = exponential(zeros_like(z) - where_less(x, y, z, 0.5))
    put_row(out, 0, used_at(like, a, 0))
    put_used(out, PADDED, z)
    return total(row_at(like, out, 0))


@pytest.mark.parametrize(("dtype", "rel"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_rows_agree_with_numpy(dtype: type, rel: float) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, USED + 1).astype(dtype), rng.uniform(0, 1, USED).astype(dtype)
    out = np.full(PADDED + USED + 1, -1.0, dtype=dtype)
    summed = _combined(a, b, out)
    x = a[1:]
    expected = np.exp(-np.where(x < b, (x + b) * (x - b[2]) / (b + 2) + 1, 0.5))
    assert np.array_equal(out[:USED], a[:USED])
    assert not out[USED:PADDED].any()
    assert out[PADDED:-1] == pytest.approx(expected, rel=rel)
    assert out[-1] == -1.0
    assert summed == pytest.approx(a[:USED].sum(), rel=10 * rel)


@njit(cache=True)
def _smaller(a: NDArray[np.floating], limit: float, out: NDArray[np.floating]) -> None:
    x = used_at(zeros(a, LANES), a, 0)
    put_row(out, 0, where_less(limit, x, limit, x))


def test_a_comparison_keeps_nan() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 2.0, 0.0, 1.0, 3.0, -0.5])
    out = np.empty(LANES)
    _smaller(a, 1.0, out)
    assert np.isnan(out[0])
    assert out[1:].tolist() == [1.0, -np.inf, 1.0, 0.0, 1.0, 1.0, -0.5]


def test_lanes_come_in_whole_groups() -> None:
    assert [padded(n) for n in (1, LANES, LANES + 1, 4 * LANES + 1)] == [LANES, LANES, 2 * LANES, 6 * LANES]
    assert [group(n) for n in (1, LANES, LANES + 1, 4 * LANES + 1)] == [LANES, LANES, 2 * LANES, 2 * LANES]
