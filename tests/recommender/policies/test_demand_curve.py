"""The usage of a container since its start, in bounded space."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.policies.demand_curve import POINTS, CurveRecorder

ONE = np.array([0])


def recorder() -> CurveRecorder:
    curves = CurveRecorder(5.0)
    curves.grow(2)
    return curves


def test_samples_are_placed_by_their_time_since_the_start_and_missing_ones_are_nan() -> None:
    curves = recorder()
    for position, cores in ((2, 0.5), (4, 1.0)):
        curves.observe(ONE, np.array([position]), np.array([[cores, 1e9]]))
    curve = curves.curve(0)
    assert (curve.step_s, curve.duration_s) == (5.0, 25.0)
    np.testing.assert_array_equal(curve.levels[:, 0], np.float32([np.nan, np.nan, 0.5, np.nan, 1.0]))


def test_a_long_run_gets_buckets_of_twice_the_width_with_the_larger_usage() -> None:
    curves = recorder()
    for position in range(POINTS + 1):
        cores = float(position % 7)
        curves.observe(ONE, np.array([position]), np.array([[cores, 1e9]]))
    curve = curves.curve(0)
    assert (curve.step_s, len(curve.levels)) == (10.0, POINTS // 2 + 1)
    assert curve.levels[:4, 0].tolist() == [1.0, 3.0, 5.0, 6.0]


@given(st.lists(st.floats(0, 64), min_size=1, max_size=1200))
@settings(max_examples=15)
def test_the_peak_usage_of_a_run_of_any_length_is_kept(used: list[float]) -> None:
    curves = recorder()
    for position, cores in enumerate(used):
        curves.observe(ONE, np.array([position]), np.array([[cores, 0.0]]))
    curve = curves.curve(0)
    assert len(curve.levels) <= POINTS
    assert curve.levels[:, 0].max() == np.float32(max(used))
    assert curve.duration_s >= 5.0 * len(used)
    assert curves.peaks()[0].tolist() == curve.levels.max(axis=0).tolist()
    assert np.isnan(curves.peaks()[1]).all(), "no sample in this slot"


def test_a_reused_slot_starts_empty_and_its_neighbour_is_unchanged() -> None:
    curves = recorder()
    curves.observe(np.array([0, 1]), np.array([0, 0]), np.array([[1.0, 1.0], [2.0, 2.0]]))
    curves.reset(0)
    assert len(curves.curve(0).levels) == 0
    assert curves.curve(1).levels.tolist() == [[2.0, 2.0]]


def test_a_restored_curve_continues_and_one_of_another_grid_is_left_out() -> None:
    before, after, other = recorder(), recorder(), CurveRecorder(7.0)
    for position in range(2 * POINTS):
        before.observe(ONE, np.array([position]), np.array([[1.0, 1.0]]))
    kept = before.curve(0)
    after.restore(0, kept)
    for curves in (before, after):
        curves.observe(ONE, np.array([2 * POINTS]), np.array([[3.0, 1.0]]))
    np.testing.assert_array_equal(after.curve(0).levels, before.curve(0).levels)
    assert after.curve(0).used_cores == pytest.approx(before.curve(0).used_cores)
    other.grow(1)
    other.restore(0, kept)
    assert len(other.curve(0).levels) == 0


def test_the_mean_usage_is_known_whatever_the_width_of_the_buckets() -> None:
    curves, used_core_s = recorder(), []
    for position in range(2 * POINTS + 2):
        cores = float(position % 2)
        curves.observe(ONE, np.array([position]), np.array([[cores, 1e9]]))
        used_core_s.append(curves.curve(0).used_core_s)
    assert curves.curve(0).used_cores == pytest.approx(0.5)
    assert max(np.abs(np.diff(used_core_s))) <= 2 * 20.0, "at most the width of a bucket, of which half is used"
