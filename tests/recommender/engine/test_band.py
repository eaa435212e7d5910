"""When a published target moves, and that every old request then lies outside its band."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import FloatArray
from recommender.engine.band import banded_targets, in_whole_units, with_band, with_deadband, with_default_bounds
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.options import BandOptions

OPTIONS = BandOptions()
NAN = float("nan")
NEVER = np.full((1, 3, 2), NAN)

CASES = {
    "without a target in force the wanted one is published": ([1.0, 100.0], [NAN, NAN], [1.0, 100.0]),
    "a small change is not worth an update": ([0.9, 95.0], [1.0, 100.0], [1.0, 100.0]),
    "CPU moves alone, memory keeps its target": ([2.0, 95.0], [1.0, 100.0], [2.0, 100.0]),
    "CPU does not rise within the violation tolerance": ([1.05, 100.0], [1.0, 100.0], [1.0, 100.0]),
    "CPU rises at a smaller change than it falls at": ([1.06, 100.0], [1.0, 100.0], [1.06, 100.0]),
    "memory rises even by a little": ([1.0, 103.0], [1.0, 100.0], [1.0, 103.0]),
    "when CPU moves, memory follows a tiny rise": ([2.0, 101.0], [1.0, 100.0], [2.0, 101.0]),
    "when memory moves, CPU does not follow a tiny rise": ([1.04, 103.0], [1.0, 100.0], [1.0, 103.0]),
    "when memory moves, CPU follows a small fall": ([0.9, 103.0], [1.0, 100.0], [0.9, 103.0]),
    "memory falls by more than its deadband": ([1.0, 85.0], [1.0, 100.0], [1.0, 85.0]),
    "memory does not fall by just its deadband": ([1.0, 90.0], [1.0, 100.0], [1.0, 100.0]),
    "CPU does not fall by just its deadband": ([0.85, 100.0], [1.0, 100.0], [1.0, 100.0]),
    "an unknown resource stays unknown": ([NAN, 85.0], [NAN, 100.0], [NAN, 85.0]),
}


def test_a_target_moves_by_more_than_its_deadband() -> None:
    wanted, applied, target = (np.array(part) for part in zip(*CASES.values(), strict=True))
    found = with_deadband(wanted, applied, OPTIONS)
    for name, one, expected in zip(CASES, found, target, strict=True):
        np.testing.assert_array_equal(one, expected, err_msg=name)


def test_amounts_are_rounded_up_to_whole_millicores_and_bytes_except_for_float_error() -> None:
    amounts = np.array([[0.3, 5.0], [0.30000000000000004, 5.2], [0.3001, NAN]])
    np.testing.assert_array_equal(in_whole_units(amounts), [[0.3, 5.0], [0.3, 6.0], [0.301, NAN]])


amounts = st.lists(
    st.tuples(st.floats(0.01, 1e3), st.floats(1e6, 1e12), st.floats(0.01, 1e3), st.floats(1e6, 1e12)),
    min_size=1,
    max_size=8,
)


@given(amounts)
def test_an_old_request_is_outside_the_band_and_an_unchanged_one_inside(
    rows: list[tuple[float, float, float, float]],
) -> None:
    wanted, applied = np.array(rows)[:, :2], np.array(rows)[:, 2:]
    target = with_deadband(wanted, applied, OPTIONS)
    lower, _, upper = with_band(target, OPTIONS).transpose(1, 0, 2)
    inside = (applied >= lower) & (applied <= upper)
    moved = wanted / applied - 1.0 > np.array([OPTIONS.rise_cpu, OPTIONS.rise_memory])
    moved |= 1.0 - wanted / applied > np.array([OPTIONS.hold_cpu, OPTIONS.hold_memory])
    assert not (inside & moved).any()
    assert inside[target == applied].all()


@given(amounts)
def test_the_deadband_is_idempotent_and_decides_each_group_alone(rows: list[tuple[float, float, float, float]]) -> None:
    wanted, applied = np.array(rows)[:, :2], np.array(rows)[:, 2:]
    once = with_deadband(wanted, applied, OPTIONS)
    np.testing.assert_array_equal(with_deadband(once, once, OPTIONS), once)
    alone = [
        with_deadband(one[np.newaxis], had[np.newaxis], OPTIONS)[0] for one, had in zip(wanted, applied, strict=True)
    ]
    np.testing.assert_array_equal(once, alone)


def estimate_of(lower: float, target: float, upper: float) -> FloatArray:
    """float64 (1, 3, 2), the same for both resources."""
    return np.array([[[lower] * 2, [target] * 2, [upper] * 2]])


BEFORE = estimate_of(0.5, 1.0, 10.0)


def published(estimate: FloatArray, before: FloatArray, *, evicts: bool = False) -> list[list[float]]:
    """The lower bound, target and upper bound of CPU and of memory."""
    return with_default_bounds(estimate[:, 1], np.array([evicts]), estimate, before, OPTIONS)[0].T.tolist()


@pytest.mark.parametrize("bounds", [(0.55, 1.01, 9.0), (0.55, 1.0, 10.0), (0.5, 1.0, 9.0)])
def test_default_bounds_that_narrow_a_little_with_each_sample_are_kept(bounds: tuple[float, float, float]) -> None:
    assert published(estimate_of(*bounds), BEFORE) == [[0.5, 1.0, 10.0]] * 2


@pytest.mark.parametrize(
    "bounds",
    [(0.5, 1.0, 7.0), (0.7, 1.0, 10.0), (0.5, 1.2, 10.0), (0.45, 1.0, 10.0), (0.5, 1.0, 10.5)],
    ids=["upper bound", "lower bound", "target", "wider below", "wider above"],
)
def test_default_bounds_that_move_much_or_widen_are_followed(bounds: tuple[float, float, float]) -> None:
    assert published(estimate_of(*bounds), BEFORE) == [[*bounds]] * 2
    assert published(estimate_of(*bounds), NEVER) == [[*bounds]] * 2


@pytest.mark.parametrize("bounds", [(0.55, 1.05, 9.0), (0.52, 1.0, 10.0), (0.5, 1.0, 9.7), (0.505, 1.01, 9.9)])
def test_where_a_change_evicts_the_default_target_and_bounds_are_followed_closely(
    bounds: tuple[float, float, float],
) -> None:
    """A pod recreated at another time, or with another request, would be due for its next update at another time."""
    assert published(estimate_of(*bounds), BEFORE, evicts=True) == [[*bounds]] * 2


def test_where_a_change_evicts_bounds_that_narrow_by_a_hundredth_are_kept() -> None:
    narrower = estimate_of(0.505, 1.0, 9.9)
    assert published(narrower, BEFORE, evicts=True) == [[0.5, 1.0, 10.0]] * 2
    moved = with_default_bounds(np.full((1, 2), 1.01), np.array([True]), narrower, BEFORE, OPTIONS)
    assert moved[0].T.tolist() == [[0.5, 1.0, 10.0]] * 2, "a target that rails moved is not the default's"


def test_default_bounds_are_kept_only_if_the_targets_of_both_resources_are() -> None:
    estimate = estimate_of(0.55, 1.0, 9.0)
    estimate[:, 1, 0] = 1.2
    assert published(estimate, BEFORE) == [[0.55, 1.2, 9.0], [0.55, 1.0, 9.0]]


def test_default_bounds_contain_the_target_even_where_rails_moved_it() -> None:
    found = with_default_bounds(np.array([[0.1, 20.0]]), np.array([False]), estimate_of(0.5, 1.0, 10.0), NEVER, OPTIONS)
    assert found[0].T.tolist() == [[0.1, 0.1, 10.0], [0.5, 20.0, 200.0]]


def test_where_a_change_evicts_what_the_class_needed_recreates_no_pod_that_has_just_begun() -> None:
    groups, never = GroupArrays(), np.full((1, 2), False)
    groups.grow(1)
    groups.requests[:] = 2.0
    targets = {evicts: banded_targets(np.ones((1, 2)), never, never, np.array([evicts]), groups, OPTIONS)
               for evicts in (True, False)}  # fmt: skip
    assert targets[True][0].T.tolist() == [[0.99, 1.0, 2.0]] * 2, "the default recommender knows nothing of it yet"
    assert targets[False][0].T.tolist() == [[0.99, 1.0, 1.01]] * 2
    groups.default_estimate[:] = estimate_of(0.9, 1.0, 1.1)
    found = banded_targets(np.ones((1, 2)), ~never, never, np.array([True]), groups, OPTIONS)
    assert found[0].T.tolist() == [[0.9, 1.0, 1.1]] * 2


def test_a_forecast_has_a_narrow_band_and_a_guess_the_default_bounds() -> None:
    """Bounds of the other kind are not kept: narrow ones disrupt pods for a guess, wide ones hold back a forecast."""
    groups = GroupArrays()
    groups.grow(4)
    groups.default_estimate[:], groups.published[:] = estimate_of(0.9, 1.0, 1.1), 1.0
    groups.targets[:] = estimate_of(0.99, 1.0, 1.01)
    groups.targets[3], groups.target_in_default_bounds[:] = estimate_of(0.88, 1.0, 1.13), [False, False, True, True]
    as_default = np.column_stack([[False, True, False, True], np.zeros(4, bool)])
    never = np.zeros((4, 2), bool)
    found = banded_targets(np.full((4, 2), 1.02), as_default, never, never[:, 0], groups, OPTIONS)
    narrow, *others = [0.99, 1.0, 1.01], [0.9, 1.02, 1.122], [0.88, 1.0, 1.13]
    np.testing.assert_allclose(found[:, :, 0], [narrow, others[0], narrow, others[1]])
    np.testing.assert_allclose(
        found[:, :, 1], [[1.98, 2.0, 2.02]] * 4, err_msg="each resource by itself, in whole bytes"
    )


@pytest.mark.parametrize(("requested", "evicts", "upper"), [(1.0, False, 1.01), (1.5, False, 1.515), (1.5, True, 8.15)])
def test_while_a_target_stays_for_lack_of_history_no_upper_bound_is_far_above_what_is_in_force(
    requested: float, evicts: bool, upper: float
) -> None:
    groups, yes = GroupArrays(), np.ones((1, 2), bool)
    groups.grow(1)
    groups.default_estimate[:], groups.published[:], groups.requests[:] = estimate_of(0.2, 1.0, 8.15), 1.0, requested
    found = banded_targets(np.ones((1, 2)), yes, yes, np.array([evicts]), groups, OPTIONS)
    assert found[0, :, 0].tolist() == pytest.approx([0.2, 1.0, upper])


def test_default_bounds_of_cpu_are_kept_while_those_of_memory_are_narrow() -> None:
    before, estimate = estimate_of(0.9, 1.0, 1.1), estimate_of(0.91, 1.0, 1.09)
    before[:, :, 1] = 0.99, 1.0, 1.01
    assert published(estimate, before)[0] == [0.9, 1.0, 1.1]
