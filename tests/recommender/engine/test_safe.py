"""The safe value left at shutdown: no passing phase, no update of running pods, and no guess."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.base.records import CPU, MEMORY, Amounts
from recommender.engine.band import MAX_POD_AGE_S, safe_value, with_deadband
from recommender.engine.groups import Groups
from recommender.engine.keys import Running
from recommender.engine.options import Options
from recommender.engine.seen import GroupStart
from recommender.policies.histogram import Estimate
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, MARGIN, NOTHING, NOW_S, instance, running, with_history

OPTIONS = Options()


def safe(
    published: Amounts, *containers: Running, history: tuple[float, float] = (0.5, 2.0), kill_gib: float = 0.0
) -> Estimate | None:
    """The safe value of a group with more than an hour of history."""
    groups = Groups()
    groups.add(MAIN, GroupStart(with_history(*history), NOTHING), NOW_S, MARGIN)
    groups.arrays.published[groups.slots[MAIN]] = published
    slot = groups.slots[MAIN]
    groups.update_running(slot, containers)
    if kill_gib:
        groups.arrays.kill_floor_bytes[slot], groups.arrays.killed_s[slot] = kill_gib * GIB, NOW_S
    return safe_value(groups, slot, containers, NOW_S, OPTIONS)


def test_the_safe_value_replaces_a_passing_phase_by_the_known_peak_and_a_margin() -> None:
    found = safe((0.1, 0.57 * GIB), running(requests=(0.1, 0.57 * GIB)))
    assert found.target[CPU] == pytest.approx(0.5 * 1.15, rel=0.06)  # a bucket's width
    assert found.target[MEMORY] == pytest.approx(2 * GIB * 1.15, rel=0.06)
    assert found.target[CPU] * 1000 == pytest.approx(round(found.target[CPU] * 1000))


def test_the_bounds_contain_the_requests_of_running_pods_so_that_none_is_updated() -> None:
    """Otherwise the next process would revert the update, and evict them once more."""
    has = [(0.02, 0.2 * GIB), (0.2, 9 * GIB), (3.0, math.nan)]
    found = safe((0.1, 0.57 * GIB), *(running(requests=one) for one in has))
    requests = np.array(has)
    assert not (requests < found.lower).any() and not (requests > found.upper).any()
    assert (found.lower <= found.target).all() and (found.target <= found.upper).all()


def test_requests_of_finished_pods_do_not_count() -> None:
    found = safe(
        (0.1, 0.57 * GIB), running(requests=(0.1, 0.57 * GIB)), running(requests=(9.0, 99 * GIB), finished=True)
    )
    assert found.target[MEMORY] < 3 * GIB


def test_the_safe_value_is_not_below_the_kill_floor_or_the_published_target() -> None:
    found = safe((2.0, 0.5 * GIB), running(requests=(2.0, 0.5 * GIB)), kill_gib=6.0)
    assert found.target.tolist() == [2.0, 6 * GIB]


def test_there_is_no_safe_value_if_the_published_target_suffices_or_is_missing() -> None:
    small = running(requests=(0.1, 0.57 * GIB))
    assert safe((2.0, 8 * GIB), small) is None
    assert safe(NOTHING, small) is None
    target = safe((0.1, 0.57 * GIB), small)
    nearly = (float(target.target[CPU]) * 0.96, float(target.target[MEMORY]) * 0.99)
    assert safe(nearly, small) is None
    assert (with_deadband(target.target[np.newaxis], np.array([nearly]), OPTIONS.band) == nearly).all()


def test_there_is_no_safe_value_for_pods_old_enough_to_be_updated_within_bounds() -> None:
    small = running(requests=(0.1, 0.57 * GIB))
    assert safe((0.1, 0.57 * GIB), small._replace(started_s=NOW_S - MAX_POD_AGE_S + 60.0)) is not None
    assert safe((0.1, 0.57 * GIB), small._replace(started_s=NOW_S - MAX_POD_AGE_S)) is None


def test_with_little_history_the_safe_value_is_no_multiple_of_the_usage_and_the_same_the_second_time() -> None:
    """Six minutes of history: two cores at first, then a tenth of that. With an hour of history the upper bound is
    twenty-five times the usage."""
    driver = EngineDriver(requests=(2.0, 1.5 * GIB))
    for cpu_cores, steps in ((2.0, 40), (0.2, 320)):
        driver.usage[instance()] = cpu_cores, 1.0
        driver.steps(steps)
    assert driver.target()[0] < 1.0
    found, again = (driver.engine.safe_value(MAIN, driver.now_s) for _ in range(2))
    assert found.upper[CPU] > 50.0
    assert found.target[CPU] == pytest.approx(2.0 * 1.15, rel=0.06)
    assert found.target[MEMORY] <= 2 * GIB
    for bound in ("lower", "target", "upper"):
        np.testing.assert_array_equal(getattr(found, bound), getattr(again, bound))
