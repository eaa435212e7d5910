"""Gap-free segments; labels carried over gaps; moments of columns with gaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.kernels.windows import (
    carried_forward,
    column_moments,
    gap_free,
)

MASKS = st.lists(st.booleans(), max_size=40).map(lambda flags: np.array(flags, dtype=bool))


def test_a_gap_ends_a_segment() -> None:
    values = np.arange(10.0).reshape(5, 2)
    values[1, 0], values[4, 1] = np.nan, np.inf
    rows, segments = gap_free(values)
    assert rows.tolist() == [0, 2, 3]
    assert segments.tolist() == [0, 1, 3]


def test_without_complete_rows_there_are_no_segments() -> None:
    rows, segments = gap_free(np.full((3, 1), np.nan))
    assert rows.size == 0
    assert segments.tolist() == [0]


@settings(deadline=None)
@given(MASKS)
def test_a_missing_label_is_the_last_one_before_it(missing: np.ndarray) -> None:
    labels = np.arange(len(missing), dtype=np.int64) * 10
    expected = labels.copy()
    for t in range(1, len(labels)):
        if missing[t]:
            expected[t] = expected[t - 1]
    assert carried_forward(labels, missing).tolist() == expected.tolist()
    columns = carried_forward(np.column_stack([labels, labels]), np.column_stack([missing, np.zeros_like(missing)]))
    assert columns.T.tolist() == [expected.tolist(), labels.tolist()]


def test_standardised_columns_have_mean_zero_and_spread_one_and_gaps_stay_gaps() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(5.0, 3.0, (200, 3))
    values[7, 1] = np.nan
    values[:, 2] = 1e9
    mean, scale = column_moments(values)
    assert scale[2] == 1.0
    out = (values - mean) / scale
    assert np.isnan(out[7, 1])
    assert np.isfinite(np.delete(out, 7, axis=0)).all()
    assert np.nanmean(out, axis=0) == pytest.approx([0, 0, 0], abs=1e-9)
    assert np.nanstd(out[:, :2], axis=0) == pytest.approx([1, 1])
    assert (out[:, 2] == 0).all()


def test_a_column_without_a_finite_value_has_mean_zero_and_scale_one() -> None:
    mean, scale = column_moments(np.full((4, 1), np.nan))
    assert (mean.tolist(), scale.tolist()) == ([0.0], [1.0])
