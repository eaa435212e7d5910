"""Charts of downsampled series look like those of the full series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recommender.base.records import FloatArray
from recommender.report.timeline_data import (
    allocation_at,
    change_indices,
    downsampled_indices,
    event_offsets_s,
    phase_spans,
    violation_spans,
)

NAN = float("nan")


def test_a_single_spike_among_a_hundred_thousand_samples_is_kept() -> None:
    values = np.ones(100_000)
    values[54_321] = 9.0
    values[77_777] = -3.0
    kept = downsampled_indices(values, 1500)
    assert {54_321, 77_777} <= set(kept.tolist()) and len(kept) <= 1500


def test_only_the_first_event_of_a_bin_is_kept() -> None:
    times = np.array([1_000, 1_004, 1_009, 1_010, 1_099, 1_101])
    assert event_offsets_s(times, 1_000, 100, bins=10) == [0, 10, 99]
    assert event_offsets_s(times, 1_000, 100, bins=1000) == [0, 4, 9, 10, 99]
    assert event_offsets_s(times[:0], 1_000, 100, bins=10) == []


def test_a_gap_stays_a_gap() -> None:
    values = np.ones(10_000)
    values[5000:5100] = NAN
    kept = downsampled_indices(values, 500)
    assert np.isnan(values[kept]).any() and len(kept) <= 500


@settings(deadline=None)
@given(
    arrays(np.float64, st.integers(1, 400), elements=st.one_of(st.just(NAN), st.floats(-1e6, 1e6))), st.integers(5, 60)
)
def test_downsampling_keeps_order_extremes_and_the_limit(values: FloatArray, limit: int) -> None:
    kept = downsampled_indices(values, limit)
    assert len(kept) <= limit and (np.diff(kept) > 0).all()
    present = values[~np.isnan(values)]
    if len(present):
        assert np.nanmin(values[kept]) == present.min() and np.nanmax(values[kept]) == present.max()


def test_exactly_the_changes_of_an_allocation_are_drawn() -> None:
    allocation = np.array([[1, 1], [1, 1], [1, 2], [3, 2], [3, 2]], dtype=float)
    assert change_indices(np.arange(5), allocation, 10).tolist() == [0, 2, 3]
    assert change_indices(np.zeros(0, np.int64), np.zeros((0, 2)), 10).tolist() == []


def test_too_many_changes_are_downsampled_with_their_extremes_kept() -> None:
    allocation = np.random.default_rng(0).random((5000, 2))
    kept = change_indices(np.arange(5000), allocation, 200)
    assert len(kept) <= 200
    assert (allocation[kept].max(axis=0) == allocation.max(axis=0)).all()


def test_an_allocation_holds_from_its_decision_on_and_nothing_is_known_before() -> None:
    held = allocation_at(np.array([0, 10, 20, 30]), np.array([10, 30]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert held.tolist()[1:] == [[1, 2], [1, 2], [3, 4]] and np.isnan(held[0]).all()


def test_violations_exceed_the_tolerance_and_adjacent_ones_are_one_span() -> None:
    used = np.array([1.05, 1.0, 1.06, 1.2, 1.0, NAN, 2.0])
    spans = violation_spans(np.arange(7) * 10, used, np.ones(7), bins=6)
    assert spans == [(20, 40), (60, 70)]
    assert violation_spans(np.arange(7), np.ones(7), np.ones(7), bins=6) == []


def test_use_before_the_first_allocation_is_no_violation() -> None:
    assert violation_spans(np.arange(2), np.ones(2), np.array([NAN, 1.0]), bins=2) == []


@pytest.mark.parametrize(
    ("labels", "runs"),
    [([0, 0, 1], [(0, 20, 0), (20, 20, 1)]), ([-1], [(0, 0, -1)]), ([], [])],
)
def test_labels_become_spans_of_phases(labels: list[int], runs: list[tuple[int, int, int]]) -> None:
    timestamps = 1000 + 10 * np.arange(len(labels), dtype=np.int64)
    assert phase_spans(timestamps, np.array(labels, dtype=np.int64)) == runs
