"""Samples and phase changes counted in a round: worked by hand, then against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import VIOLATION_TOLERANCE
from recommender.engine.tally import Report

amount = st.floats(0.0, 1e9, allow_nan=False)
requested = st.one_of(amount, st.just(math.nan))


def test_samples_are_compared_with_what_their_containers_had() -> None:
    report = Report()
    report.judge(np.array([(1.0, 100.0), (0.5, 300.0)]), np.array([(2.0, 100.0), (math.nan, 200.0)]))
    report.judge(np.array([(3.0, 50.0)]), np.array([(2.0, 60.0)]))
    report.judge(np.empty((0, 2)), np.empty((0, 2)))
    assert report.judged == 3
    assert report.violating == [1, 1]
    assert report.used == [4.5, 450.0]
    assert report.slack == [1.0, 10.0]


@given(st.lists(st.tuples(st.tuples(amount, amount), st.tuples(requested, requested)), min_size=1, max_size=20))
def test_samples_count_together_as_one_by_one(samples: list[tuple[tuple[float, float], tuple[float, float]]]) -> None:
    violating, slack = [0, 0], [0.0, 0.0]
    for used, had in samples:
        for place in (0, 1):
            violating[place] += used[place] > had[place] * VIOLATION_TOLERANCE
            slack[place] += had[place] - used[place] if had[place] > used[place] else 0.0
    report = Report()
    report.judge(*np.array(samples).transpose(1, 0, 2))
    assert report.violating == violating
    assert report.slack == pytest.approx(slack)


def test_phase_changes_are_counted_by_whether_they_were_forecast() -> None:
    report = Report()
    for next_phase_hits in ([True, False, False], [], [True]):
        report.count_phase_changes(next_phase_hits)
    assert (report.phase_changes, report.forecast_hits, report.forecast_misses) == (4, 2, 2)
