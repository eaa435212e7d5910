"""Moves that pay off and delay no job, weights in the order of fair finish times, and the reference without moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.contention.fair_queue import EqualShareReference
from recommender.contention.phasewise import ForecastJob, MoveOptions, moves, weights
from recommender.contention.sharing import RunsOfClass, Stage, finish_times

OPTIONS = MoveOptions(cost_s=4.0, margin=2.0)
SIZES = st.lists(st.tuples(st.floats(5.0, 300.0), st.integers(0, 2), st.floats(0.5, 4.0)), min_size=1, max_size=9)


def job(name: str, worker: int, core_s: float, due_s: float, cores: float = 1.0, **known: object) -> ForecastJob:
    return ForecastJob(name, worker, [Stage(core_s, cores)], due_s, **known)  # type: ignore[arg-type]


def plan(jobs: list[ForecastJob], workers: int = 2, options: MoveOptions = OPTIONS) -> list[tuple[str, int]]:
    return [(move.name, move.worker) for move in moves(jobs, [1.0] * workers, 0.0, options, ordered=False)]


def test_a_job_moves_to_an_idle_worker_if_that_saves_more_than_it_costs() -> None:
    """Two jobs of 100 core seconds on one core both end at 200; apart at 100 and, after the move, at 104."""
    assert plan([job("a", 0, 100.0, 200.0), job("b", 0, 100.0, 200.0)]) == [("a", 1)]
    assert plan([job("a", 0, 5.0, 10.0), job("b", 0, 5.0, 10.0)]) == []  # saves 6 s for 4


def test_a_move_delays_no_other_job() -> None:
    """Alone, `d` ends at 150; with a second job later than without moves, unless that was later still."""
    crowded = [job(name, 0, 100.0, 300.0) for name in "abc"]
    assert plan([*crowded, job("d", 1, 150.0, 150.0)]) == []
    assert plan([*crowded, job("d", 1, 150.0, 260.0)]) == [("a", 1)]


def test_a_job_stays_if_it_cannot_resume_or_was_moved_recently_or_often() -> None:
    for known in ({"movable": False}, {"moves": 2}, {"moved_s": -59.0}, {"delay_s": 1.0}):
        pair = [job(name, 0, 100.0, 200.0, **known) for name in "ab"]
        assert plan(pair) == []


def test_jobs_that_hardly_compete_for_cores_stay_together() -> None:
    """A job that mostly waits leaves the core to the other: apart they would end only a little sooner."""
    waiting = ForecastJob("waits", 0, [Stage(10.0, 0.1)], due_s=100.0)
    assert plan([waiting, job("works", 0, 90.0, 100.0, cores=0.9)]) == []


@given(SIZES)
def test_no_move_ends_a_job_later_than_without_moves(drawn: list[tuple[float, int, float]]) -> None:
    reference = EqualShareReference([4.0] * 3)
    stages = {}
    for number, (core_s, worker, cores) in enumerate(drawn):
        reference.arrive(f"job-{number}", worker)
        stages[f"job-{number}"] = [Stage(core_s, cores)]
    due_s = reference.ends_s(stages)
    jobs = [job(f"job-{n}", w, core_s, due_s[f"job-{n}"], cores) for n, (core_s, w, cores) in enumerate(drawn)]
    worker_of = {one.name: one.worker for one in jobs}
    planned = moves(jobs, [4.0] * 3, 0.0, MoveOptions(), ordered=False)
    worker_of.update({move.name: move.worker for move in planned})
    moved = {move.name for move in planned}
    for worker in range(3):
        together = [one for one in jobs if worker_of[one.name] == worker]
        delays_s = [4.0 if one.name in moved else 0.0 for one in together]
        for one, end_s in zip(together, finish_times(4.0, [one.left for one in together], delays_s), strict=True):
            assert end_s <= one.due_s + 1e-6


def test_weights_are_in_the_order_of_fair_finish_times_and_starve_no_job() -> None:
    jobs = [job("long", 0, 90.0, 150.0), job("short", 0, 30.0, 90.0), job("last", 0, 95.0, 215.0)]
    assert weights(jobs, 1.0, 0.0, ratio=8.0, floor=0.02) == {"short": 1.0, "long": 0.125, "last": 0.02}


def test_a_job_that_cannot_use_the_whole_worker_is_not_served_last() -> None:
    """Fair shares end the wide job at 150 and the narrow one at 200; served last, the narrow one would end at 300."""
    narrow, wide = job("narrow", 0, 100.0, 200.0, cores=0.5), job("wide", 0, 100.0, 199.0)
    assert weights([narrow, wide], 1.0, 0.0)["narrow"] == 1.0


def test_weights_are_equal_if_a_job_has_no_forecast() -> None:
    jobs = [job("a", 0, 10.0, 15.0), job("b", 0, 90.0, 100.0, foreseen=False)]
    assert set(weights(jobs, 1.0, 0.0).values()) == {1.0}


@given(SIZES)
def test_no_job_that_can_use_the_worker_ends_later_in_the_order_of_fair_finish_times(
    drawn: list[tuple[float, int, float]],
) -> None:
    """The property of the fair sojourn protocol."""
    work = [[Stage(core_s, 1.0)] for core_s, _, _ in drawn]
    fair_s = finish_times(1.0, work, [0.0] * len(work))
    order = sorted(range(len(work)), key=lambda place: fair_s[place])
    for first_s, then_s in zip(finish_times(1.0, work, [0.0] * len(work), order), fair_s, strict=True):
        assert first_s <= then_s + 1e-6


def test_the_reference_continues_from_its_state_with_new_forecasts_of_work() -> None:
    reference, stages = EqualShareReference([2.0]), {"a": [Stage(8.0, 2.0)], "b": [Stage(16.0, 2.0)]}
    reference.arrive("a", 0)
    reference.arrive("b", 0)
    assert reference.ends_s(stages) == {"a": 8.0, "b": 12.0}
    reference.advance(10.0, stages)
    assert (reference.job_counts(), reference.ends_s(stages)) == ([1], {"a": 8.0, "b": 12.0})
    longer = {**stages, "b": [Stage(20.0, 2.0)]}
    assert reference.ends_s(longer)["b"] == 14.0
    reference.advance(12.0, stages)
    assert reference.job_counts() == [0]
    reference.advance(12.0, longer)
    assert reference.job_counts() == [1]  # it was assumed to have ended, and has not
    reference.forget({"a"})
    assert set(reference.ends_s(longer)) == {"b"}


def test_remaining_work_is_the_mean_over_longer_runs() -> None:
    runs = RunsOfClass([[Stage(10.0, 1.0), Stage(90.0, 4.0)], [Stage(10.0, 1.0), Stage(190.0, 4.0)]])
    assert sum(stage.core_s for stage in runs.left(0.0, 1.0)) == pytest.approx(150.0)
    assert runs.left(120.0, 4.0) == [Stage(pytest.approx(80.0), 4.0)]
    assert runs.left(300.0, 4.0) == [Stage(pytest.approx(30.0), 4.0)]  # longer than any: a tenth more
    assert RunsOfClass().left(100.0, 2.0) == [Stage(120.0, 2.0)]
    assert RunsOfClass().left(500.0, 2.0) == [Stage(500.0, 2.0)]
