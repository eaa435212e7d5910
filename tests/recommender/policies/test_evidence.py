"""Which runs of a class tell about its next one: a flood of short ones moves and displaces nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.policies import class_runs, memory_runs
from recommender.policies.class_runs import ClassRuns, Progress
from recommender.policies.evidence import Turnover, is_light, latest, typical_s
from recommender.policies.memory_runs import AGES, ClassMemory, NextRun, RunMemory
from tests.fakes.curves import curve_of

HOUR_S = 3600.0
GIB = 2.0**30
GOOD = RunMemory(2.0 * GIB, np.full(AGES, 1.2), duration_s=6 * HOUR_S)
TINY = RunMemory(50.0 * 2**20, np.where(np.arange(AGES) < 3, 1.0, 0.0), duration_s=75.0)
"""A run of six hours, and one of 75 seconds at 50 MiB."""


def curve(cores: float, duration_s: float) -> class_runs.DemandCurve:
    n = 240 if duration_s > HOUR_S else 5
    return curve_of(duration_s / n, np.tile(np.float32([cores, GIB]), (n, 1)))


@pytest.mark.parametrize(
    ("hours", "typical_h"),
    [
        ([6.0], 6.0),
        ([0.02] * 260 + [6.0] * 30, 6.0),
        ([1.0] * 100 + [120.0], 1.0),
        ([1.0] * 100 + [120.0] * 2, 1.0),
        ([math.nan, 2.0], 2.0),
    ],
    ids=["one", "many short ones", "one that hung", "two that hung", "of unknown duration"],
)
def test_half_of_the_time_was_spent_in_runs_of_the_typical_duration_and_three_have_it(
    hours: list[float], typical_h: float
) -> None:
    assert typical_s(np.array(hours)) == typical_h


def test_runs_of_unknown_duration_are_not_light() -> None:
    assert math.isnan(typical_s(np.array([math.nan])))
    assert is_light(np.array([math.nan, 1.0, 1000.0, 1000.0, 1000.0])).tolist() == [False, True, False, False, False]


@given(st.lists(st.floats(1.0, 1e7), min_size=1, max_size=300))
def test_light_runs_make_up_less_than_half_of_the_time_and_at_least_three_others_stay(durations: list[float]) -> None:
    durations_s = np.array(durations)
    light = is_light(durations_s)
    assert durations_s[light].sum() < 0.5 * durations_s.sum()
    assert np.count_nonzero(~light) >= min(3, len(durations))


def test_a_flood_of_tiny_runs_neither_moves_nor_displaces_the_memory_of_a_class() -> None:
    memory = ClassMemory([GOOD] * 30)
    before = memory.bounds(NextRun(0.01))
    for _ in range(260):
        memory.add(TINY)
    after = memory.bounds(NextRun(0.01))
    assert (after.runs, after.peak_bytes) == (30, before.peak_bytes)
    np.testing.assert_array_equal(after.rises, before.rises)


def test_one_tiny_run_with_a_huge_peak_moves_nothing_unless_it_was_killed() -> None:
    memory = ClassMemory([GOOD] * 30)
    before = memory.bounds(NextRun(0.01))
    memory.add(TINY._replace(peak_bytes=512 * GIB))
    assert memory.bounds(NextRun(0.01)).peak_bytes == before.peak_bytes
    memory.add(TINY._replace(peak_bytes=4 * GIB, killed=True))
    assert memory.bounds(NextRun(0.01)).peak_bytes > 4 * GIB, "only a kubelet reports a kill"


def test_the_rises_of_a_tiny_run_leave_others_the_peak_of_their_class_for_as_long_as_it_lasted() -> None:
    """Another short run may rise as fast."""
    memory = ClassMemory([GOOD] * 30)
    before = memory.bounds(NextRun(0.01))
    memory.add(TINY._replace(rises=np.where(np.arange(AGES) < 3, 1e4, 0.0)))
    after = memory.bounds(NextRun(0.01))
    assert after.peak_bytes == before.peak_bytes
    assert (after.rises[:3] > 1e4).all()
    np.testing.assert_array_equal(after.rises[3:], before.rises[3:])


def test_a_flood_of_tiny_runs_neither_moves_nor_displaces_the_cpu_of_a_class() -> None:
    runs, start = ClassRuns([curve(2.0, 6 * HOUR_S)] * 30), Progress(None, 0.0, 0.0)
    before, expected = runs.forecast(start, 60.0, 600.0), runs.expected()
    for _ in range(260):
        runs.add(curve(0.01, 75.0))
    assert runs.forecast(start, 60.0, 600.0) == before
    np.testing.assert_array_equal(runs.expected().levels, expected.levels)  # type: ignore[union-attr]
    assert (len(runs), runs.typical_s) == (30, 6 * HOUR_S)


@pytest.mark.parametrize("most", [class_runs.MAX_RUNS, memory_runs.MAX_RUNS])
def test_a_class_whose_runs_became_much_shorter_forgets_the_long_ones_in_the_time_that_these_took(most: int) -> None:
    turnover, kept = Turnover(), [HOUR_S] * most
    for _ in range(31 * most):
        kept.append(HOUR_S / 30)
        del kept[turnover.displaced(np.array(kept))]
    assert kept == [HOUR_S / 30] * most


def test_the_latest_runs_are_those_that_are_not_light_where_not_all_fit() -> None:
    durations_s = np.array([HOUR_S] * 4 + [1.0] * 3)
    assert latest(durations_s, 7).tolist() == list(range(7))
    assert latest(durations_s, 2).tolist() == [2, 3]


def test_runs_of_like_duration_make_way_oldest_first() -> None:
    turnover, kept = Turnover(), [100.0] * 32
    for _ in range(64):
        assert turnover.displaced(np.array([*kept, 100.0])) == 0
        assert turnover.displaced(np.array([*kept, math.nan])) == 0
    assert turnover.displaced(np.zeros(33)) == 0, "they ended in the second in which they began"


@given(st.floats(1.0, 899.0), st.integers(3, 30), st.integers(0, 300))
def test_a_flood_displaces_no_more_time_than_it_lasted(short_s: float, runs: int, flood: int) -> None:
    turnover, kept = Turnover(), [3600.0] * runs
    for _ in range(flood):
        kept.append(short_s)
        if len(kept) > 32:
            del kept[turnover.displaced(np.array(kept))]
    left = sum(duration_s == 3600.0 for duration_s in kept)
    assert 3600.0 * (runs - left) <= flood * short_s + 1e-6 or typical_s(np.array(kept)) == short_s


def test_of_runs_that_differ_less_than_fourfold_the_oldest_makes_way() -> None:
    turnover, kept = Turnover(), [1000.0, 400.0] * 16
    for number in range(64):
        kept.append(300.0 if number % 2 else 900.0)
        assert turnover.displaced(np.array(kept)) == 0
        del kept[0]
