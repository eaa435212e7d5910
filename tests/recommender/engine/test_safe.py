"""What may stand while nobody watches: no passing phase, nothing that shakes those that run, and no guess."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.engine.band import MAX_POD_AGE_S, safe_value, with_deadband
from recommender.engine.groups import Groups
from recommender.engine.keys import Running
from recommender.engine.options import Options
from recommender.engine.seen import GroupStart
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, Amounts
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, MARGIN, NOTHING, NOW_S, instance, running, with_history

OPTIONS = Options()


def safe(
    stands: Amounts, *containers: Running, history: tuple[float, float] = (0.5, 2.0), kill_gib: float = 0.0
) -> Estimate | None:
    """Of a group of which an hour and more is known."""
    groups = Groups()
    groups.add(MAIN, GroupStart(with_history(*history), NOTHING), NOW_S, MARGIN)
    groups.arrays.published[groups.slots[MAIN]] = stands
    slot = groups.slots[MAIN]
    groups.update_running(slot, containers)
    if kill_gib:
        groups.arrays.kill_floor_bytes[slot], groups.arrays.killed_s[slot] = kill_gib * GIB, NOW_S
    return safe_value(groups, slot, containers, NOW_S, OPTIONS)


def test_what_was_ever_used_and_its_margin_takes_the_place_of_a_passing_phase() -> None:
    found = safe((0.1, 0.57 * GIB), running(requests=(0.1, 0.57 * GIB)))
    assert found is not None
    assert found.target[CPU] == pytest.approx(0.5 * 1.15, rel=0.06)  # a bucket's width
    assert found.target[MEMORY] == pytest.approx(2 * GIB * 1.15, rel=0.06)
    assert found.target[CPU] * 1000 == pytest.approx(round(found.target[CPU] * 1000))


def test_the_bounds_hold_what_running_pods_have_so_that_nobody_is_updated_for_it() -> None:
    """The next process would have to take back what this one has made of them, and evict them once more."""
    has = [(0.02, 0.2 * GIB), (0.2, 9 * GIB), (3.0, math.nan)]
    found = safe((0.1, 0.57 * GIB), *(running(requests=one) for one in has))
    assert found is not None
    requests = np.array(has)
    assert not (requests < found.lower).any() and not (requests > found.upper).any()
    assert (found.lower <= found.target).all() and (found.target <= found.upper).all()


def test_what_finished_pods_had_counts_for_nothing() -> None:
    found = safe(
        (0.1, 0.57 * GIB), running(requests=(0.1, 0.57 * GIB)), running(requests=(9.0, 99 * GIB), finished=True)
    )
    assert found is not None
    assert found.target[MEMORY] < 3 * GIB


def test_what_a_kill_showed_stands_and_no_less_than_what_stands_is_left_behind() -> None:
    found = safe((2.0, 0.5 * GIB), running(requests=(2.0, 0.5 * GIB)), kill_gib=6.0)
    assert found is not None
    assert found.target.tolist() == [2.0, 6 * GIB]


def test_nothing_is_left_behind_where_what_stands_is_as_good_or_nothing_stands_or_is_known() -> None:
    small = running(requests=(0.1, 0.57 * GIB))
    assert safe((2.0, 8 * GIB), small) is None
    assert safe(NOTHING, small) is None
    target = safe((0.1, 0.57 * GIB), small)
    assert target is not None
    nearly = (float(target.target[CPU]) * 0.96, float(target.target[MEMORY]) * 0.99)
    assert safe(nearly, small) is None
    assert (with_deadband(target.target[np.newaxis], np.array([nearly]), OPTIONS.band) == nearly).all()


def test_pods_so_old_that_they_are_updated_whatever_the_bounds_say_are_left_alone() -> None:
    small = running(requests=(0.1, 0.57 * GIB))
    assert safe((0.1, 0.57 * GIB), small._replace(started_s=NOW_S - MAX_POD_AGE_S + 60.0)) is not None
    assert safe((0.1, 0.57 * GIB), small._replace(started_s=NOW_S - MAX_POD_AGE_S)) is None


def in_a_passing_phase() -> EngineDriver:
    """Six minutes of history: two cores at first, then a tenth of that."""
    driver = EngineDriver(requests=(2.0, 1.5 * GIB))
    driver.usage[instance()] = 2.0, 1.0
    driver.steps(40)
    driver.usage[instance()] = 0.2, 1.0
    driver.steps(320)
    assert driver.target()[0] < 1.0
    return driver


def test_with_little_history_what_is_left_behind_is_no_multiple_of_what_was_used() -> None:
    """An hour of it makes an upper bound of twenty-five times what was used."""
    driver = in_a_passing_phase()
    found = driver.engine.safe_value(MAIN, driver.now_s)
    assert found is not None
    assert found.upper[CPU] > 50.0
    assert found.target[CPU] == pytest.approx(2.0 * 1.15, rel=0.06)
    assert found.target[MEMORY] <= 2 * GIB


def test_what_is_left_behind_is_the_same_the_second_time() -> None:
    driver = in_a_passing_phase()
    first, again = (driver.engine.safe_value(MAIN, driver.now_s) for _ in range(2))
    assert first is not None and again is not None
    for one, other in ((first.lower, again.lower), (first.target, again.target), (first.upper, again.upper)):
        np.testing.assert_array_equal(one, other)
