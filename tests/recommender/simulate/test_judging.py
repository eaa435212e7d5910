"""How long a sample lasts, by which use and waste are counted."""

from __future__ import annotations

import numpy as np

from recommender.base.records import UsageSeries
from recommender.simulate.judging import durations_s, interval_s


def series_at(seconds: list[int], step_s: float) -> UsageSeries:
    return UsageSeries("c", np.array(seconds), step_s, np.ones((len(seconds), 2)))


def test_on_a_grid_each_sample_lasts_one_step_though_timestamps_are_whole_seconds() -> None:
    for series in (series_at([0, 0, 1, 1], 0.5), series_at([7], 0.5)):
        assert durations_s(series).tolist() == [0.5] * len(series)
        assert interval_s(series) == 0.5


def test_without_a_grid_a_sample_lasts_until_the_next_and_the_last_one_the_median() -> None:
    assert durations_s(series_at([0, 10, 30, 40], 0.0)).tolist() == [10.0, 20.0, 10.0, 10.0]


def test_a_single_sample_without_a_grid_lasts_one_second() -> None:
    assert durations_s(series_at([7], 0.0)).tolist() == [1.0]
