"""Which pods of training jobs would make jobs end sooner on another node, by more than the move costs them: plans.

A job takes part once runs of its class have come to an end: the class tells what a run takes, and the profile of the
pod how much of that it has used. All other pods have what they request of a node, and what they leave is shared. No job
may end later for a move of another than it would without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from extender.gangs.member import Member, NodeCapacity, Requirements
from extender.moves.board import CPU, Board, MoveInputs, PlannedMove
from extender.moves.job import Algorithm, MoveRecord, MovingJob
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.forecast import RunsOfClass
from recommender.contention.phasewise import MoveOptions, Sharing, moves
from recommender.contention.sharing import Stage

MIN_COST_S = 1.0
"""No pod ends and begins elsewhere in less."""

MIN_SHARED_CORES = 0.05
"""A node that others have asked for altogether still has its pauses to share."""


class RunningJob(NamedTuple):
    """A running job: its pod, the CPU time it has used with its earlier pods, what is left, and its moves by us."""

    pod: Member
    done_core_s: float
    left: Sequence[Stage]
    moves: Sequence[MoveRecord]


@dataclass(frozen=True, slots=True)
class PhasewisePlanner:
    """Plans by when jobs will end, see `recommender.contention.phasewise`.

    Attributes
    ----------
    options
        `cost_s` counts until moves have told what they cost here.
    """

    options: MoveOptions = field(default_factory=MoveOptions)

    def plan(
        self, pods: Collection[Member], places: Iterable[NodeCapacity], known: MoveInputs, now_s: float
    ) -> list[PlannedMove]:
        """The best moves one after the other, each counted on by the next."""
        board = Board(pods, places)
        jobs = {job.pod.uid: job for pod in board.running if (job := running_job(pod, known, now_s)) is not None}
        options = replace(self.options, cost_s=cost_s(known.jobs.values(), self.options.cost_s))
        shared = _sharing(board, jobs.values())
        planned = moves(shared, _shared_cores(board, jobs.values()), now_s, options, ordered=False)
        return [
            PlannedMove(job.pod, board.name(move.worker), move.reason, Algorithm.SOONER, job.done_core_s)
            for move in planned
            for job in (jobs[move.name],)
        ]


def running_job(pod: Member, known: MoveInputs, now_s: float) -> RunningJob | None:
    """What is known of the job of a pod; None where nothing tells what is left of it."""
    job = known.job_of(pod)
    rate = known.rates.get(pod.uid)
    run = known.classes.get(ObjectKey(job.key.namespace, job.workload)) if job is not None else None
    if job is None or rate is None or run is None:
        return None
    mine = [each for each in job.records if each.index == pod.completion_index and each.counts]
    before_core_s = max((each.done_core_s for each in mine if each.done_core_s >= 0.0), default=0.0)
    done_core_s = before_core_s + rate.cpu_cores * max(0.0, now_s - rate.since_s)
    left = RunsOfClass([run]).left(done_core_s, rate.cpu_cores)
    return RunningJob(pod, done_core_s, left, [each for each in mine if each.algorithm is Algorithm.SOONER])


def cost_s(jobs: Iterable[MovingJob], default_s: float) -> float:
    """What a move costs: how long moved jobs ran nowhere, in the middle of those that are known.

    Whoever owns a Job can write what it tells, so a namespace has one voice, its own median.
    """
    told: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        told[job.key.namespace] += (each.downtime_s for each in job.records if each.downtime_s >= 0.0)
    known = [median(downtime_s) for downtime_s in told.values() if downtime_s]
    return max(MIN_COST_S, median(known)) if known else default_s


def _sharing(board: Board, jobs: Iterable[RunningJob]) -> list[Sharing]:
    open_to: dict[Requirements, frozenset[int]] = {}
    shared = []
    for job in jobs:
        pod = job.pod
        movable = pod.checkpointable and not board.refusal(pod)
        if movable and pod.requirements not in open_to:
            open_to[pod.requirements] = frozenset(np.flatnonzero(board.free.pods_that_fit(pod.requirements)).tolist())
        shared.append(
            Sharing(
                pod.uid,
                board.nodes.index[pod.node],
                job.left,
                due_s=-np.inf,
                moves=len(job.moves),
                moved_s=max((each.since_s for each in job.moves), default=-np.inf),
                movable=movable,
                open_to=open_to[pod.requirements] if movable else frozenset(),
            )
        )
    return shared


def _shared_cores(board: Board, jobs: Iterable[RunningJob]) -> list[float]:
    """Of each node, what pods of which nothing is foreseen leave by their requests."""
    cores = board.allocatable_cores() - board.requested_cores()
    for job in jobs:
        cores[board.nodes.index[job.pod.node]] += dict(job.pod.requirements.needs).get(CPU, 0.0)
    shared: list[float] = np.maximum(cores, MIN_SHARED_CORES).tolist()
    return shared
