"""Moves of training pods by SpeCon: where a converged job goes (algorithm 4), and rebalancing (algorithm 5).

The algorithms are pure functions on jobs and workers, which the simulation of the thesis calls as well; the planner
applies them to pods and nodes. Where the listings of the thesis and its text differ, they follow the text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from extender.gangs.member import Member, NodeCapacity, Requirements
from extender.moves.board import Board, Job, Move, MoveInputs, PlannedMove
from extender.moves.job import Algorithm
from recommender.progress.growth import WEIGHTS, Category

_WEIGHT_OF = dict(zip(Category, WEIGHTS, strict=True))


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A running job as SpeCon tracks it across its pods."""

    name: str
    worker: int  # index of its worker
    category: Category
    marked_s: float = math.nan  # when it was marked as converged; NaN before
    # Algorithm 4, or 5, has already handled it; each does so once.
    migrated: bool = False
    rebalanced: bool = False


def scores(jobs: Collection[TrackedJob], workers: int) -> list[float]:
    """Score S of each worker: 2 |PC| + 1.5 |WC| + 1 |CC|."""
    totals = [0.0] * workers
    for job in jobs:
        totals[job.worker] += _WEIGHT_OF[job.category]
    return totals


def with_learners(jobs: Collection[TrackedJob]) -> set[int]:
    """The workers with a job that still learns."""
    return {job.worker for job in jobs if job.category is not Category.CONVERGED}


def asks_to_move(job: TrackedJob, with_learners: Collection[int]) -> bool:
    """Whether a job asks for another worker: it has converged and shares its worker with one that still learns."""
    return job.category is Category.CONVERGED and not job.migrated and job.worker in with_learners


def destination(own: int, totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """Algorithm 4: the worker of smallest S; of equal ones the job's own, otherwise the one with the lowest use.

    `totals`: S of each worker, the job included in its own.

    Workers with 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC: the converged job goes to the second.

    >>> destination(3, [6.0, 3.5, 4.0, 11.0], [16.0, 16.0, 16.0, 16.0])
    1
    """
    best = least_loaded(totals, used_cores)
    return own if totals[own] == totals[best] else best


def least_loaded(totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """The worker of smallest S; of equal ones the one with the lowest use."""
    least = min(totals)
    candidates = [worker for worker, total in enumerate(totals) if total == least]
    return min(candidates, key=lambda worker: (used_cores[worker], worker))


def settled(jobs: Collection[TrackedJob]) -> bool:
    """Whether all jobs have converged, the condition for rebalancing; a moved job may start to learn again."""
    return all(job.category is Category.CONVERGED for job in jobs)


def rebalance(jobs: Collection[TrackedJob], workers: int, now_s: float) -> list[Move]:
    """Algorithm 5: once all jobs have converged, move those marked last to workers with fewer jobs.

    Idle workers take jobs up to the even count; if none is idle, workers with at least two fewer take jobs up to one
    below it. No job leaves a worker that takes jobs, and none is rebalanced twice.
    """
    if not settled(jobs):
        return []
    counts = Counter(job.worker for job in jobs)
    even = len(jobs) // workers
    targets, goal = [worker for worker in range(workers) if not counts[worker]], even
    if not targets:
        targets, goal = [worker for worker in range(workers) if counts[worker] < even - 1], even - 1
    taking = set(targets)
    movable = sorted(
        (job for job in jobs if not job.rebalanced and job.worker not in taking),
        key=lambda job: (now_s - job.marked_s, job.name),
    )
    slots = [worker for worker in targets for _ in range(counts[worker], goal)]
    reason = f"rebalance: an even spread is {even} jobs per worker"
    return [Move(job.name, worker, reason) for job, worker in zip(movable, slots, strict=False)]


# -- pods and nodes ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SpeConPlanner:
    """Remembers, while a Job exists, since when it has been converged and whether algorithm 4 decided that it stays."""

    _since_s: dict[Job, float] = field(default_factory=dict)
    _staying: set[Job] = field(default_factory=set)

    def plan(
        self, pods: Collection[Member], nodes: Iterable[NodeCapacity], inputs: MoveInputs, now_s: float
    ) -> list[PlannedMove]:
        """All moves that SpeCon would make now, each as if it were the only one."""
        workers = _Workers(Board(pods, nodes), inputs, self._staying)
        watched = workers.watched
        self._staying = {job for job in self._staying if job in watched or job[1] in inputs.jobs}
        self._since_s = {
            job: since_s
            for job, since_s in (dict.fromkeys(watched, now_s) | self._since_s).items()
            if (watched[job].category is Category.CONVERGED if job in watched else job[1] in inputs.jobs)
        }
        marked = {job: replace(watched[job], marked_s=s) for job, s in self._since_s.items() if job in watched}
        watched |= marked
        moves = [*workers.reallocations(), *workers.rebalanced(now_s)]
        self._staying |= workers.staying
        return moves


class _Workers:
    """The jobs that report progress, on their nodes; `staying` are those that algorithm 4 decides to leave there."""

    def __init__(self, board: Board, inputs: MoveInputs, staying: Collection[Job]) -> None:
        self._board, self._inputs, self.staying = board, inputs, set[Job]()
        training = [pod for pod in board.running if pod.identity in inputs.categories]
        self._pods = {board.job_of(pod): pod for pod in training}
        self.watched = {}
        for job, pod in self._pods.items():
            worker, by = board.node_arrays.index[pod.node], inputs.moved_by(pod)
            self.watched[job] = TrackedJob(
                pod.uid,
                worker,
                inputs.categories[pod.identity],
                migrated=Algorithm.REALLOCATE in by or job in staying,
                rebalanced=Algorithm.REBALANCE in by,
            )

    def reallocations(self) -> Iterable[PlannedMove]:
        """Algorithm 4, for each converged job beside one that still learns."""
        board, jobs = self._board, self.watched.values()
        busy, totals = with_learners(jobs), np.array(scores(jobs, len(board.node_arrays.nodes)))
        used = board.cores(board.node_arrays.allocatable - board.free.free).tolist()
        best_of: dict[Requirements, tuple[int, float]] = {}
        for job, watched in self.watched.items():
            pod = self._pods[job]
            if not asks_to_move(watched, busy) or not pod.checkpointable:
                continue
            if refusal := board.refusal(pod):
                yield PlannedMove(pod, "", refusal)
                continue
            needed = self._inputs.replacement_of(pod)
            if needed not in best_of:  # the best node besides its own is the same for equal requirements
                candidate_nodes = np.where(board.free.pods_that_fit(needed) > 0, totals, np.inf)
                best = least_loaded(candidate_nodes.tolist(), used)
                best_of[needed] = best, candidate_nodes[best]
            (worker, there), here = best_of[needed], totals[watched.worker]
            if destination(0, [here, there], [used[watched.worker], used[worker]]):
                text = f"converged, beside jobs that learn; S is {there:g} there and {here:g} here"
                yield PlannedMove(pod, board.name(worker), text)
            elif there < np.inf:  # if no node has capacity for it, nothing is decided yet
                self.staying.add(job)

    def rebalanced(self, now_s: float) -> Iterable[PlannedMove]:
        """Algorithm 5, on the nodes that hold a training job or could take a movable one."""
        if not self.watched or not settled(self.watched.values()):
            return
        board = self._board
        workers = {watched.worker for watched in self.watched.values()}
        replacement_of = self._inputs.replacement_of
        for requirements in {replacement_of(pod) for pod in self._pods.values() if pod.checkpointable}:
            workers.update(np.flatnonzero(board.free.pods_that_fit(requirements)).tolist())
        numbers = {worker: number for number, worker in enumerate(sorted(workers))}
        by_number = {number: worker for worker, number in numbers.items()}
        held = Counter(watched.worker for watched in self.watched.values())
        jobs = []
        for job, watched in self.watched.items():
            # algorithm 5 does not exclude the only job of a worker, but a move would leave that one idle instead
            stays = watched.rebalanced or not self._pods[job].checkpointable or held[watched.worker] == 1
            jobs.append(replace(watched, worker=numbers[watched.worker], rebalanced=stays))
        by_uid = {pod.uid: pod for pod in self._pods.values()}
        free = board.free.copy()
        for move in rebalance(jobs, len(numbers), now_s):
            pod, worker = by_uid[move.name], by_number[move.worker]
            needed = replacement_of(pod)
            if refusal := board.refusal(pod):
                yield PlannedMove(pod, "", refusal, Algorithm.REBALANCE)
            elif not free.pods_that_fit(needed)[worker]:
                yield PlannedMove(pod, "", f"{board.name(worker)} has no room for it", Algorithm.REBALANCE)
            else:
                free.take(board.name(worker), needed.needs)
                yield PlannedMove(pod, board.name(worker), move.reason, Algorithm.REBALANCE)
