"""FlowCon's lists, limits and intervals, by the example of the thesis."""

from __future__ import annotations

import pytest

from recommender.contention.flowcon import FlowCon, FlowConOptions, LearningState, Measured

OPTIONS = FlowConOptions(alpha=0.1, interval_s=20.0)


def stands(worker: FlowCon) -> dict[str, str]:
    return {name: member.state.name for name, member in worker.members.items()}


def slow_down(worker: FlowCon, until_s: float) -> float:
    """Job `a` alone, with its first progress in the first interval and next to none afterwards; its loss at the end."""
    worker.run(0.0, {"a": Measured(1.0, 0.0)})
    loss = 0.5
    for now_s in range(20, int(until_s) + 1, 20):
        worker.run(float(now_s), {"a": Measured(loss, 8.0 * now_s)})
        loss -= 0.001
    return loss


def test_the_second_job_of_the_thesis_has_the_worker_and_the_slow_one_a_quarter() -> None:
    """At 40 s VAE converges; MNIST comes, and VAE is limited to 1 / (2 x 2)."""
    worker = FlowCon(8.0, OPTIONS)
    loss = slow_down(worker, 60.0)
    assert worker.members["a"].state is LearningState.COMPLETING
    limits = worker.run(65.0, {"a": Measured(loss, 520.0), "b": Measured(2.0, 0.0)})
    assert limits == {"a": 0.25, "b": 1.0}


def test_growth_efficiency_is_progress_a_second_for_the_share_used() -> None:
    """From 2.0 to 1.0 is half of the first; in 10 s, on 2 of 8 cores: 0.05 a second / 0.25."""
    worker = FlowCon(8.0, OPTIONS)
    worker.run(0.0, {"a": Measured(2.0, 0.0)})
    worker.run(10.0, {"a": Measured(1.0, 20.0)})
    assert worker.members["a"].efficiency == pytest.approx(0.2)


def test_a_job_slows_down_by_one_list_a_run_and_comes_back_at_once() -> None:
    worker = FlowCon(8.0, OPTIONS)
    seen = []
    for now_s, loss in ((0.0, 1.0), (20.0, 0.5), (40.0, 0.499), (60.0, 0.498), (80.0, 0.1)):
        worker.run(now_s, {"a": Measured(loss, 8.0 * now_s)})
        seen.append(stands(worker)["a"])
    assert seen == ["NEW", "NEW", "WATCHING", "COMPLETING", "NEW"]


def test_all_completing_are_free_and_are_asked_less_and_less_often_until_one_comes() -> None:
    worker = FlowCon(8.0, OPTIONS)
    loss = slow_down(worker, 100.0)
    assert (worker.interval_s, worker.members["a"].limit) == (160.0, 1.0)
    worker.run(101.0, {"a": Measured(loss, 808.0), "b": Measured(1.0, 0.0)})
    assert (worker.interval_s, worker.due_s) == (20.0, 121.0)


def test_new_jobs_share_by_growth_efficiency_and_an_end_frees_its_share_at_once() -> None:
    worker = FlowCon(8.0, OPTIONS)
    worker.run(0.0, {"a": Measured(1.0, 0.0), "b": Measured(1.0, 0.0)})
    limits = worker.run(20.0, {"a": Measured(0.7, 80.0), "b": Measured(0.9, 80.0)})
    assert limits == pytest.approx({"a": 0.75, "b": 0.25})
    assert worker.run(30.0, {"b": Measured(0.85, 160.0)}) == {"b": 1.0}


def test_a_job_that_has_not_begun_to_learn_is_not_limited_nor_limits_others_that_are_new() -> None:
    worker = FlowCon(8.0, OPTIONS)
    worker.run(0.0, {"a": Measured(1.0, 0.0), "loading": Measured(1.0, 0.0)})
    limits = worker.run(20.0, {"a": Measured(0.7, 80.0), "loading": Measured(1.0, 80.0)})
    assert limits == {"a": 1.0, "loading": 1.0}


def test_a_job_of_which_nothing_new_is_known_stays_in_its_list() -> None:
    """A run at the moment of the last one tells nothing, nor does a job that waited on no CPU time."""
    worker = FlowCon(8.0, OPTIONS)
    slow = Measured(slow_down(worker, 40.0), 320.0)
    assert stands(worker)["a"] == "WATCHING"
    worker.run(40.0, {"a": slow, "b": Measured(1.0, 0.0)})
    assert stands(worker) == {"a": "WATCHING", "b": "NEW"}
    worker.run(60.0, {"a": slow, "b": Measured(0.5, 160.0)})
    assert stands(worker) == {"a": "WATCHING", "b": "NEW"}


def test_progress_is_a_share_of_the_scale_that_is_known() -> None:
    """An accuracy in percent that begins at nothing: from 12 to 24 in 80 core seconds on 8 cores."""
    worker = FlowCon(8.0, OPTIONS)
    for now_s, accuracy, scale in ((0.0, 0.0, 1.0), (10.0, 12.0, 100.0), (20.0, 24.0, 100.0)):
        worker.run(now_s, {"a": Measured(accuracy, 8.0 * now_s, scale)})
    assert worker.members["a"].efficiency == pytest.approx(0.012)
    assert worker.members["a"].largest == pytest.approx(0.012)


def test_a_loss_beyond_all_numbers_keeps_its_job_where_it_is_and_the_others_divided() -> None:
    worker = FlowCon(8.0, OPTIONS)
    for now_s, huge, loss in ((0.0, 1.0, 1.0), (20.0, 0.9, 0.7), (40.0, 1e308, 0.4), (60.0, -1e308, 0.1)):
        limits = worker.run(now_s, {"huge": Measured(huge, 4.0 * now_s), "b": Measured(loss, 4.0 * now_s)})
    assert all(0.0 <= limit <= 1.0 for limit in limits.values())
    assert worker.members["huge"].largest < 1e308
