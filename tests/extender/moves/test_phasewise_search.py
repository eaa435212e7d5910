"""The moves that pay off and delay no job, among jobs and workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.moves.phasewise import MovableJob, MoveOptions, moves
from recommender.contention.fair_queue import EqualShareReference
from recommender.contention.sharing import Stage, finish_times

OPTIONS = MoveOptions(cost_s=4.0, margin=2.0)
SIZES = st.lists(st.tuples(st.floats(5.0, 300.0), st.integers(0, 2), st.floats(0.5, 4.0)), min_size=1, max_size=9)


def job(name: str, worker: int, core_s: float, due_s: float, cores: float = 1.0, **known: object) -> MovableJob:
    return MovableJob(name, [Stage(core_s, cores)], due_s, worker=worker, **known)  # type: ignore[arg-type]


def plan(jobs: list[MovableJob], workers: int = 2, options: MoveOptions = OPTIONS) -> list[tuple[str, int]]:
    return [(move.name, move.worker) for move in moves(jobs, [1.0] * workers, 0.0, options)]


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
    waiting = MovableJob("waits", [Stage(10.0, 0.1)], due_s=100.0, worker=0)
    assert plan([waiting, job("works", 0, 90.0, 100.0, cores=0.9)]) == []


@given(SIZES)
def test_no_move_ends_a_job_later_than_without_moves(drawn: list[tuple[float, int, float]]) -> None:
    references = [EqualShareReference(4.0) for _ in range(3)]
    stages = {}
    for number, (core_s, worker, cores) in enumerate(drawn):
        references[worker].arrive(f"job-{number}")
        stages[f"job-{number}"] = [Stage(core_s, cores)]
    due_s = {name: end_s for one in references for name, end_s in one.ends_s(stages).items()}
    jobs = [job(f"job-{n}", w, core_s, due_s[f"job-{n}"], cores) for n, (core_s, w, cores) in enumerate(drawn)]
    worker_of = {one.name: one.worker for one in jobs}
    planned = moves(jobs, [4.0] * 3, 0.0, MoveOptions())
    worker_of.update({move.name: move.worker for move in planned})
    moved = {move.name for move in planned}
    for worker in range(3):
        together = [one for one in jobs if worker_of[one.name] == worker]
        delays_s = [4.0 if one.name in moved else 0.0 for one in together]
        for one, end_s in zip(together, finish_times(4.0, [one.left for one in together], delays_s), strict=True):
            assert end_s <= one.due_s + 1e-6
