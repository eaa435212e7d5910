"""Jobs that contend for workers: a play by hand, agreement with small time steps, and invariants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.thesis.workers.deciders import Default, FlowConShares, Phasewise, SpeCon
from benchmarks.thesis.workers.jobs import Run, TrainingJob
from benchmarks.thesis.workers.play import Decider, Play, Rules, Worker, limited_shares
from extender.moves.board import Move
from extender.moves.phasewise import MoveOptions
from recommender.contention.flowcon import FlowConOptions
from recommender.contention.sharing import RunsOfClass, Stage
from tests.examples import at_most
from tests.reference.workers import naive_finish_times

GIB = 2.0**30
FALLING = [2.0 * 0.5 ** (place / 20) for place in range(201)]


def job(name: str, *stages: tuple[float, float], arrives_s: float = 0.0, **fields: object) -> TrainingJob:
    known: dict[str, object] = {"losses": FALLING, "moves_cost_s": (5.0,), **fields}
    return TrainingJob(name, "class", arrives_s, [Stage(*stage) for stage in stages], **known)  # type: ignore[arg-type]


@dataclass
class Planned(Default):
    """The default scheduler, and moves at given times."""

    moves: list[tuple[float, Move]] = field(default_factory=list)

    def wakeup_s(self) -> float:
        return min((at_s for at_s, _ in self.moves), default=math.inf)

    def decide(self, play: Play) -> Iterable[Move]:
        due = [planned for planned in self.moves if planned[0] <= play.now_s]
        self.moves = [planned for planned in self.moves if planned not in due]
        return [move for _, move in due]


def ends(
    jobs: Sequence[TrainingJob], decider: Decider, workers: int = 1, rules: Rules | None = None, **worker: float
) -> dict[str, Run]:
    play = Play([Worker(2.0, **worker)] * workers, jobs, decider, rules or Rules()).until_all_ended()
    return {run.name: run for run in play.ended}


def test_a_play_of_two_jobs_worked_by_hand() -> None:
    """Two cores. `a` has 20 core seconds and is alone for 4 s; then `b` with 6 arrives, and both have a core."""
    ran = ends([job("a", (20.0, 2.0)), job("b", (6.0, 2.0), arrives_s=4.0)], Default())
    assert ran["b"].ended_s == pytest.approx(10.0)  # 4 + 6
    assert ran["a"].ended_s == pytest.approx(13.0)  # 8 done by 4, 6 more by 10, and 6 left on two cores
    assert ran["b"].completion_s == pytest.approx(6.0)


def test_a_moved_job_neither_works_nor_uses_resources_until_it_resumes() -> None:
    """At 4 s `b` goes to the second worker, for 5 s: `a` has both cores from then on, `b` its own two from 9 s on."""
    jobs = [job("a", (20.0, 2.0)), job("b", (10.0, 2.0), ties=(0, 1))]
    away = Planned(moves=[(4.0, Move("b", 1, "room"))])
    together = Play([Worker(2.0), Worker(2.0)], jobs, _AllOnFirst(away)).until_all_ended()
    ran = {run.name: run for run in together.ended}
    assert ran["a"].ended_s == pytest.approx(12.0)  # 4 done by 4; 16 on two cores
    assert ran["b"].ended_s == pytest.approx(12.0)  # 4 done by 4; 6 on two cores from 9 on
    assert ran["b"].moved == [(4.0, 1, "room")]


@dataclass
class _AllOnFirst:
    inner: Decider

    def wakeup_s(self) -> float:
        return self.inner.wakeup_s()

    def place(self, play: Play, job: TrainingJob) -> int:
        return 0

    def decide(self, play: Play) -> Iterable[Move]:
        return self.inner.decide(play)


def test_a_lack_of_memory_kills_the_largest_job_which_resumes_from_its_checkpoint() -> None:
    """Half done, `a` grows to 3 GiB while `b` uses 2 of the 4 GiB: it is killed and resumes from that half, again and
    again, until `b` has ended."""
    a = job("a", (10.0, 1.0), (10.0, 1.0), memory_bytes=(GIB, 3 * GIB), checkpoint_share=0.5)
    b = job("b", (25.0, 1.0), memory_bytes=(2 * GIB,))
    ran = ends([a, b], Default(), rules=Rules(restart_s=10.0), memory_bytes=4 * GIB)
    assert (ran["a"].kills, ran["b"].kills) == (2, 0)  # at 10 s and 20 s
    assert ran["b"].ended_s == pytest.approx(25.0)
    assert ran["a"].ended_s == pytest.approx(40.0)  # back at 30 s
    from_start = ends(
        [job("a", (10.0, 1.0), (10.0, 1.0), memory_bytes=(GIB, 3 * GIB)), b], Default(), memory_bytes=4 * GIB
    )
    assert from_start["a"].ended_s == pytest.approx(40.0)  # killed once at 10 s, starts at 20 s from nothing


def test_contending_jobs_slow_down_by_how_many_run_at_a_time() -> None:
    def last_end_s(*names: str, core_s: float, cores: float) -> float:
        jobs = [replace(job(name, (core_s, cores)), overhead=0.1) for name in names]
        return max(run.ended_s for run in ends(jobs, Default()).values())

    assert last_end_s("a", "b", core_s=10.0, cores=2.0) == pytest.approx(11.0)
    assert last_end_s("a", "b", core_s=10.0, cores=1.0) == pytest.approx(10.0)
    assert last_end_s("a", "b", "c", "d", core_s=5.0, cores=2.0) == pytest.approx(13.0)


def test_each_job_slows_down_by_its_own_overhead() -> None:
    """`b` is as fast beside `a` as alone, and ends after 20 s of its half; `a` has done 10 / 1.1 by then."""
    ran = ends([replace(job("a", (20.0, 2.0)), overhead=0.1), job("b", (20.0, 2.0))], Default())
    assert ran["b"].ended_s == pytest.approx(20.0)
    assert ran["a"].ended_s == pytest.approx(20.0 + (20.0 - 20.0 / 1.1) / 2.0)


def test_the_loss_of_a_job_depends_on_its_work_and_not_on_time() -> None:
    run = Run(job("a", (10.0, 1.0), (10.0, 2.0)), 0, 0.0)
    assert run.loss == 2.0
    run.cores, run.speed = 1.0, 1.0
    run.work(10.0)
    assert run.loss == pytest.approx(2.0 * 0.5**5)
    run.restore_checkpoint()
    assert (run.loss, run.used_core_s) == (2.0, 10.0)


def test_a_soft_limit_applies_only_while_another_job_wants_the_cores() -> None:
    both, weights = [4.0, 4.0], [1.0, 1.0]
    assert limited_shares(4.0, both, weights, [1.0, 4.0]) == [1.0, 3.0]
    assert limited_shares(4.0, both, weights, [1.0, 1.0]) == [2.0, 2.0]
    assert limited_shares(4.0, both, weights, [1.0, 1.0], soft=False) == [1.0, 1.0]


DECIDERS = {
    "default": Default,
    "specon": SpeCon,
    "flowcon": lambda: FlowConShares(FlowConOptions(0.1, 7.0)),
    "phasewise": lambda: Phasewise({"class": RunsOfClass([[Stage(60.0, 2.0)]])}, MoveOptions(cool_down_s=5.0)),
    "phasewise, first runs": lambda: Phasewise({}),
}
STAGES = st.lists(st.tuples(st.floats(1.0, 80.0), st.floats(0.2, 3.0)), min_size=1, max_size=3)
JOBS = st.lists(st.tuples(st.floats(0.0, 100.0), STAGES), min_size=1, max_size=10)


@pytest.mark.parametrize("decider", DECIDERS.values(), ids=DECIDERS)
@at_most(30)
@given(drawn=JOBS, workers=st.integers(1, 3))
def test_under_every_decider_all_work_is_done_once_and_no_job_is_faster_than_alone(
    decider: object, drawn: list[tuple[float, list[tuple[float, float]]]], workers: int
) -> None:
    jobs = [job(f"job-{n}", *stages, arrives_s=at_s) for n, (at_s, stages) in enumerate(drawn)]
    ran = ends(jobs, decider(), workers)  # type: ignore[operator]
    assert ran.keys() == {one.name for one in jobs}
    for one in jobs:
        run = ran[one.name]
        assert run.used_core_s == pytest.approx(one.core_s, rel=1e-6)
        alone_s = sum(stage.core_s / min(2.0, stage.cores) for stage in one.stages)
        assert run.completion_s >= alone_s + 5.0 * run.moves - 1e-6
    first_s, last_s = min(one.arrives_s for one in jobs), max(run.ended_s for run in ran.values())
    assert sum(one.core_s for one in jobs) <= 2.0 * workers * (last_s - first_s) * (1.0 + 1e-6)


@given(st.lists(st.tuples(st.floats(1.0, 50.0), st.floats(0.5, 3.0)), min_size=1, max_size=5), st.data())
@at_most(30)
def test_a_play_agrees_with_small_time_steps(drawn: list[tuple[float, float]], data: st.DataObject) -> None:
    arrive_s = [0.0, *(data.draw(st.sampled_from([0.0, 2.5, 12.0])) for _ in drawn[1:])]
    jobs = [job(f"job-{n}", stage, arrives_s=arrive_s[n]) for n, stage in enumerate(drawn)]
    ran = ends(jobs, Default())
    slowly = naive_finish_times(2.0, [[stage] for stage in drawn], arrive_s)
    assert [ran[one.name].ended_s for one in jobs] == pytest.approx(slowly, rel=0.02, abs=0.5)


@pytest.mark.parametrize("decider", DECIDERS.values(), ids=DECIDERS)
def test_the_same_jobs_give_the_same_play(decider: object) -> None:
    jobs = [job(f"job-{n}", (30.0 + n, 2.0), arrives_s=3.0 * n, ties=(1, 0)) for n in range(9)]
    twice = [{name: run.ended_s for name, run in ends(jobs, decider(), 2).items()} for _ in range(2)]  # type: ignore[operator]
    assert twice[0] == twice[1]


def test_specon_moves_a_converged_job_away_from_progressing_ones() -> None:
    flat = [1.0 - 0.5 * min(1.0, place / 20) + 1e-4 / (1 + place) for place in range(2001)]
    old = job("old", (2000.0, 2.0), losses=flat, ties=(0, 1))
    fresh = [job(f"new-{n}", (400.0, 2.0), arrives_s=300.0, ties=(0, 1)) for n in range(4)]
    ran = ends([old, *fresh], SpeCon(), 2)
    at_s, worker, _ = ran["old"].moved[0]  # each worker has two new jobs then, and the first one also the old job
    assert (worker, 300.0 <= at_s <= 360.0) == (1, True)


def test_phasewise_serves_the_shorter_job_first_without_delaying_the_longer_one() -> None:
    """The first job in order has eight times the weight of the second: 16/9 of the two cores."""
    jobs = [replace(job(name, (core_s, 2.0)), workload=name) for name, core_s in (("long", 300.0), ("short", 100.0))]
    ran = ends(jobs, Phasewise({one.workload: RunsOfClass([one.stages]) for one in jobs}))
    assert ran["short"].ended_s == pytest.approx(100.0 / (16.0 / 9.0))  # after 100 s with equal shares
    assert ran["long"].ended_s == pytest.approx(200.0)


def test_phasewise_lowers_the_mean_completion_time_without_delaying_the_last_job() -> None:
    classes = {"class": RunsOfClass([[Stage(200.0, 2.0)]])}
    jobs = [job(name, (200.0, 2.0), ties=(0, 1)) for name in ("a", "b", "c")]
    still, ours = ends(jobs, Default(), 2), ends(jobs, Phasewise(classes), 2)
    mean = {name: sum(run.completion_s for run in ran.values()) / 3 for name, ran in (("still", still), ("ours", ours))}
    assert mean["ours"] < 0.9 * mean["still"]
    assert max(run.ended_s for run in ours.values()) <= max(run.ended_s for run in still.values()) + 1e-6
