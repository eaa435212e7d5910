"""Plans moves of training pods by SpeCon's algorithms 4 and 5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from extender.gangs.member import Member, NodeCapacity, Requirements
from extender.moves.board import Board, Job, MoveInputs, PlannedMove
from extender.moves.job import Algorithm
from recommender.contention import specon
from recommender.contention.specon import TrackedJob
from recommender.growth import Category


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
        self._board, self.staying = board, set[Job]()
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
        busy, totals = specon.with_learners(jobs), np.array(specon.scores(jobs, len(board.node_arrays.nodes)))
        used = board.cores(board.node_arrays.allocatable - board.free.free).tolist()
        best_of: dict[Requirements, tuple[int, float]] = {}
        for job, watched in self.watched.items():
            pod = self._pods[job]
            if not specon.asks_to_move(watched, busy) or not pod.checkpointable:
                continue
            if refusal := board.refusal(pod):
                yield PlannedMove(pod, "", refusal)
                continue
            if pod.requirements not in best_of:  # the best node besides its own is the same for equal requirements
                candidate_nodes = np.where(board.free.pods_that_fit(pod.requirements) > 0, totals, np.inf)
                best = specon.least_loaded(candidate_nodes.tolist(), used)
                best_of[pod.requirements] = best, candidate_nodes[best]
            (worker, there), here = best_of[pod.requirements], totals[watched.worker]
            if specon.destination(0, [here, there], [used[watched.worker], used[worker]]):
                text = f"converged, beside jobs that learn; S is {there:g} there and {here:g} here"
                yield PlannedMove(pod, board.name(worker), text)
            elif there < np.inf:  # if no node has capacity for it, nothing is decided yet
                self.staying.add(job)

    def rebalanced(self, now_s: float) -> Iterable[PlannedMove]:
        """Algorithm 5, on the nodes that hold a training job or could take a movable one."""
        if not self.watched or not specon.settled(self.watched.values()):
            return
        board = self._board
        workers = {watched.worker for watched in self.watched.values()}
        for requirements in {pod.requirements for pod in self._pods.values() if pod.checkpointable}:
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
        for move in specon.rebalance(jobs, len(numbers), now_s):
            pod, worker = by_uid[move.name], by_number[move.worker]
            if refusal := board.refusal(pod):
                yield PlannedMove(pod, "", refusal, Algorithm.REBALANCE)
            elif not free.pods_that_fit(pod.requirements)[worker]:
                yield PlannedMove(pod, "", f"{board.name(worker)} has no room for it", Algorithm.REBALANCE)
            else:
                free.take(board.name(worker), pod.requirements.needs)
                yield PlannedMove(pod, board.name(worker), move.reason, Algorithm.REBALANCE)
