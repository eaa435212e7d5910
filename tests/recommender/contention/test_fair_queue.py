"""One worker that serves jobs in order of equal-share finish times: weights, reference, and no job ends much later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.contention.fair_queue import EqualShareReference, FairQueue, ForecastJob, RunningJob, weights
from recommender.contention.sharing import RunsOfClass, Stage, fair_shares, finish_times
from tests.examples import at_most

SIZES = st.lists(st.tuples(st.floats(5.0, 300.0), st.integers(0, 2), st.floats(0.5, 4.0)), min_size=1, max_size=9)


def job(name: str, core_s: float, due_s: float, cores: float = 1.0, **known: object) -> ForecastJob:
    return ForecastJob(name, [Stage(core_s, cores)], due_s, **known)  # type: ignore[arg-type]


def known(core_s: float, used_core_s: float = 0.0) -> RunningJob:
    """A job on one core whose class had one run, of `core_s`."""
    return RunningJob(used_core_s, 1.0, RunsOfClass([[Stage(core_s, 1.0)]]))


def test_a_short_job_that_arrives_is_served_first_and_then_the_long_one_again() -> None:
    queue = FairQueue()
    assert queue.weights(0.0, 1.0, {"long": known(100.0)}) == {"long": 1.0}
    both = {"long": known(100.0, 10.0), "short": known(20.0)}
    assert queue.weights(10.0, 1.0, both) == {"short": 1.0, "long": 0.125}
    assert queue.weights(32.0, 1.0, {"long": known(100.0, 12.0)}) == {"long": 1.0}


def test_work_done_before_the_first_call_counts() -> None:
    weights = FairQueue().weights(50.0, 1.0, {"new": known(40.0), "old": known(100.0, 90.0)})
    assert weights == {"old": 1.0, "new": 0.125}


def test_a_name_may_be_reused_and_a_worker_without_cores_has_weights_too() -> None:
    queue = FairQueue()
    for now_s in (0.0, 10.0, 20.0):
        assert queue.weights(now_s, 0.0, {"a": known(5.0), "b": known(9.0)}).keys() == {"a", "b"}
        assert queue.weights(now_s + 5.0, 0.0, {}) == {}


def test_jobs_with_similar_finish_times_keep_their_order() -> None:
    """Forecasts fluctuate, and two jobs that alternate both end late."""
    queue = FairQueue()
    assert list(queue.weights(0.0, 1.0, {"a": known(100.0), "b": known(110.0)})) == ["a", "b"]
    fluctuated = {"a": known(112.0, 20.0), "b": known(100.0, 2.0)}
    assert list(FairQueue().weights(20.0, 1.0, {"a": known(112.0), "b": known(100.0)})) == ["b", "a"]
    assert list(queue.weights(20.0, 1.0, fluctuated)) == ["a", "b"]
    assert list(queue.weights(25.0, 1.0, fluctuated | {"b": known(40.0, 2.0)})) == ["b", "a"], "a real change"


def test_runs_on_a_shared_worker_do_not_make_a_job_look_unable_to_use_all_cores() -> None:
    """The class was seen at half a core, then alone: taken literally, the new job would have to go first, as it could
    not catch up later."""
    seen = RunsOfClass([[Stage(50.0, 0.5), Stage(50.0, 1.0)]])
    held_back, waits = 1.0, 0.1

    def order(old_cores: float, new_cores: float) -> list[str]:
        return list(
            FairQueue().weights(
                0.0, 1.0, {"old": RunningJob(45.0, old_cores, seen), "new": RunningJob(0.0, new_cores, seen)}
            )
        )

    assert order(held_back, held_back) == ["old", "new"]
    assert order(held_back, waits) == ["new", "old"], "a job that does not want more is like its class"


def test_a_job_that_was_moved_away_no_longer_delays_others() -> None:
    """If it continued in the reference, the old job would seem to be half as far as it is."""
    queue = FairQueue()
    queue.weights(0.0, 1.0, {"old": known(100.0), "moved": known(300.0)})
    queue.weights(2.0, 1.0, {"old": known(100.0, 1.0), "moved": known(300.0, 1.0)})
    queue.weights(3.0, 1.0, {"old": known(100.0, 2.0)})
    weights = queue.weights(90.0, 1.0, {"old": known(100.0, 89.0), "new": known(50.0)})
    assert list(weights) == ["old", "new"]


def test_a_job_has_done_no_work_before_it_arrived() -> None:
    queue = FairQueue()
    queue.weights(0.0, 1.0, {"first": known(5.0)})
    queue.weights(1000.0, 1.0, {"long": known(60.0)})  # idle in between
    assert list(queue.weights(1010.0, 1.0, {"long": known(60.0, 10.0), "short": known(30.0)})) == ["short", "long"]


@at_most(40)
@given(st.lists(st.tuples(st.floats(5.0, 100.0), st.integers(0, 60)), min_size=1, max_size=5))
def test_no_job_ends_much_later_than_with_equal_shares(jobs: list[tuple[float, int]]) -> None:
    """Weights from one to eight leave a little to the last jobs, and the final step lasts up to a second too long."""
    arrived_s = {f"job-{number}": at_s for number, (_, at_s) in enumerate(jobs)}
    core_s = {f"job-{number}": work for number, (work, _) in enumerate(jobs)}
    used, ends_s, queue = dict.fromkeys(core_s, 0.0), dict[str, float](), FairQueue()
    fair = dict.fromkeys(core_s, 0.0)
    fair_ends_s: dict[str, float] = {}
    for now_s in range(1000):
        here = {
            name: known(core_s[name], used[name]) for name in core_s if arrived_s[name] <= now_s and name not in ends_s
        }
        weights = queue.weights(float(now_s), 1.0, here)
        for name, cores in zip(here, fair_shares(1.0, [1.0] * len(here), [weights[n] for n in here]), strict=True):
            used[name] += cores
            if used[name] >= core_s[name]:
                ends_s[name] = now_s + 1.0
        equal = [name for name in core_s if arrived_s[name] <= now_s and name not in fair_ends_s]
        for name, cores in zip(equal, fair_shares(1.0, [1.0] * len(equal), [1.0] * len(equal)), strict=True):
            fair[name] += cores
            if fair[name] >= core_s[name]:
                fair_ends_s[name] = now_s + 1.0
    assert sum(ends_s.values()) <= sum(fair_ends_s.values()) + 2.0 * len(jobs)
    for name, end_s in ends_s.items():
        assert end_s <= 1.1 * (fair_ends_s[name] - arrived_s[name]) + arrived_s[name] + 2.0 * len(jobs)


def test_weights_are_in_the_order_of_fair_finish_times_and_starve_no_job() -> None:
    jobs = [job("long", 90.0, 150.0), job("short", 30.0, 90.0), job("last", 95.0, 215.0)]
    assert weights(jobs, 1.0, 0.0, ratio=8.0, floor=0.02) == {"short": 1.0, "long": 0.125, "last": 0.02}


def test_a_job_that_cannot_use_the_whole_worker_is_not_served_last() -> None:
    """Fair shares end the wide job at 150 and the narrow one at 200; served last, the narrow one would end at 300."""
    narrow, wide = job("narrow", 100.0, 200.0, cores=0.5), job("wide", 100.0, 199.0)
    assert weights([narrow, wide], 1.0, 0.0)["narrow"] == 1.0


def test_weights_are_equal_if_a_job_has_no_forecast() -> None:
    jobs = [job("a", 10.0, 15.0), job("b", 90.0, 100.0, foreseen=False)]
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
    reference, stages = EqualShareReference(2.0), {"a": [Stage(8.0, 2.0)], "b": [Stage(16.0, 2.0)]}
    reference.arrive("a")
    reference.arrive("b")
    assert reference.ends_s(stages) == {"a": 8.0, "b": 12.0}
    reference.advance(10.0, stages)
    assert (reference.running(), reference.ends_s(stages)) == (["b"], {"a": 8.0, "b": 12.0})
    longer = {**stages, "b": [Stage(20.0, 2.0)]}
    assert reference.ends_s(longer)["b"] == 14.0
    reference.advance(12.0, stages)
    assert reference.running() == []
    reference.advance(12.0, longer)
    assert reference.running() == ["b"]  # it was assumed to have ended, and has not
    reference.forget({"a"})
    assert set(reference.ends_s(longer)) == {"b"}


def test_remaining_work_is_the_mean_over_longer_runs() -> None:
    runs = RunsOfClass([[Stage(10.0, 1.0), Stage(90.0, 4.0)], [Stage(10.0, 1.0), Stage(190.0, 4.0)]])
    assert sum(stage.core_s for stage in runs.left(0.0, 1.0)) == pytest.approx(150.0)
    assert runs.left(120.0, 4.0) == [Stage(pytest.approx(80.0), 4.0)]
    assert runs.left(300.0, 4.0) == [Stage(pytest.approx(30.0), 4.0)]  # longer than any: a tenth more
    assert RunsOfClass().left(100.0, 2.0) == [Stage(120.0, 2.0)]
    assert RunsOfClass().left(500.0, 2.0) == [Stage(500.0, 2.0)]
