"""Codes of a trained CRBM: the hidden means of all windows of a series, many windows side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

from recommender.kernels.crbm import FLAGS, sigmoid
from recommender.kernels.crbm_layout import Floats
from recommender.kernels.rows import LANES, group, number_at, padded, put_row, put_used, row_at, used_at, zeros

TILE = 6
"""Windows encoded side by side: with 16 hidden lanes of float32 their sums fill 12 of 16 AVX2 registers."""

BLOCK = 16 * TILE
"""Windows whose sums go through the sigmoid together, all lanes in use: with 10 hidden units 4 KiB of float32."""


@njit(cache=True, nogil=True, fastmath=FLAGS, forceinline=True, error_model="numpy")
def _tile(
    like: Any, column: int, values: Floats, taps: Floats, hidden_bias: Floats, w: int, n: int, codes: Floats,
    n_visible: int, n_hidden: int, lanes: int, inputs: int,
) -> None:  # fmt: skip
    """Pre-activations of `TILE` windows from `w` on for the hidden units from `column` on, as many as `like` uses."""
    # a tile's windows beyond the end are the last one again
    w1, w2, w3, w4, w5 = min(w + 1, n - 1), min(w + 2, n - 1), min(w + 3, n - 1), min(w + 4, n - 1), min(w + 5, n - 1)
    bias = used_at(like, hidden_bias, column)
    s0, s1, s2, s3, s4, s5 = bias, bias, bias, bias, bias, bias
    for j in range(inputs):
        tap = row_at(bias, taps, j * lanes + column)
        s0 += number_at(values, w * n_visible + j) * tap
        s1 += number_at(values, w1 * n_visible + j) * tap
        s2 += number_at(values, w2 * n_visible + j) * tap
        s3 += number_at(values, w3 * n_visible + j) * tap
        s4 += number_at(values, w4 * n_visible + j) * tap
        s5 += number_at(values, w5 * n_visible + j) * tap
    put_used(codes, w * n_hidden + column, s0)
    put_used(codes, w1 * n_hidden + column, s1)
    put_used(codes, w2 * n_hidden + column, s2)
    put_used(codes, w3 * n_hidden + column, s3)
    put_used(codes, w4 * n_hidden + column, s4)
    put_used(codes, w5 * n_hidden + column, s5)


@cache
def hidden_means_kernel(n_visible: int, n_hidden: int, lag: int, exact: bool) -> Callable[..., None]:
    """The kernel for codes: ``means(values, taps, hidden_bias, n, codes)``.

    It slides over all rows as if they were one series, `TILE` windows side by side; the caller blanks the rows whose
    window would cross a border. values : float ((n + lag) * n_visible,); taps : `taps_of`, flat; hidden_bias : float
    (n_hidden,); n : int, windows; codes : float (n * n_hidden + `LANES`,), OUT, at t * n_hidden the code of the window
    of rows t..t + lag, and in the last `LANES` elements nothing of use.
    """
    inputs, lanes, columns = n_visible * (lag + 1), padded(n_hidden), group(n_hidden)
    last = (n_hidden - 1) // columns * columns
    last_columns = n_hidden - last

    @njit(cache=True, nogil=True, fastmath=FLAGS, error_model="numpy")
    def means(values: Floats, taps: Floats, hidden_bias: Floats, n: int, codes: Floats) -> None:
        whole, some, flat = zeros(codes, columns), zeros(codes, last_columns), zeros(codes, LANES)
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            for w in range(begin, end, TILE):
                for g in range(0, last, columns):
                    _tile(whole, g, values, taps, hidden_bias, w, n, codes, n_visible, n_hidden, lanes, inputs)
                _tile(some, last, values, taps, hidden_bias, w, n, codes, n_visible, n_hidden, lanes, inputs)
            # the lanes of the last row that belong to the next block are overwritten with their own sums
            for k in range(begin * n_hidden, end * n_hidden, LANES):
                put_row(codes, k, sigmoid(row_at(flat, codes, k), exact))

    return means
