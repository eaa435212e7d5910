"""How cores are divided, and when jobs end by that."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.contention.sharing import Stage, fair_shares, finish_times, remaining
from tests.reference.workers import naive_finish_times

CORES = st.floats(0.1, 16.0)
CLAIMS = st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.1, 10.0)), min_size=1, max_size=8)
WORK = st.lists(st.builds(Stage, st.floats(1.0, 50.0), st.floats(0.5, 8.0)), min_size=1, max_size=3)


def test_shares_and_finish_times_agree_with_examples_worked_by_hand() -> None:
    """Eight cores: the first wants two, the third counts twice as much as the second."""
    assert fair_shares(8.0, [2.0, 8.0, 8.0], [1.0, 1.0, 2.0]) == [2.0, 2.0, 4.0]
    two_then_one = [[Stage(2.0, 1.0), Stage(12.0, 2.0)], [Stage(6.0, 2.0)]]
    # One core each for 2 s; then equal shares: the second has 4 left, until 6 s; the first then has 8 left on both.
    assert finish_times(2.0, two_then_one, [0.0, 0.0]) == pytest.approx([10.0, 6.0])
    assert finish_times(2.0, two_then_one, [0.0, 3.0]) == pytest.approx([11.0, 9.0])


def test_a_delay_counts_from_the_time_at_which_the_worker_is_looked_at() -> None:
    two, delays_s = [[Stage(8.0, 2.0)], [Stage(6.0, 2.0)]], [0.0, 3.0]
    assert finish_times(2.0, two, delays_s) == [5.0, 7.0]
    assert finish_times(2.0, two, delays_s, now_s=100.0) == [105.0, 107.0]


@given(CORES, CLAIMS)
def test_no_share_exceeds_its_demand_and_no_core_in_demand_is_idle(cores: float, claims: list[tuple]) -> None:
    demand, weights = [list(part) for part in zip(*claims, strict=True)]
    shares = fair_shares(cores, demand, weights)
    assert all(0.0 <= share <= wanted for share, wanted in zip(shares, demand, strict=True))
    assert sum(shares) == pytest.approx(min(cores, sum(demand)), abs=1e-6)
    levels = [
        share / weight for share, wanted, weight in zip(shares, demand, weights, strict=True) if share < wanted - 1e-6
    ]
    assert max(levels, default=0.0) == pytest.approx(min(levels, default=0.0), rel=1e-6)


@given(CORES, st.lists(WORK, min_size=1, max_size=4), st.booleans(), st.data())
def test_finish_times_agree_with_a_simulation_in_small_steps(
    cores: float, work: list[list[Stage]], fair: bool, data: st.DataObject
) -> None:
    delays_s = [data.draw(st.sampled_from([0.0, 1.0, 7.5])) for _ in work]
    order = None if fair else data.draw(st.permutations(range(len(work))))
    ends_s = finish_times(cores, work, delays_s, order)
    assert ends_s == pytest.approx(naive_finish_times(cores, work, delays_s, order), rel=0.02, abs=0.5)


def test_done_and_remaining_work_add_up_to_the_whole() -> None:
    stages = [Stage(4.0, 1.0), Stage(10.0, 8.0)]
    for done in (0.0, 3.0, 4.0, 9.0):
        assert math.fsum(stage.core_s for stage in remaining(stages, done)) == pytest.approx(14.0 - done)
    assert remaining(stages, 14.0) == remaining(stages, 99.0) == []


@pytest.mark.parametrize(
    "endless", [Stage(5.0, 0.0), Stage(math.inf, 1.0), Stage(1.7e308, 0.1), Stage(math.nan, 1.0)], ids=str
)
def test_a_job_that_never_ends_has_an_infinite_finish_time(endless: Stage) -> None:
    assert finish_times(2.0, [[endless], [Stage(4.0, 1.0)]], [0.0, 3.0])[0] == math.inf
    assert finish_times(2.0, [[Stage(4.0, 1.0)], [endless], []], [0.0, 0.0, 0.0], [0, 1, 2])[1:] == [math.inf, 0.0]
