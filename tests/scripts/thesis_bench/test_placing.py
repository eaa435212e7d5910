"""The time that a new job adds on each worker, by hand."""

from __future__ import annotations

import pytest

from extender.moves.phasewise import MovableJob
from recommender.contention.sharing import Stage
from thesis_bench.workers.deciders import added_s


def job(name: str, worker: int, core_s: float, due_s: float) -> MovableJob:
    return MovableJob(name, [Stage(core_s, 1.0)], due_s, worker=worker)


def test_a_new_job_adds_its_own_time_its_wait_and_the_wait_of_others() -> None:
    """It waits for 100 core seconds on the first worker and for 20 on the second; on the third, `c` waits for it."""
    running = [job("a", 0, 100.0, 100.0), job("b", 1, 20.0, 20.0), job("c", 2, 200.0, 300.0)]
    assert added_s(job("new", 0, 50.0, 200.0), running, [1.0] * 3, 0.0) == pytest.approx([150.0, 70.0, 100.0])


def test_seconds_after_a_job_is_due_count_more() -> None:
    """The new job is due at 60: 10 s late after 20 s of `b`. Served first, it ends in time but makes `c` late."""
    running = [job("b", 0, 20.0, 20.0), job("c", 1, 30.0, 70.0)]
    assert added_s(job("new", 0, 50.0, 60.0), running, [1.0] * 2, 0.0) == pytest.approx([100.0, 130.0])
