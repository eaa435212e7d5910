"""When the default recommender is asked, and when a target is written anew."""

from __future__ import annotations

import math

import numpy as np

from recommender.engine.keys import Group, Rules
from recommender.engine.seen import EmptyMemory, GroupStart
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts
from tests.recommender.engine.playing import Played
from tests.recommender.engine.worked import MAIN, NOTHING, with_history


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
