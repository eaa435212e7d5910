"""Which pods of training jobs SpeCon would move, and to which node: plans, performed elsewhere.

A node is a worker for a pod that may run there and finds room there now, by what pods request. Jobs are known by owner
and completion index, so that what is known of one outlives its pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from extender.gangs.capacity import FreeCapacity, NodeArrays
from extender.gangs.member import Ask, Member, Place
from extender.moves.record import Algorithm
from recommender.contention import specon
from recommender.contention.specon import Watched
from recommender.growth import Category

CPU = "cpu"

Job = tuple[str, str, str]
"""Namespace, owner's UID (the pod's own where it has none) and completion index."""

MovedBy = Callable[[Member], Collection[Algorithm]]
"""The algorithms that have moved the job of a pod, each of which does so once at most."""


def never_moved(_: Member) -> Collection[Algorithm]:
    return ()


class PlannedMove(NamedTuple):
    """A pod that shall go to another node; `node` is empty where one would, and `text` says why none is planned."""

    pod: Member
    node: str
    text: str
    algorithm: Algorithm = Algorithm.REALLOCATE


@dataclass(slots=True)
class Planner:
    """Keeps since when each job has been converged."""

    _since_s: dict[Job, float] = field(default_factory=dict)

    def plan(
        self,
        pods: Iterable[Member],
        places: Iterable[Place],
        categories: Mapping[str, Category],
        now_s: float,
        moved_by: MovedBy = never_moved,
    ) -> list[PlannedMove]:
        """All moves that SpeCon would make now, each of them as if it were the only one.

        Parameters
        ----------
        pods
            All of the cluster, with what is reserved for them.
        categories
            By pod UID; pods without one are no training jobs.
        """
        board = _Board(list(pods), NodeArrays(places), categories, moved_by)
        self._since_s = {
            job: self._since_s.get(job, now_s)
            for job, watched in board.watched.items()
            if watched.category is Category.CONVERGED
        }
        board.mark(self._since_s)
        return [*board.reallocated(), *board.rebalanced(now_s)]


class _Board:
    """The training jobs that run, on their nodes."""

    def __init__(
        self, pods: Collection[Member], nodes: NodeArrays, categories: Mapping[str, Category], moved_by: MovedBy
    ) -> None:
        self._nodes, self._free = nodes, FreeCapacity(nodes)
        for pod in pods:
            if not pod.finished:
                self._free.take(pod.node or pod.reserved_node, pod.ask.needs)
        self._group = Counter((pod.key.namespace, pod.kind.name) for pod in pods if pod.alive and pod.kind.name)
        training = [pod for pod in pods if pod.alive and pod.node in nodes.index and pod.uid in categories]
        self._pods = {self._job_of(pod): pod for pod in training}
        self.watched = {}
        for job, pod in self._pods.items():
            worker, by = nodes.index[pod.node], moved_by(pod)
            self.watched[job] = Watched(
                pod.uid,
                worker,
                categories[pod.uid],
                migrated=Algorithm.REALLOCATE in by,
                rebalanced=Algorithm.REBALANCE in by,
            )

    def mark(self, since_s: Mapping[Job, float]) -> None:
        """Those that are converged, since when."""
        for job, marked_s in since_s.items():
            self.watched[job] = replace(self.watched[job], marked_s=marked_s)

    def reallocated(self) -> Iterable[PlannedMove]:
        """Algorithm 4 for each job that is in the way of one that learns."""
        jobs = self.watched.values()
        busy, totals = specon.with_learners(jobs), np.array(specon.scores(jobs, len(self._nodes.places)))
        used, best_of = self._used_cores(), dict[Ask, tuple[int, float]]()
        for job, watched in self.watched.items():
            pod = self._pods[job]
            if not specon.asks_to_move(watched, busy) or not pod.checkpointable:
                continue
            if refusal := self._refusal(pod):
                yield PlannedMove(pod, "", refusal)
                continue
            if pod.ask not in best_of:  # pods that ask for the same have the same choice besides their own node
                open_to = np.where(self._free.fitting(pod.ask) > 0, totals, np.inf)
                best = specon.least_loaded(open_to.tolist(), used)
                best_of[pod.ask] = best, open_to[best]
            (worker, there), here = best_of[pod.ask], totals[watched.worker]
            if specon.destination(0, [here, there], [used[watched.worker], used[worker]]):
                text = f"converged, beside jobs that learn; S is {there:g} there and {here:g} here"
                yield PlannedMove(pod, self._name(worker), text)

    def rebalanced(self, now_s: float) -> Iterable[PlannedMove]:
        """Algorithm 5 on the nodes that hold a training job, or could take one that may be moved."""
        if not self.watched or not specon.settled(self.watched.values()):
            return
        asks = {pod.ask for pod in self._pods.values() if pod.checkpointable}
        workers = {watched.worker for watched in self.watched.values()}
        workers.update(int(worker) for ask in asks for worker in np.flatnonzero(self._free.fitting(ask)))
        numbers = {worker: number for number, worker in enumerate(sorted(workers))}
        by_number = {number: worker for worker, number in numbers.items()}
        jobs = [
            replace(
                watched,
                worker=numbers[watched.worker],
                rebalanced=watched.rebalanced or not self._pods[job].checkpointable,
            )
            for job, watched in self.watched.items()
        ]
        by_uid = {pod.uid: pod for pod in self._pods.values()}
        free = self._free.copy()
        for move in specon.rebalance(jobs, len(numbers), now_s):
            pod, worker = by_uid[move.name], by_number[move.worker]
            if refusal := self._refusal(pod):
                yield PlannedMove(pod, "", refusal, Algorithm.REBALANCE)
            elif not free.fitting(pod.ask)[worker]:
                yield PlannedMove(pod, "", f"{self._name(worker)} has no room for it", Algorithm.REBALANCE)
            else:
                free.take(self._name(worker), pod.ask.needs)
                yield PlannedMove(pod, self._name(worker), move.reason, Algorithm.REBALANCE)

    def _refusal(self, pod: Member) -> str:
        """Why a pod is not to be moved, wherever; empty where it may."""
        others = self._group[pod.key.namespace, pod.kind.name] - 1
        if pod.kind.name and others > 0:
            return f"it is one of a group of {others + 1}, which is never moved in part"
        if pod.owner is None:
            return "nothing would make it again"
        return ""

    def _job_of(self, pod: Member) -> Job:
        if pod.owner is None:
            return pod.key.namespace, pod.uid, ""
        alone = self._group[pod.key.namespace, pod.kind.name] == 1
        return pod.key.namespace, pod.owner.uid, pod.completion_index or ("" if alone else pod.uid)

    def _used_cores(self) -> list[float]:
        cpu = self._nodes.resources.get(CPU)
        if cpu is None:
            return [0.0] * len(self._nodes.places)
        used: list[float] = (self._nodes.allocatable[cpu] - self._free.free[cpu]).tolist()
        return used

    def _name(self, worker: int) -> str:
        return self._nodes.places[worker].node.name
