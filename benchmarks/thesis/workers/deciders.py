"""Deciders of a play: the default scheduler alone, SpeCon, FlowCon, and ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.thesis.workers.jobs import Run, TrainingJob
from benchmarks.thesis.workers.play import Play
from extender.moves import phasewise, specon
from extender.moves.board import Move
from extender.moves.phasewise import MovableJob, MoveOptions
from extender.moves.specon import TrackedJob
from recommender.contention.fair_queue import EqualShareReference, weights
from recommender.contention.flowcon import FlowCon, FlowConOptions, Measured
from recommender.contention.sharing import RunsOfClass, Stage, nonzero_remaining
from recommender.progress.growth import Category, Growth, GrowthOptions, slows_down
from recommender.progress.readings import Reading

CPU_MILLI, MEMORY_MIB = 100, 200
"""What a pod without requests counts as for the default scheduler. Source of this and of its whole points:
kubernetes/kubernetes, `pkg/scheduler/framework/plugins/noderesources` (least_allocated, balanced_allocation) and
`pkg/scheduler/util/pod_resources.go`. Later versions leave the balance of pods without requests out."""


def points(pods: int, allocatable_milli: int, allocatable_mib: int) -> int:
    """Score of a node that would then have `pods` pods.

    Examples
    --------
    A node of 16 cores and 64 GiB has the same score with its fourth, fifth and sixth pod:

    >>> [points(pods, 16_000, 65_536) for pods in range(1, 8)]
    [198, 197, 197, 196, 196, 196, 194]
    """
    cpu, memory = min(1.0, CPU_MILLI * pods / allocatable_milli), min(1.0, MEMORY_MIB * pods / allocatable_mib)
    free_cpu = max(0, allocatable_milli - CPU_MILLI * pods) * 100 // allocatable_milli
    free_memory = max(0, allocatable_mib - MEMORY_MIB * pods) * 100 // allocatable_mib
    return (free_cpu + free_memory) // 2 + int((1.0 - abs(cpu - memory) / 2.0) * 100)


def choose(pods_per_node: Sequence[int], ties: Sequence[int], allocatable_milli: int, allocatable_mib: int) -> int:
    """Node of the highest score; among equals the first of `ties`, where the scheduler would draw."""
    scored = [points(pods + 1, allocatable_milli, allocatable_mib) for pods in pods_per_node]
    best = max(scored)
    return next(node for node in ties or range(len(pods_per_node)) if scored[node] == best)


WORKER_MIB = 65_536
"""Memory of a worker for the default scheduler."""


def place_as_default(play: Play, job: TrainingJob, pods_per_node: list[int]) -> int:
    return choose(pods_per_node, job.ties, round(1000 * play.workers[0].cores), WORKER_MIB)


class Default:
    def wakeup_s(self) -> float:
        return math.inf

    def place(self, play: Play, job: TrainingJob) -> int:
        return place_as_default(play, job, [len(play.on(worker)) for worker in range(len(play.workers))])

    def decide(self, play: Play) -> Iterable[Move]:
        return ()


@dataclass(slots=True)
class _Curve:
    growth: Growth
    due_s: float
    watched: TrackedJob


@dataclass(slots=True)
class SpeCon(Default):
    """The default scheduler places; algorithms 3 to 5 move."""

    options: GrowthOptions = field(default_factory=GrowthOptions)
    _curves: dict[str, _Curve] = field(default_factory=dict)

    def wakeup_s(self) -> float:
        return min((curve.due_s for curve in self._curves.values()), default=math.inf)

    def decide(self, play: Play) -> Iterable[Move]:
        running = {run.name: run for run in play.running}
        self._curves = {name: curve for name, curve in self._curves.items() if name in running}
        for run in play.running:
            if run.name not in self._curves:
                self._curves[run.name] = self._begin(run, play.now_s)
        moves = [move for run in play.running for move in self._judge(run, play)]
        for move in specon.rebalance(self._watched(), len(play.workers), play.now_s):
            curve = self._curves[move.name]
            curve.watched = replace(curve.watched, worker=move.worker, rebalanced=True)
            moves.append(move)
        return moves

    def _begin(self, run: Run, now_s: float) -> _Curve:
        growth = Growth.begin("log", Reading(now_s, run.loss, "loss"), self.options)
        return _Curve(growth, now_s + self.options.interval_s, TrackedJob(run.name, run.worker, growth.category))

    def _watched(self) -> list[TrackedJob]:
        return [curve.watched for curve in self._curves.values()]

    def _judge(self, run: Run, play: Play) -> Iterable[Move]:
        """Algorithm 3 at the end of the job's interval, and 4 if it asks to move."""
        curve = self._curves[run.name]
        if play.now_s < curve.due_s:
            return
        curve.due_s += self.options.interval_s
        if run.away_until_s > play.now_s:
            return
        before, was = curve.growth.growth, curve.watched.category
        curve.growth.observe("log", Reading(play.now_s, run.loss, "loss"), self.options)
        curve.growth.advance(play.now_s, self.options)
        curve.watched = replace(curve.watched, category=curve.growth.category, marked_s=curve.growth.since_s)
        slower = was is Category.CONVERGED and slows_down(before, curve.growth.growth, self.options.alpha)
        watched = self._watched()
        if slower and specon.asks_to_move(curve.watched, specon.with_learners(watched)):
            totals = specon.scores(watched, len(play.workers))
            worker = specon.destination(run.worker, totals, play.used_cores())
            curve.watched = replace(curve.watched, worker=worker, migrated=True)
            if worker != run.worker:
                yield Move(run.name, worker, "converged, in the way of others that learn")


@dataclass(slots=True)
class FlowConShares(Default):
    """FlowCon on each worker; the default scheduler places."""

    options: FlowConOptions = field(default_factory=FlowConOptions)
    _workers: dict[int, FlowCon] = field(default_factory=dict)

    def wakeup_s(self) -> float:
        return min((worker.due_s for worker in self._workers.values() if worker.members), default=math.inf)

    def decide(self, play: Play) -> Iterable[Move]:
        for number, worker in enumerate(play.workers):
            flowcon = self._workers.setdefault(number, FlowCon(worker.cores, self.options))
            runs = play.on(number)
            jobs = {run.name: Measured(run.loss, run.used_core_s) for run in runs}
            if flowcon.is_due(play.now_s, jobs):
                limits = flowcon.run(play.now_s, jobs)
                for run in runs:
                    run.limit_cores = limits[run.name] * worker.cores
        return ()


@dataclass(slots=True)
class Phasewise:
    """Ours: moves that pay off, and shares in order of completion. Jobs go where the default scheduler would put them
    if none had been moved.

    `classes`: Earlier runs by workload class.
    `moving`, `sharing`: Which of the two it does.
    `interval_s`: Longest time between decisions.
    """

    classes: Mapping[str, RunsOfClass]
    moving: MoveOptions | None = field(default_factory=MoveOptions)
    sharing: bool = True
    interval_s: float = 30.0
    _stay: Sequence[EqualShareReference] = ()
    _expected: dict[str, list[Stage]] = field(default_factory=dict)
    _due_s: float = 0.0

    def wakeup_s(self) -> float:
        return self._due_s

    def place(self, play: Play, job: TrainingJob) -> int:
        stay = self._advance(play)
        worker = place_as_default(play, job, [len(one.running()) for one in stay])
        stay[worker].arrive(job.name)
        return worker

    def decide(self, play: Play) -> Iterable[Move]:
        self._advance(play)
        self._due_s = play.now_s + self.interval_s
        ends_s = self._ends_s()
        jobs = [self._known(run, ends_s[run.name], play.now_s) for run in play.running]
        cores = [worker.cores for worker in play.workers]
        moves: list[Move] = []
        if self.moving is not None:
            moves = phasewise.moves(jobs, cores, play.now_s, self.moving)
        if self.sharing:
            self._share(play, jobs, {move.name: move.worker for move in moves})
        return moves

    def _ends_s(self) -> dict[str, float]:
        return {name: end_s for one in self._stay for name, end_s in one.ends_s(self._expected).items()}

    def _advance(self, play: Play) -> Sequence[EqualShareReference]:
        self._stay = self._stay or [EqualShareReference(worker.cores) for worker in play.workers]
        for run in play.running:
            known = self.classes.get(run.job.workload, RunsOfClass())
            self._expected[run.name] = known.whole_job(run.work_core_s, run.demand_cores)
        for run in play.ended:
            self._expected[run.name] = list(run.job.stages)
        for one in self._stay:
            one.advance(play.now_s, self._expected)
            one.forget({run.name for run in play.ended})
        return self._stay

    def _known(self, run: Run, due_s: float, now_s: float) -> MovableJob:
        left = nonzero_remaining(self._expected[run.name], run.work_core_s, run.demand_cores)
        return MovableJob(
            run.name, left, due_s, max(0.0, run.away_until_s - now_s), run.job.workload in self.classes,
            worker=run.worker, moves=run.moves, moved_s=run.moved_s,
        )  # fmt: skip

    def _share(self, play: Play, jobs: Sequence[MovableJob], moved: Mapping[str, int]) -> None:
        by_name = {run.name: run for run in play.running}
        placed = [replace(job, worker=moved.get(job.name, job.worker)) for job in jobs]
        for number, worker in enumerate(play.workers):
            here = [job for job in placed if job.worker == number]
            for name, weight in weights(here, worker.cores, play.now_s).items():
                by_name[name].weight = weight
