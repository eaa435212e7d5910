"""Moves of training pods that let jobs end sooner, by more than the move costs them.

A job is moved if that shortens the completion times, summed over the jobs of both workers, by more than the cost of the
move times a margin. Finish times are forecast from the demand curves of earlier runs of the class, so jobs that need
the cores at different times are put together. No job may end later than under equal shares without moves
(`fair_queue.EqualShareReference`), so long jobs do not pay for short ones. `moves` chooses among jobs and workers, as
in the simulation of the thesis; the planner applies it to pods and nodes.

A job takes part once runs of its class have ended: the class then says what a run takes, and the pod's profile how much
of it is used up. All other pods get what they request, and the rest of a node is shared. No move may delay another job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from extender.gangs.member import Member, NodeCapacity, Requirements
from extender.moves.board import CPU, Board, Move, MoveInputs, PlannedMove
from extender.moves.job import Algorithm, MoveRecord, MovingJob
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.fair_queue import ForecastJob
from recommender.contention.sharing import RunsOfClass, Stage, finish_times

MAX_MOVES = 2  # per job
ROUNDING_TOLERANCE_S = 1e-6

MIN_COST_S = 1.0  # lower bound of the cost of a move: no pod restarts faster
MIN_SHARED_CORES = 0.05  # even on a node that is fully requested, some CPU is idle at times


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """Settings of the moves."""

    cost_s: float = 4.0  # time to save a job and load it elsewhere
    margin: float = 2.0  # a move must save more than this many times its cost
    most_moves: int = MAX_MOVES  # maximum number of moves of one job
    cool_down_s: float = 60.0  # minimum time between two moves of one job
    at_once: int = 4  # maximum number of moves in one decision
    # How many of the most loaded workers are tried as sources, and how many of the least loaded as targets. This bounds
    # the search in a large cluster.
    most_workers: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableJob(ForecastJob):
    """A job that may be moved, and its moves so far."""

    worker: int
    # Number of moves so far, and the time of the last one.
    moves: int = 0
    moved_s: float = -1e18
    movable: bool = True  # it can resume from a checkpoint
    open_to: Collection[int] | None = None  # the workers that it may move to; None for all


def moves(
    jobs: Sequence[MovableJob], capacity_cores: Sequence[float], now_s: float, options: MoveOptions
) -> list[Move]:
    """Choose moves greedily, each applied before the next is searched; the jobs of a worker share it equally."""
    planned: list[Move] = []
    search = _Search(jobs, capacity_cores, now_s, options)
    while len(planned) < options.at_once:
        found = search.best()
        if found is None:
            break
        job, target, gain_s = found
        search.move(job, target)
        planned.append(Move(job.name, target, f"jobs end {gain_s:.0f} s earlier in sum, for {options.cost_s:.0f} s"))
    return planned


class _Search:
    """The jobs of each worker, with the moves found so far applied."""

    def __init__(
        self,
        jobs: Iterable[MovableJob],
        capacity_cores: Sequence[float],
        now_s: float,
        options: MoveOptions,
    ) -> None:
        self._capacity_cores, self._now_s, self._options = capacity_cores, now_s, options
        self._jobs_on: dict[int, list[MovableJob]] = defaultdict(list)
        for job in jobs:
            self._jobs_on[job.worker].append(job)
        self._ends_s: dict[int, list[float]] = {}
        """By worker, when each of its jobs ends."""
        self._saved_s: dict[int, list[float]] = {}
        """By worker, how much earlier its jobs would end in sum without each of them."""

    def move(self, job: MovableJob, target: int) -> None:
        """Apply a move."""
        cost_s = self._options.cost_s
        moved = replace(job, worker=target, delay_s=cost_s, moves=job.moves + 1, moved_s=self._now_s)
        self._jobs_on[job.worker].remove(job)
        self._jobs_on[target].append(moved)
        for worker in (job.worker, target):
            self._ends_s.pop(worker, None)
            self._saved_s.pop(worker, None)

    def best(self) -> tuple[MovableJob, int, float] | None:
        """The job, target and gain in seconds of the best move that exceeds the margin and delays no job."""
        sources, targets = self._sources_and_targets()
        for worker in {*targets, *sources} - self._ends_s.keys():
            self._ends_s[worker] = self._finish_times(self._jobs_on[worker], worker)
        for worker in set(sources) - self._saved_s.keys():
            self._saved_s[worker] = self._saved_by_each(worker)
        ends = self._ends_s
        found: tuple[MovableJob, int, float] | None = None
        best_s = self._options.margin * self._options.cost_s
        for worker in sources:
            for index, (job, saved_s) in enumerate(zip(self._jobs_on[worker], self._saved_s[worker], strict=True)):
                if not self._may_move(job):
                    continue
                for target in targets:
                    if target == worker or saved_s <= best_s or (job.open_to is not None and target not in job.open_to):
                        continue
                    there = [*self._jobs_on[target], replace(job, delay_s=self._options.cost_s)]
                    after_s = self._finish_times(there, target)
                    gain_s = saved_s + sum(ends[target]) - sum(after_s)
                    before_s = [*ends[target], ends[worker][index]]
                    if gain_s > best_s and self._delays_no_job(there, before_s, after_s):
                        found, best_s = (job, target, gain_s), gain_s
        return found

    def _sources_and_targets(self) -> tuple[list[int], list[int]]:
        """The most loaded workers with a movable job beside others, and the least loaded that such jobs may move to."""
        by_load = sorted(range(len(self._capacity_cores)), key=self._load_of)
        most = self._options.most_workers
        sources = {w for w, jobs in self._jobs_on.items() if len(jobs) > 1 and any(map(self._may_move, jobs))}
        # Many jobs share one set of workers: by identity each is looked at once.
        allowed = {id(job.open_to): job.open_to for worker in sources for job in self._jobs_on[worker]}.values()
        targets = by_load
        if None not in allowed:
            open_to = set[int]().union(*(workers for workers in allowed if workers is not None))
            targets = [worker for worker in by_load if worker in open_to]
        return [worker for worker in by_load if worker in sources][-most:], targets[:most]

    def _load_of(self, worker: int) -> float:
        work_core_s = sum(stage.core_s for job in self._jobs_on[worker] for stage in job.left)
        return work_core_s / self._capacity_cores[worker]

    def _may_move(self, job: MovableJob) -> bool:
        return (
            job.movable
            and job.moves < self._options.most_moves
            and job.delay_s <= 0.0
            and self._now_s - job.moved_s >= self._options.cool_down_s
        )

    def _finish_times(self, jobs: Sequence[MovableJob], worker: int) -> list[float]:
        return finish_times(self._capacity_cores[worker], [job.left for job in jobs], [job.delay_s for job in jobs])

    def _saved_by_each(self, worker: int) -> list[float]:
        """How much earlier the jobs of a worker would end in sum without each of them; 0 for those that stay."""
        jobs, all_s = self._jobs_on[worker], sum(self._ends_s[worker])
        return [
            all_s - sum(self._finish_times([*jobs[:index], *jobs[index + 1 :]], worker)) if self._may_move(job) else 0.0
            for index, job in enumerate(jobs)
        ]

    def _delays_no_job(self, jobs: Sequence[MovableJob], before_s: Sequence[float], after_s: Sequence[float]) -> bool:
        return all(
            after <= before + ROUNDING_TOLERANCE_S or self._now_s + after <= job.due_s
            for job, before, after in zip(jobs, before_s, after_s, strict=True)
        )


# -- pods and nodes ----------------------------------------------------------------------------------------------------


class RunningJob(NamedTuple):
    """A running job: its pod, CPU time used (earlier pods included), stages left, and its moves by this planner."""

    pod: Member
    done_core_s: float
    left: Sequence[Stage]
    moves: Sequence[MoveRecord]


@dataclass(frozen=True, slots=True)
class PhasewisePlanner:
    """Plans by when jobs will end, with the `cost_s` of the options until the cost of a move has been measured."""

    options: MoveOptions = field(default_factory=MoveOptions)

    def plan(
        self, pods: Collection[Member], nodes: Iterable[NodeCapacity], inputs: MoveInputs, now_s: float
    ) -> list[PlannedMove]:
        """The best moves in order, each planned on top of those before it."""
        board = Board(pods, nodes)
        jobs = {job.pod.uid: job for pod in board.running if (job := running_job(pod, inputs, now_s)) is not None}
        options = replace(self.options, cost_s=cost_s(inputs.jobs.values(), self.options.cost_s))
        shared = _sharing(board, jobs.values(), inputs)
        planned = moves(shared, _shared_cores(board, jobs.values()), now_s, options)
        return [
            PlannedMove(job.pod, board.name(move.worker), move.reason, Algorithm.SOONER, job.done_core_s)
            for move in planned
            for job in (jobs[move.name],)
        ]


def running_job(pod: Member, inputs: MoveInputs, now_s: float) -> RunningJob | None:
    job = inputs.job_of(pod)
    rate = inputs.rates.get(pod.identity)
    run = inputs.classes.get(ObjectKey(job.key.namespace, job.workload)) if job is not None else None
    if job is None or rate is None or run is None:
        return None
    earlier = [each for each in job.records if each.index == pod.completion_index and each.counts]
    before_core_s = max((each.done_core_s for each in earlier if each.done_core_s >= 0.0), default=0.0)
    done_core_s = before_core_s + rate.cpu_cores * max(0.0, now_s - rate.since_s)
    left = RunsOfClass([run]).left(done_core_s, rate.cpu_cores)
    return RunningJob(pod, done_core_s, left, [each for each in earlier if each.algorithm is Algorithm.SOONER])


def cost_s(jobs: Iterable[MovingJob], default_s: float) -> float:
    """The cost of a move: the median downtime. Owners of Jobs can forge records, so each namespace counts once."""
    downtimes_s: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        downtimes_s[job.key.namespace] += (each.downtime_s for each in job.records if each.downtime_s >= 0.0)
    medians_s = [median(of_namespace) for of_namespace in downtimes_s.values() if of_namespace]
    return max(MIN_COST_S, median(medians_s)) if medians_s else default_s


def _sharing(board: Board, jobs: Iterable[RunningJob], inputs: MoveInputs) -> list[MovableJob]:
    candidate_nodes: dict[Requirements, frozenset[int]] = {}
    shared = []
    for job in jobs:
        pod = job.pod
        movable, needed = pod.checkpointable and not board.refusal(pod), inputs.replacement_of(pod)
        if movable and needed not in candidate_nodes:
            candidate_nodes[needed] = frozenset(np.flatnonzero(board.free.pods_that_fit(needed)).tolist())
        shared.append(
            MovableJob(
                pod.uid,
                job.left,
                due_s=-np.inf,
                worker=board.node_arrays.index[pod.node],
                moves=len(job.moves),
                moved_s=max((each.since_s for each in job.moves), default=-np.inf),
                movable=movable,
                open_to=candidate_nodes[needed] if movable else frozenset(),
            )
        )
    return shared


def _shared_cores(board: Board, jobs: Iterable[RunningJob]) -> list[float]:
    """CPU cores of each node that the requests of pods other than these jobs leave."""
    cores = board.cores(board.free.free)
    for job in jobs:
        cores[board.node_arrays.index[job.pod.node]] += dict(job.pod.requirements.needs).get(CPU, 0.0)
    shared: list[float] = np.maximum(cores, MIN_SHARED_CORES).tolist()
    return shared
