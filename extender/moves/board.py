"""What every policy of moves looks at: training jobs on their nodes, what is free there, and who stays whatever is won.

A node is a worker for a pod that may run there and finds room there now, by what pods request. Jobs are known by owner
and completion index, so that what is known of one outlives its pods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from extender.gangs.member import Member, NodeCapacity
from extender.gangs.plan import Floats, FreeCapacity, NodeArrays
from extender.moves.job import Algorithm, MovingJob
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.sharing import Stage
from recommender.growth import Category

CPU = "cpu"

Job = tuple[str, str, str]
"""Namespace, owner's UID (the pod's own where it has none) and completion index."""


class PlannedMove(NamedTuple):
    """A pod that shall go to another node; `node` is empty where one would, and `text` says why none is planned.

    `done_core_s` is the CPU time that its job has used, with what its earlier pods did; NaN where nobody needs it.
    """

    pod: Member
    node: str
    text: str
    algorithm: Algorithm = Algorithm.REALLOCATE
    done_core_s: float = math.nan


class Rate(NamedTuple):
    """How much CPU a pod has used on average since it started, unix seconds."""

    cpu_cores: float
    since_s: float


@dataclass(frozen=True, slots=True)
class MoveInputs:
    """What profiles and Jobs tell.

    Attributes
    ----------
    categories
        By pod UID; pods without one tell nothing of their progress.
    rates
        By pod UID.
    classes
        What a run of a workload class takes from start to end.
    jobs
        By UID.
    """

    categories: Mapping[str, Category] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)
    classes: Mapping[ObjectKey, Sequence[Stage]] = field(default_factory=dict)
    jobs: Mapping[str, MovingJob] = field(default_factory=dict)

    def job_of(self, pod: Member) -> MovingJob | None:
        """Its Job; None where none owns it."""
        return self.jobs.get(pod.owner.uid) if pod.owner is not None else None

    def moved_by(self, pod: Member) -> Collection[Algorithm]:
        """The algorithms that have moved the job of a pod."""
        job = self.job_of(pod)
        records = job.records if job is not None else ()
        return {each.algorithm for each in records if each.index == pod.completion_index and each.counts}


class Planner(Protocol):
    """A policy of moves."""

    def plan(
        self, pods: Collection[Member], places: Iterable[NodeCapacity], known: MoveInputs, now_s: float
    ) -> Sequence[PlannedMove]:
        """The moves that it would make now; `pods` are all of the cluster, with what is reserved for them."""


class Board:
    """All pods on their nodes."""

    def __init__(self, pods: Collection[Member], places: Iterable[NodeCapacity]) -> None:
        self.nodes = NodeArrays(places)
        self.free = FreeCapacity(self.nodes)
        for pod in pods:
            if not pod.finished:
                self.free.take(pod.node or pod.reserved_node, pod.requirements.needs)
        self._group = Counter(
            (pod.key.namespace, pod.membership.name) for pod in pods if pod.alive and pod.membership.name
        )
        self.running = [pod for pod in pods if pod.alive and pod.node in self.nodes.index]

    def refusal(self, pod: Member) -> str:
        """Why a pod is not to be moved, wherever; empty where it may."""
        others = self._group[pod.key.namespace, pod.membership.name] - 1
        if pod.membership.name and others > 0:
            return f"it is one of a group of {others + 1}, which is never moved in part"
        if pod.owner is None:
            return "nothing would make it again"
        return ""

    def job_of(self, pod: Member) -> Job:
        if pod.owner is None:
            return pod.key.namespace, pod.uid, ""
        alone = self._group[pod.key.namespace, pod.membership.name] == 1
        return pod.key.namespace, pod.owner.uid, pod.completion_index or ("" if alone else pod.uid)

    def requested_cores(self) -> Floats:
        """float64 (n,): what pods request of the CPU of each node."""
        return self.allocatable_cores() - self._of_cpu(self.free.free)

    def allocatable_cores(self) -> Floats:
        """float64 (n,): the CPU of each node."""
        return self._of_cpu(self.nodes.allocatable)

    def _of_cpu(self, amounts: Floats) -> Floats:
        cpu = self.nodes.resources.get(CPU)
        row: Floats = amounts[cpu] if cpu is not None else amounts[:0].sum(axis=0)
        return row

    def name(self, worker: int) -> str:
        return self.nodes.places[worker].node.name
