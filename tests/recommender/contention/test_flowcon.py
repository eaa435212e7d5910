"""FlowCon's lists, limits and intervals, with the example of the thesis."""

from __future__ import annotations

import pytest

from recommender.contention.flowcon import FlowCon, FlowConOptions, LearningState, Measured

OPTIONS = FlowConOptions(alpha=0.1, interval_s=20.0)


def states(worker: FlowCon) -> dict[str, str]:
    return {name: member.state.name for name, member in worker.members.items()}


def slow_down(worker: FlowCon, until_s: float) -> float:
    """Run job `a` alone, with progress in the first interval and almost none afterwards; returns its next loss."""
    worker.run(0.0, {"a": Measured(1.0, 0.0)})
    loss = 0.5
    for now_s in range(20, int(until_s) + 1, 20):
        worker.run(float(now_s), {"a": Measured(loss, 8.0 * now_s)})
        loss -= 0.001
    return loss


@pytest.fixture
def worker() -> FlowCon:
    return FlowCon(8.0, OPTIONS)


def test_in_the_example_of_the_thesis_the_slow_job_is_limited_to_a_quarter(worker: FlowCon) -> None:
    """VAE converges at 40 s; MNIST arrives, and VAE is limited to 1 / (2 x 2)."""
    loss = slow_down(worker, 60.0)
    assert worker.members["a"].state is LearningState.COMPLETING
    limits = worker.run(65.0, {"a": Measured(loss, 520.0), "b": Measured(2.0, 0.0)})
    assert limits == {"a": 0.25, "b": 1.0}


def test_growth_efficiency_is_progress_per_second_by_the_share_used(worker: FlowCon) -> None:
    """From 2.0 to 1.0 is half of the first loss; in 10 s, on 2 of 8 cores: 0.05 per second / 0.25."""
    worker.run(0.0, {"a": Measured(2.0, 0.0)})
    worker.run(10.0, {"a": Measured(1.0, 20.0)})
    assert worker.members["a"].efficiency == pytest.approx(0.2)


def test_a_slower_job_moves_on_by_one_list_per_run_and_a_faster_one_returns_at_once(worker: FlowCon) -> None:
    seen = []
    for now_s, loss in ((0.0, 1.0), (20.0, 0.5), (40.0, 0.499), (60.0, 0.498), (80.0, 0.1)):
        worker.run(now_s, {"a": Measured(loss, 8.0 * now_s)})
        seen.append(states(worker)["a"])
    assert seen == ["NEW", "NEW", "WATCHING", "COMPLETING", "NEW"]


def test_completing_jobs_alone_have_no_limit_and_longer_intervals_until_another_arrives(worker: FlowCon) -> None:
    loss = slow_down(worker, 100.0)
    assert (worker.interval_s, worker.members["a"].limit) == (160.0, 1.0)
    worker.run(101.0, {"a": Measured(loss, 808.0), "b": Measured(1.0, 0.0)})
    assert (worker.interval_s, worker.due_s) == (20.0, 121.0)


def test_new_jobs_share_by_growth_efficiency_and_an_ended_job_frees_its_share(worker: FlowCon) -> None:
    worker.run(0.0, {"a": Measured(1.0, 0.0), "b": Measured(1.0, 0.0)})
    limits = worker.run(20.0, {"a": Measured(0.7, 80.0), "b": Measured(0.9, 80.0)})
    assert limits == pytest.approx({"a": 0.75, "b": 0.25})
    assert worker.run(30.0, {"b": Measured(0.85, 160.0)}) == {"b": 1.0}


def test_a_job_without_progress_yet_is_not_limited_and_does_not_limit_new_jobs(worker: FlowCon) -> None:
    worker.run(0.0, {"a": Measured(1.0, 0.0), "loading": Measured(1.0, 0.0)})
    limits = worker.run(20.0, {"a": Measured(0.7, 80.0), "loading": Measured(1.0, 80.0)})
    assert limits == {"a": 1.0, "loading": 1.0}


def test_a_job_without_new_measurements_stays_in_its_list(worker: FlowCon) -> None:
    """A run at the time of the last one adds nothing, nor does a job that used no CPU time."""
    slow = Measured(slow_down(worker, 40.0), 320.0)
    assert states(worker)["a"] == "WATCHING"
    worker.run(40.0, {"a": slow, "b": Measured(1.0, 0.0)})
    assert states(worker) == {"a": "WATCHING", "b": "NEW"}
    worker.run(60.0, {"a": slow, "b": Measured(0.5, 160.0)})
    assert states(worker) == {"a": "WATCHING", "b": "NEW"}


def test_progress_is_a_share_of_the_known_scale(worker: FlowCon) -> None:
    """An accuracy in percent that starts at zero: from 12 to 24 in 80 core seconds on 8 cores."""
    for now_s, accuracy, scale in ((0.0, 0.0, 1.0), (10.0, 12.0, 100.0), (20.0, 24.0, 100.0)):
        worker.run(now_s, {"a": Measured(accuracy, 8.0 * now_s, scale)})
    assert worker.members["a"].efficiency == pytest.approx(0.012)
    assert worker.members["a"].largest == pytest.approx(0.012)


def test_a_job_whose_growth_efficiency_overflows_stays_in_its_list(worker: FlowCon) -> None:
    slow_down(worker, 40.0)
    before = worker.members["a"].efficiency
    worker.run(60.0, {"a": Measured(1e308, 480.0, 1e-10), "b": Measured(1.0, 0.0)})
    limits = worker.run(80.0, {"a": Measured(-1e308, 640.0, 1e-10), "b": Measured(0.5, 160.0)})
    assert states(worker) == {"a": "WATCHING", "b": "NEW"}
    assert worker.members["a"].efficiency == before == pytest.approx(0.00005)
    assert limits == {"a": 1.0, "b": pytest.approx(0.025 / 0.02505)}
