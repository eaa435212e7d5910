"""How long a sample lasts, by which use and waste are counted."""

from __future__ import annotations

import numpy as np

from recommender.judging import durations_s, interval_s
from recommender.records import UsageSeries


def at(seconds: list[int], step_s: float) -> UsageSeries:
    return UsageSeries("c", np.array(seconds), step_s, np.ones((len(seconds), 2)))


def test_on_a_grid_each_sample_lasts_a_step_whatever_whole_seconds_its_times_show() -> None:
    for one in (at([0, 0, 1, 1], 0.5), at([7], 0.5)):
        assert durations_s(one).tolist() == [0.5] * len(one)
        assert interval_s(one) == 0.5


def test_without_a_grid_a_sample_lasts_until_the_next_the_last_as_long_as_usual_and_a_single_one_a_second() -> None:
    assert durations_s(at([0, 10, 30, 40], 0.0)).tolist() == [10.0, 20.0, 10.0, 10.0]
    assert durations_s(at([7], 0.0)).tolist() == [1.0]
