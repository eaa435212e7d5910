"""Plans moves of training pods that let jobs end sooner, by more than the move costs them.

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
from extender.moves.board import CPU, Board, MoveInputs, PlannedMove
from extender.moves.job import Algorithm, MoveRecord, MovingJob
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.phasewise import ForecastJob, MoveOptions, moves
from recommender.contention.sharing import RunsOfClass, Stage

MIN_COST_S = 1.0  # lower bound of the cost of a move: no pod restarts faster
MIN_SHARED_CORES = 0.05  # even on a node that is fully requested, some CPU is idle at times


class RunningJob(NamedTuple):
    """A running job: its pod, CPU time used (earlier pods included), stages left, and its moves by this planner."""

    pod: Member
    done_core_s: float
    left: Sequence[Stage]
    moves: Sequence[MoveRecord]


@dataclass(frozen=True, slots=True)
class PhasewisePlanner:
    """Plans by when jobs will end, see `recommender.contention.phasewise`, with `cost_s` until the cost of a move has
    been measured."""

    options: MoveOptions = field(default_factory=MoveOptions)

    def plan(
        self, pods: Collection[Member], nodes: Iterable[NodeCapacity], inputs: MoveInputs, now_s: float
    ) -> list[PlannedMove]:
        """The best moves in order, each planned on top of those before it."""
        board = Board(pods, nodes)
        jobs = {job.pod.uid: job for pod in board.running if (job := running_job(pod, inputs, now_s)) is not None}
        options = replace(self.options, cost_s=cost_s(inputs.jobs.values(), self.options.cost_s))
        shared = _sharing(board, jobs.values())
        planned = moves(shared, _shared_cores(board, jobs.values()), now_s, options, ordered=False)
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


def _sharing(board: Board, jobs: Iterable[RunningJob]) -> list[ForecastJob]:
    candidate_nodes: dict[Requirements, frozenset[int]] = {}
    shared = []
    for job in jobs:
        pod = job.pod
        movable = pod.checkpointable and not board.refusal(pod)
        if movable and pod.requirements not in candidate_nodes:
            fits = board.free.pods_that_fit(pod.requirements)
            candidate_nodes[pod.requirements] = frozenset(np.flatnonzero(fits).tolist())
        shared.append(
            ForecastJob(
                pod.uid,
                board.node_arrays.index[pod.node],
                job.left,
                due_s=-np.inf,
                moves=len(job.moves),
                moved_s=max((each.since_s for each in job.moves), default=-np.inf),
                movable=movable,
                open_to=candidate_nodes[pod.requirements] if movable else frozenset(),
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
