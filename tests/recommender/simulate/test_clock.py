"""Traces merged by time into rounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.simulate.clock import rounds
from tests.recommender.simulate.worked import START, trace

NAN = float("nan")


def test_overlapping_runs_share_rounds() -> None:
    two = [trace([1, 1, 1]), trace([1, 1], start=START + 10)]
    found = [(r.now_s - START, r.numbers.tolist(), r.positions.tolist(), r.began, r.ended) for r in rounds(two, 10.0)]
    assert found == [
        (0.0, [0], [0], [0], []),
        (10.0, [0, 1], [1, 0], [1], []),
        (20.0, [0, 1], [2, 1], [], []),
        (30.0, [], [], [], [0, 1]),
    ]


def test_gaps_and_hours_without_a_run_have_no_rounds() -> None:
    found = list(rounds([trace([1, NAN, 1]), trace([1], start=START + 10_000)], 10.0))
    assert [r.now_s - START for r in found] == [0, 20, 30, 10_000, 10_010]


def test_a_sample_between_two_rounds_belongs_to_the_later_one() -> None:
    found = list(rounds([trace([1, 1], start=START + 3)], 10.0))
    assert [r.now_s - START for r in found] == [10, 20, 30]


def test_each_sample_of_a_finer_trace_has_a_round_of_its_own() -> None:
    found = list(rounds([trace([1, 2, 3, 4], start=START + 1, step_s=5.0)], 10.0))
    assert [(r.now_s - START, r.positions.tolist()) for r in found] == [
        (10, [0]),
        (10, [1]),
        (20, [2]),
        (20, [3]),
        (30, []),
    ]


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    starts=st.lists(st.integers(0, 60), min_size=5, max_size=5),
)
def test_every_sample_is_in_one_round_and_every_run_begins_and_ends_once(lengths: list[int], starts: list[int]) -> None:
    traces = [trace([1.0] * n, start=START + s) for n, s in zip(lengths, starts, strict=False)]
    found = list(rounds(traces, 10.0))
    samples = sorted((run, at) for r in found for run, at in zip(r.numbers.tolist(), r.positions.tolist(), strict=True))
    assert samples == [(run, at) for run, trace_ in enumerate(traces) for at in range(len(trace_.series))]
    for edge in ("began", "ended"):
        assert sorted(run for r in found for run in getattr(r, edge)) == list(range(len(traces)))
    assert np.all(np.diff([r.now_s for r in found]) >= 0)
