"""Moves that pay and harm nobody, shares in the order of fair sharing, and the world in which everybody stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.contention.fair_queue import EqualShareReference
from recommender.contention.forecast import RunsOfClass
from recommender.contention.phasewise import ForecastJob, MoveOptions, moves, weights
from recommender.contention.sharing import Stage, finish_times

OPTIONS = MoveOptions(cost_s=4.0, margin=2.0)
SIZES = st.lists(st.tuples(st.floats(5.0, 300.0), st.integers(0, 2), st.floats(0.5, 4.0)), min_size=1, max_size=9)


def job(name: str, worker: int, core_s: float, due_s: float, cores: float = 1.0, **known: object) -> ForecastJob:
    return ForecastJob(name, worker, [Stage(core_s, cores)], due_s, **known)  # type: ignore[arg-type]


def plan(jobs: list[ForecastJob], workers: int = 2, options: MoveOptions = OPTIONS) -> list[tuple[str, int]]:
    return [(move.name, move.worker) for move in moves(jobs, [1.0] * workers, 0.0, options, ordered=False)]


def test_a_job_goes_to_an_idle_worker_where_that_wins_more_than_it_costs() -> None:
    """Two jobs of 100 core seconds on one core end at 200 both; apart at 100 and, with the move, at 104."""
    assert plan([job("a", 0, 100.0, 200.0), job("b", 0, 100.0, 200.0)]) == [("a", 1)]
    assert plan([job("a", 0, 5.0, 10.0), job("b", 0, 5.0, 10.0)]) == []  # wins 6 s for 4


def test_nobody_pays_for_a_move_of_another() -> None:
    """The third would end at 150 alone; with a second beside it later than where all stay, unless that was later."""
    crowded = [job(name, 0, 100.0, 300.0) for name in "abc"]
    assert plan([*crowded, job("d", 1, 150.0, 150.0)]) == []
    assert plan([*crowded, job("d", 1, 150.0, 260.0)]) == [("a", 1)]


def test_a_job_that_cannot_resume_or_has_just_been_moved_or_often_stays() -> None:
    for known in ({"movable": False}, {"moves": 2}, {"moved_s": -59.0}, {"delay_s": 1.0}):
        pair = [job(name, 0, 100.0, 200.0, **known) for name in "ab"]
        assert plan(pair) == []


def test_jobs_that_want_cores_at_different_times_stay_together() -> None:
    """One that mostly waits leaves the core to the other: apart they would end little sooner."""
    waiting = ForecastJob("waits", 0, [Stage(10.0, 0.1)], due_s=100.0)
    assert plan([waiting, job("works", 0, 90.0, 100.0, cores=0.9)]) == []


@given(SIZES)
def test_no_move_ends_a_job_later_than_where_all_stay(drawn: list[tuple[float, int, float]]) -> None:
    stay = EqualShareReference([4.0] * 3)
    whole = {}
    for number, (core_s, worker, cores) in enumerate(drawn):
        stay.arrive(f"job-{number}", worker)
        whole[f"job-{number}"] = [Stage(core_s, cores)]
    due_s = stay.ends_s(whole)
    jobs = [job(f"job-{n}", w, core_s, due_s[f"job-{n}"], cores) for n, (core_s, w, cores) in enumerate(drawn)]
    at = {one.name: one.worker for one in jobs}
    planned = moves(jobs, [4.0] * 3, 0.0, MoveOptions(), ordered=False)
    at.update({move.name: move.worker for move in planned})
    moved = {move.name for move in planned}
    for worker in range(3):
        here = [one for one in jobs if at[one.name] == worker]
        delays_s = [4.0 if one.name in moved else 0.0 for one in here]
        for one, end_s in zip(here, finish_times(4.0, [one.left for one in here], delays_s), strict=True):
            assert end_s <= one.due_s + 1e-6


def test_shares_go_in_the_order_in_which_fair_sharing_would_end_jobs_and_none_is_starved() -> None:
    jobs = [job("long", 0, 90.0, 150.0), job("short", 0, 30.0, 90.0), job("last", 0, 95.0, 215.0)]
    assert weights(jobs, 1.0, 0.0, ratio=8.0, floor=0.02) == {"short": 1.0, "long": 0.125, "last": 0.02}


def test_one_that_cannot_use_the_whole_worker_is_not_left_to_the_end() -> None:
    """Fair shares end the wide job at 150 and the narrow one at 200; served last, the narrow one would end at 300."""
    narrow, wide = job("narrow", 0, 100.0, 200.0, cores=0.5), job("wide", 0, 100.0, 199.0)
    assert weights([narrow, wide], 1.0, 0.0)["narrow"] == 1.0


def test_jobs_of_which_nothing_is_known_have_equal_shares() -> None:
    jobs = [job("a", 0, 10.0, 15.0), job("b", 0, 90.0, 100.0, foreseen=False)]
    assert set(weights(jobs, 1.0, 0.0).values()) == {1.0}


@given(SIZES)
def test_served_in_the_order_of_fair_sharing_nobody_that_can_use_the_worker_ends_later(
    drawn: list[tuple[float, int, float]],
) -> None:
    """The property of the fair sojourn protocol."""
    work = [[Stage(core_s, 1.0)] for core_s, _, _ in drawn]
    fair_s = finish_times(1.0, work, [0.0] * len(work))
    order = sorted(range(len(work)), key=lambda place: fair_s[place])
    for first_s, then_s in zip(finish_times(1.0, work, [0.0] * len(work), order), fair_s, strict=True):
        assert first_s <= then_s + 1e-6


def test_the_world_where_all_stay_goes_on_from_where_it_is_and_takes_what_is_learned_of_work() -> None:
    stay, whole = EqualShareReference([2.0]), {"a": [Stage(8.0, 2.0)], "b": [Stage(16.0, 2.0)]}
    stay.arrive("a", 0)
    stay.arrive("b", 0)
    assert stay.ends_s(whole) == {"a": 8.0, "b": 12.0}
    stay.advance(10.0, whole)
    assert (stay.job_counts(), stay.ends_s(whole)) == ([1], {"a": 8.0, "b": 12.0})
    longer = {**whole, "b": [Stage(20.0, 2.0)]}
    assert stay.ends_s(longer)["b"] == 14.0
    stay.advance(12.0, whole)
    assert stay.job_counts() == [0]
    stay.advance(12.0, longer)
    assert stay.job_counts() == [1]  # it was taken to have ended, and has not
    stay.forget({"a"})
    assert set(stay.ends_s(longer)) == {"b"}


def test_what_is_left_is_the_mean_of_what_longer_runs_had_left() -> None:
    runs = RunsOfClass([[Stage(10.0, 1.0), Stage(90.0, 4.0)], [Stage(10.0, 1.0), Stage(190.0, 4.0)]])
    assert sum(stage.core_s for stage in runs.left(0.0, 1.0)) == pytest.approx(150.0)
    assert runs.left(120.0, 4.0) == [Stage(pytest.approx(80.0), 4.0)]
    assert runs.left(300.0, 4.0) == [Stage(pytest.approx(30.0), 4.0)]  # longer than any: a tenth more
    assert RunsOfClass().left(100.0, 2.0) == [Stage(120.0, 2.0)]
    assert RunsOfClass().left(500.0, 2.0) == [Stage(500.0, 2.0)]
