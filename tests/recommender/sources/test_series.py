"""The grid of a series: worked examples, agreement with the reference, invariants and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray, UsageSeries
from recommender.sources.series import interval_counts, median_interval_s, to_series, whole_seconds
from tests.reference import series as reference

NAN = float("nan")


def series_of(rows: Sequence[tuple[float, float, float]], step_s: float, **columns: Any) -> UsageSeries:
    table = np.array(rows, dtype=np.float64)
    times_s = table[:, 0]
    return to_series(UsageSeries("c", whole_seconds(times_s), 0.0, table[:, 1:].copy(), **columns), times_s, step_s)


def median_of(containers: list[list[float]]) -> float:
    times = np.concatenate([np.array(times, dtype=np.float64) for times in containers])
    starts = np.cumsum([0, *(len(times) for times in containers)]).astype(np.int64)
    return median_interval_s([interval_counts(times, starts)])


def test_a_grid_worked_by_hand() -> None:
    """Step 10 from 100: 104 joins 100; 119 is cell 2, the hole to 135 is short; 160 is three cells later, a gap."""
    rows = [(100, 1.0, 10.0), (104, 3.0, 8.0), (119, 5.0, 20.0), (135, 7.0, 30.0), (160, 9.0, 40.0)]
    features = {"gpu": np.array([2.0, 4.0, NAN, 6.0, 8.0])}
    requests = np.array([[1.0, 50.0], [2.0, 60.0], [2.0, 60.0], [4.0, NAN], [4.0, 70.0]])
    series = series_of(rows, 10.0, features=features, requests=requests)
    assert series.timestamps.tolist() == [100, 110, 120, 130, 140, 150, 160]
    np.testing.assert_array_equal(series.usage[:, 0], [2.0, 2.0, 5.0, 5.0, 7.0, NAN, 9.0])
    np.testing.assert_array_equal(series.usage[:, 1], [10.0, 10.0, 20.0, 20.0, 30.0, NAN, 40.0])
    np.testing.assert_array_equal(series.features["gpu"], [3.0, 3.0, NAN, NAN, 6.0, NAN, 8.0])
    assert series.requests is not None
    np.testing.assert_array_equal(series.requests[:, 0], [2.0, 2.0, 2.0, 2.0, 4.0, NAN, 4.0])
    np.testing.assert_array_equal(series.requests[:, 1], [60.0, 60.0, 60.0, 60.0, NAN, NAN, 70.0])


def test_a_sample_recorded_as_nan_stays_a_gap_even_between_close_samples() -> None:
    series = series_of([(0, 1.0, 1.0), (15, NAN, NAN), (29, 2.0, 2.0)], 15.0)
    np.testing.assert_array_equal(series.usage[:, 0], [1.0, NAN, 2.0])


def test_an_interval_of_two_steps_is_a_gap_and_one_just_shorter_is_jitter() -> None:
    gap = series_of([(0, 1.0, 1.0), (30, 2.0, 2.0)], 15.0)
    jitter = series_of([(0, 1.0, 1.0), (29, 2.0, 2.0)], 15.0)
    np.testing.assert_array_equal(gap.usage[:, 0], [1.0, NAN, 2.0])
    np.testing.assert_array_equal(jitter.usage[:, 0], [1.0, 1.0, 2.0])


def test_a_sample_half_way_between_cells_belongs_to_the_later_cell() -> None:
    series = series_of([(float(t), float(t), 1.0) for t in (0, 15, 30, 45, 60)], 10.0)
    np.testing.assert_array_equal(series.usage[:, 0], [0.0, 0.0, 15.0, 30.0, 30.0, 45.0, 60.0])


def test_timestamps_of_a_fractional_step_are_rounded_to_seconds() -> None:
    series = series_of([(0.0, 1.0, 1.0), (2.5, 1.0, 1.0), (5.0, 1.0, 1.0), (7.5, 1.0, 1.0)], 2.5)
    assert series.timestamps.tolist() == [0, 3, 5, 8]


def test_without_a_grid_samples_are_unchanged() -> None:
    rows = [(3.0, 1.0, 5.0), (4.0, NAN, NAN), (90.0, 2.0, 6.0)]
    series = series_of(rows, 0.0)
    assert (series.step_s, series.timestamps.tolist()) == (0.0, [3, 4, 90])
    np.testing.assert_array_equal(series.usage[:, 0], [1.0, NAN, 2.0])


@st.composite
def irregular(draw: st.DrawFn) -> list[reference.Row]:
    times = sorted(draw(st.sets(st.integers(0, 400), min_size=1, max_size=40)))
    values = st.one_of(st.just(NAN), st.integers(0, 64).map(lambda quarter: quarter / 4))
    rows = []
    for time in times:
        value = draw(values)
        rows.append((float(time), value, value * 1024))
    return rows


@settings(deadline=None)
@given(rows=irregular(), step_s=st.sampled_from([1.0, 2.5, 7.0, 15.0, 60.0]))
def test_the_grid_agrees_with_the_reference(rows: list[reference.Row], step_s: float) -> None:
    series = series_of(rows, step_s)
    expected = np.array(reference.grid(rows, step_s), dtype=np.float64)
    np.testing.assert_array_equal(series.timestamps, expected[:, 0])
    np.testing.assert_allclose(series.usage, expected[:, 1:], rtol=1e-12)


@settings(deadline=None)
@given(times=st.lists(st.lists(st.integers(0, 10_000), min_size=1, max_size=20, unique=True).map(sorted), min_size=1))
def test_the_median_interval_agrees_with_the_reference(times: list[list[int]]) -> None:
    containers = [[float(time) for time in one] for one in times]
    if all(len(one) < 2 for one in containers):
        assert np.isnan(median_of(containers))
    else:
        assert median_of(containers) == pytest.approx(reference.median_interval(containers), abs=1e-9)


def test_the_median_interval_is_the_same_when_counted_in_parts() -> None:
    rng = np.random.default_rng(3)
    times = [np.cumsum(rng.integers(1, 40, size=50)).astype(np.float64) for _ in range(4)]
    parts = [interval_counts(one, np.array([0, len(one)])) for one in times]
    assert median_interval_s(parts) == median_of([one.tolist() for one in times])


@settings(deadline=None)
@given(
    cells=st.sets(st.integers(0, 300), min_size=2, max_size=60),
    step_s=st.sampled_from([1, 15, 20, 300]),
    start=st.integers(0, 2_000_000_000),
    data=st.data(),
)
def test_data_on_a_grid_are_unchanged(cells: set[int], step_s: int, start: int, data: Any) -> None:
    index = np.array(sorted(cells)) - min(cells)
    usage: FloatArray = np.array(
        [[data.draw(st.floats(0, 1e3)), data.draw(st.floats(0, 1e12))] for _ in index], dtype=np.float64
    )
    series = series_of(np.column_stack([start + index * step_s, usage]).tolist(), float(step_s))
    assert np.array_equal(series.timestamps, start + np.arange(index[-1] + 1) * step_s)
    assert np.array_equal(series.usage[index], usage)
    assert np.array_equal(np.flatnonzero(series.present), index)


def test_samples_within_one_second_need_a_grid() -> None:
    with pytest.raises(BadInput, match=r"within one second.*--step 1s"):
        series_of([(1.0, 1.0, 1.0), (1.2, 1.0, 1.0)], 0.0)


def test_a_lone_sample_decades_away_is_refused_instead_of_filling_memory() -> None:
    with pytest.raises(BadInput, match="there are none between 0 and 1700000000"):
        series_of([(0.0, 1.0, 1.0), (1.7e9, 1.0, 1.0), (1.7e9 + 15, 1.0, 1.0)], 15.0)
