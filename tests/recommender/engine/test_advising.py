"""When the default recommender is queried, and when a target is replaced."""

from __future__ import annotations

import math

import numpy as np

from recommender.base.records import Amounts
from recommender.engine.keys import Group, Kill, Rules
from recommender.engine.seen import GroupStart, Memory
from recommender.policies.histogram import HistogramAggregate
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, MARGIN, NOTHING, NOW_S, SIDE, instance, with_history


class KnownHistory(Memory):
    """The same history and target for every group."""

    def __init__(self, history: HistogramAggregate, in_force: Amounts = NOTHING) -> None:
        self._start = GroupStart(history, in_force)

    def group(self, group: Group) -> GroupStart:
        return self._start


def queried_s(driver: EngineDriver) -> float:
    """When the default recommender was last queried for the first group."""
    return float(driver.engine.groups.arrays.default_asked_s[0])


def test_with_a_trusted_forecast_the_default_recommender_is_queried_once_a_minute() -> None:
    driver = EngineDriver()
    driver.steps(60, sample_interval_s=15.0)
    times_s = set()
    for _ in range(12):
        driver.step(sample_interval_s=15.0)
        times_s.add(queried_s(driver))
    assert driver.targets[MAIN].doubt == ""
    assert np.diff(sorted(times_s)).tolist() == [60.0, 60.0, 60.0]


def test_a_default_estimate_from_little_history_holds_for_a_tenth_of_its_time() -> None:
    driver, times_s = EngineDriver(), set()
    for _ in range(29):
        driver.step()
        times_s.add(queried_s(driver) - NOW_S)
    assert sorted(times_s) == [*range(1, 13), 14.0, 16.0, 18.0, 20.0, 22.0, 25.0, 28.0]


def test_where_a_change_evicts_the_target_stays_while_its_bounds_hardly_move() -> None:
    """One more sample after a hundred narrows them by a hundredth."""
    driver = EngineDriver(KnownHistory(with_history(0.5, 1.0)))
    driver.groups = {MAIN: Rules(evicts=True)}
    driver.steps(4, sample_interval_s=15.0)
    target, before_s = driver.targets[MAIN], queried_s(driver)
    driver.steps(4, sample_interval_s=15.0)
    assert queried_s(driver) == before_s + 60.0
    assert driver.targets[MAIN] is target


def test_where_a_change_evicts_a_target_moves_as_a_minute_of_the_clock_begins_or_after_a_kill() -> None:
    """Memory grows in each of the rounds, which are ten seconds after a full minute, and then every fifteen."""
    driver, moved_s = EngineDriver(KnownHistory(with_history(0.5, 1.0))), set()
    driver.groups = {MAIN: Rules(evicts=True)}
    driver.steps(8, sample_interval_s=15.0)
    for number in range(24):
        before = driver.targets[MAIN]
        driver.usage[instance()] = (0.5, 1.0 + 0.5 * number)
        driver.step(sample_interval_s=15.0)
        if driver.targets[MAIN] is not before:
            moved_s.add(driver.now_s % 60.0)
    assert moved_s == {10.0}
    driver.steps(2, sample_interval_s=15.0)
    before = driver.targets[MAIN]
    driver.kills = [Kill(MAIN, instance(), driver.now_s, 20 * GIB)]
    driver.step(sample_interval_s=15.0)
    assert driver.now_s % 60.0 != 10.0
    assert driver.targets[MAIN] is not before


def test_a_group_whose_memory_is_unknown_has_no_target() -> None:
    driver = EngineDriver(KnownHistory(HistogramAggregate(), (0.5, math.nan)))
    driver.usage.clear()
    driver.containers.clear()
    driver.step()
    assert driver.engine.published_target(MAIN)[0] == 0.5
    assert MAIN not in driver.targets


def test_the_explanation_names_the_forecast_and_memory_only_where_they_decide() -> None:
    trusted, evicting = EngineDriver(), EngineDriver()
    evicting.groups = {MAIN: Rules(evicts=True)}
    for driver in (trusted, evicting):
        driver.steps(40)
        assert driver.targets[MAIN].doubt == ""
    assert trusted.engine.why(MAIN).rule.endswith("; memory follows its own peak: it has no class")
    assert (evicting.engine.why(MAIN).policy, evicting.engine.why(MAIN).rule) == ("histogram", "")


def test_a_group_added_since_the_last_step_has_no_explanation_yet() -> None:
    driver = EngineDriver()
    driver.groups = {MAIN._replace(container=f"c{number}"): Rules() for number in range(16)}
    driver.usage.clear()
    driver.containers.clear()
    driver.step()
    driver.engine.groups.add(SIDE, Memory().group(SIDE), driver.now_s, MARGIN)
    assert len(driver.engine.groups.slots) == 17, "its arrays are longer than those of the step"
    assert driver.engine.why(SIDE).policy == "none"
