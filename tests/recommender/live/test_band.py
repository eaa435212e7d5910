"""When a target moves, and that every request left behind lies outside the band."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.live.advice.band import BandOptions, band, guessed, held
from recommender.policies.histogram import Estimate

OPTIONS = BandOptions()
NAN = float("nan")

CASES = {
    "nothing is in force: what is wanted": ([1.0, 100.0], [NAN, NAN], [1.0, 100.0]),
    "a small change is not worth an update": ([1.1, 95.0], [1.0, 100.0], [1.0, 100.0]),
    "CPU moves alone, memory keeps what it has": ([2.0, 95.0], [1.0, 100.0], [2.0, 100.0]),
    "memory that must rise a little, rises": ([1.0, 103.0], [1.0, 100.0], [1.0, 103.0]),
    "when CPU moves, memory that wants a trifle more gets it": ([2.0, 101.0], [1.0, 100.0], [2.0, 101.0]),
    "and CPU that wants a trifle more keeps what it has": ([1.1, 103.0], [1.0, 100.0], [1.0, 103.0]),
    "memory falls when it is worth it": ([1.0, 85.0], [1.0, 100.0], [1.0, 85.0]),
    "an unknown resource stays unknown": ([NAN, 85.0], [NAN, 100.0], [NAN, 85.0]),
}


@pytest.mark.parametrize(("wanted", "applied", "target"), CASES.values(), ids=CASES.keys())
def test_what_is_published_by_hand(wanted: list[float], applied: list[float], target: list[float]) -> None:
    np.testing.assert_array_equal(held(tuple(wanted), tuple(applied), OPTIONS), target)


amounts = st.tuples(st.floats(0.01, 1e3), st.floats(1e6, 1e12))


@given(amounts, amounts)
def test_a_request_that_was_left_behind_is_outside_the_band_and_one_that_was_not_is_inside(
    wanted: tuple[float, float], applied: tuple[float, float]
) -> None:
    target = np.array(held(wanted, applied, OPTIONS))
    published = band((float(target[0]), float(target[1])), OPTIONS)
    wanted, applied = np.array(wanted), np.array(applied)
    inside = (applied >= published.lower) & (applied <= published.upper)
    moved = np.abs(wanted / applied - 1.0) > np.array([OPTIONS.hold_cpu, OPTIONS.hold_memory])
    assert not (inside & moved).any()
    assert inside[target == applied].all()
    assert ((published.lower <= target) & (target <= published.upper)).all()


@given(amounts, amounts)
def test_what_was_published_is_held_when_nothing_changes(
    wanted: tuple[float, float], applied: tuple[float, float]
) -> None:
    once = held(wanted, applied, OPTIONS)
    assert held(once, once, OPTIONS) is once


def a_guess(target: float, lower: float, upper: float) -> Estimate:
    return Estimate(np.full(2, lower), np.full(2, target), np.full(2, upper))


def test_a_guess_that_narrows_a_little_with_each_sample_is_not_written_each_time() -> None:
    before = a_guess(1.0, 0.5, 10.0)
    assert guessed(a_guess(1.01, 0.55, 9.0), before, OPTIONS) is before
    narrower = a_guess(1.0, 0.5, 7.0)
    assert guessed(narrower, before, OPTIONS) is narrower
    more = a_guess(1.2, 0.5, 10.0)
    assert guessed(more, before, OPTIONS) is more
    assert guessed(more, None, OPTIONS) is more
