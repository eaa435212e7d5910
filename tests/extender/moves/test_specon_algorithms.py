"""SpeCon's moves, by the example and the rules of the thesis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.moves.specon import TrackedJob, asks_to_move, destination, rebalance, scores, with_learners
from recommender.progress.growth import Category

PC, WC, CC = Category


def jobs_on(*workers: list[Category], marked_s: float = 0.0) -> list[TrackedJob]:
    return [
        TrackedJob(f"{number}-{place}", number, category, marked_s)
        for number, held in enumerate(workers)
        for place, category in enumerate(held)
    ]


def test_the_converged_job_of_the_thesis_goes_to_the_second_worker() -> None:
    """Figure 6.22: Job-1 on the fourth worker, with five that progress."""
    jobs = jobs_on([PC] * 3, [PC, WC], [PC] * 2, [PC] * 5 + [CC])
    assert scores(jobs, 4) == [6.0, 3.5, 4.0, 11.0]
    assert asks_to_move(jobs[-1], with_learners(jobs))
    assert destination(3, scores(jobs, 4), [0.0] * 4) == 1


def test_a_job_prefers_its_own_among_the_best_workers_then_the_least_used() -> None:
    jobs = jobs_on([PC, CC], [PC], [PC])
    assert destination(0, scores(jobs, 3), [16.0, 12.0, 8.0]) == 2
    alone = jobs_on([CC], [PC])
    assert destination(0, scores(alone, 2), [16.0, 0.0]) == 0


def test_a_converged_job_asks_to_move_once_and_only_from_a_worker_with_learners() -> None:
    converged, learning = jobs_on([CC, WC])
    assert asks_to_move(converged, {0})
    assert not asks_to_move(converged, with_learners(jobs_on([CC, CC], [PC])))
    assert not asks_to_move(learning, {0})
    assert not asks_to_move(TrackedJob("0-0", 0, CC, 0.0, migrated=True), {0})


def test_an_idle_worker_gets_the_jobs_marked_last_up_to_an_even_spread() -> None:
    """Seven jobs on three workers and an idle fourth: an even spread is one each, so the idle one gets one."""
    jobs = [TrackedJob(f"job-{place}", place % 3, CC, float(place)) for place in range(7)]
    assert [(move.name, move.worker) for move in rebalance(jobs, 4, 100.0)] == [("job-6", 3)]


def test_without_an_idle_worker_one_that_is_two_jobs_below_an_even_spread_gets_jobs() -> None:
    jobs = jobs_on([CC] * 6, [CC] * 5, [CC])  # twelve: an even spread is four each, and the third gets up to three
    moves = rebalance(jobs, 3, 10.0)
    assert [move.worker for move in moves] == [2, 2]
    assert rebalance(jobs_on([CC] * 6, [CC] * 3, [CC] * 3), 3, 10.0) == []


def test_nothing_is_rebalanced_while_a_job_learns_still_or_again_and_no_job_twice() -> None:
    for migrated in (False, True):
        learning = TrackedJob("learning", 0, PC, migrated=migrated)
        assert rebalance([*jobs_on([CC, CC, CC]), learning], 2, 1.0) == []
    assert len(rebalance(jobs_on([CC, CC, CC], []), 2, 1.0)) == 1
    done = [TrackedJob(f"job-{place}", 0, CC, 0.0, migrated=True, rebalanced=True) for place in range(4)]
    assert rebalance(done, 2, 1.0) == []
    assert rebalance([], 3, 0.0) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1e4), st.booleans()), max_size=30))
def test_rebalancing_moves_no_job_to_its_own_worker_and_fills_none_above_the_spread(
    drawn: list[tuple[int, float, bool]],
) -> None:
    jobs = [TrackedJob(f"job-{n}", worker, CC, at_s, rebalanced=done) for n, (worker, at_s, done) in enumerate(drawn)]
    worker_of = {job.name: job.worker for job in jobs}
    moves = rebalance(jobs, 5, 1e4)
    assert len({move.name for move in moves}) == len(moves)
    for move in moves:
        assert worker_of[move.name] != move.worker
        assert not next(job for job in jobs if job.name == move.name).rebalanced
        worker_of[move.name] = move.worker
    for worker in {move.worker for move in moves}:
        assert list(worker_of.values()).count(worker) <= len(jobs) // 5
