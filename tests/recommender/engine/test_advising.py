"""When the default recommender is asked, and when a target is written anew."""

from __future__ import annotations

import math

import numpy as np
from tests.recommender.engine.playing import Played

from recommender.engine.keys import Group, Rules
from recommender.engine.seen import EmptyMemory, GroupStart
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts
from tests.recommender.engine.worked import MAIN, MARGIN, NOTHING, NOW_S, SIDE, with_history


class Known(EmptyMemory):
    """Of each group the same."""

    def __init__(self, history: HistogramAggregate, in_force: Amounts = NOTHING) -> None:
        self._start = GroupStart(history, in_force)

    def group(self, group: Group) -> GroupStart:
        return self._start


def test_beside_a_trusted_forecast_the_default_recommender_is_asked_once_a_minute() -> None:
    played = Played()
    played.steps(60, sample_interval_s=15.0)
    asked_s = []
    for _ in range(12):
        played.step(sample_interval_s=15.0)
        asked_s.append(float(played.engine.groups.arrays.default_asked_s[0]))
    assert played.targets[MAIN].doubt == ""
    assert np.diff(sorted(set(asked_s))).tolist() == [60.0, 60.0, 60.0]


def test_bounds_that_hardly_move_where_a_change_evicts_are_not_written_each_minute() -> None:
    """One more sample beside a hundred narrows them by a hundredth."""
    played = Played(Known(with_history(0.5, 1.0)))
    played.groups = {MAIN: Rules(evicts=True)}
    played.steps(4, sample_interval_s=15.0)
    target, asked_s = played.targets[MAIN], played.engine.groups.arrays.default_asked_s[0]
    played.steps(4, sample_interval_s=15.0)
    assert played.engine.groups.arrays.default_asked_s[0] == asked_s + 60.0
    assert played.targets[MAIN] is target


def test_a_group_of_which_only_cpu_is_known_has_no_target() -> None:
    played = Played(Known(HistogramAggregate(), (0.5, math.nan)))
    played.uses.clear(), played.containers.clear()
    played.step()
    assert played.engine.in_force(MAIN)[0] == 0.5
    assert MAIN not in played.targets


def test_with_little_history_the_default_recommender_is_asked_again_after_a_tenth_of_it() -> None:
    played = Played()
    asked_s = {played.engine.groups.arrays.default_asked_s[0] - NOW_S for _ in range(29) if played.step()}
    assert sorted(asked_s)[11:] == [12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 25.0, 28.0]


def test_the_reason_names_the_forecast_and_memory_only_where_they_decide() -> None:
    trusted, evicting = Played(), Played()
    evicting.groups = {MAIN: Rules(evicts=True)}
    for played in (trusted, evicting):
        played.steps(40)
        assert played.targets[MAIN].doubt == ""
    assert trusted.engine.why(MAIN).rule.endswith("; memory follows its own peak: it has no class")
    assert (evicting.engine.why(MAIN).policy, evicting.engine.why(MAIN).rule) == ("histogram", "")


def test_of_a_group_that_came_since_the_last_step_nothing_is_known() -> None:
    played = Played()
    played.groups = {MAIN._replace(container=f"c{number}"): Rules() for number in range(16)}
    played.containers.clear(), played.uses.clear()
    played.step()
    played.engine.groups.add(SIDE, EmptyMemory().group(SIDE), played.now_s, MARGIN)
    assert len(played.engine.groups) == 17
    assert played.engine.why(SIDE).policy == "none"
