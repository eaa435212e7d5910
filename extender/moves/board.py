"""Inputs of every move planner: training jobs on their nodes, free capacity, and pods that may not be moved.

A node is a candidate for a pod that is allowed there and whose requests fit there now. Jobs are identified by owner and
completion index, which outlive their pods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from extender.gangs.affinity import VOLUMES
from extender.gangs.member import Member, NodeCapacity, Requirements
from extender.gangs.plan import Floats, FreeCapacity, NodeArrays
from extender.moves.job import Algorithm, MovingJob
from extender.moves.replacement import Controller, Targets, replacement
from extender.pods.footprint import PodKey
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.sharing import Stage
from recommender.progress.growth import Category

CPU = "cpu"
Job = tuple[str, str, str]  # namespace, UID of the owner (of the pod itself without one) and completion index


class Move(NamedTuple):
    """A job, the worker it moves to, and the reason: what an algorithm decides on jobs and workers alone."""

    name: str
    worker: int
    reason: str


class PlannedMove(NamedTuple):
    """A pod to be moved to `node`; `text` says why, or why not if `node` is empty. `done_core_s`: CPU time that its job
    has used, earlier pods included; NaN if the planner does not need it."""

    pod: Member
    node: str
    text: str
    algorithm: Algorithm = Algorithm.REALLOCATE
    done_core_s: float = math.nan


class Rate(NamedTuple):
    """Mean CPU use of a pod since its start, unix seconds."""

    cpu_cores: float
    since_s: float


@dataclass(frozen=True, slots=True)
class MoveInputs:
    """What PhaseProfiles and Jobs say."""

    categories: Mapping[PodKey, Category] = field(default_factory=dict)  # of pods that report progress
    rates: Mapping[PodKey, Rate] = field(default_factory=dict)  # of pods
    # stages of a whole run, by workload class
    classes: Mapping[ObjectKey, Sequence[Stage]] = field(default_factory=dict)
    jobs: Mapping[str, MovingJob] = field(default_factory=dict)  # by UID
    # what VPAs set in new pods, by namespace and controller
    targets: Mapping[tuple[str, Controller], Targets] = field(default_factory=dict)

    def job_of(self, pod: Member) -> MovingJob | None:
        """The Job that owns a pod; None if there is none."""
        return self.jobs.get(pod.owner.uid) if pod.owner is not None else None

    def replacement_of(self, pod: Member) -> Requirements:
        """What the pod that replaces a moved one will require."""
        job = self.job_of(pod)
        if job is None:
            return pod.requirements
        targets = (self.targets.get((job.key.namespace, controller), ()) for controller in job.controllers)
        return replacement(pod.requirements, job.template, next(filter(None, targets), ()), pod.admitted_by_vpa)

    def moved_by(self, pod: Member) -> Collection[Algorithm]:
        """The algorithms that have moved the job of a pod."""
        job = self.job_of(pod)
        records = job.records if job is not None else ()
        return {each.algorithm for each in records if each.index == pod.completion_index and each.counts}


class Planner(Protocol):
    """A policy that plans moves."""

    def plan(
        self, pods: Collection[Member], nodes: Iterable[NodeCapacity], inputs: MoveInputs, now_s: float
    ) -> Sequence[PlannedMove]:
        """The moves to make now; `pods` are all pods of the cluster, with their reservations."""


class Board:
    def __init__(self, pods: Collection[Member], nodes: Iterable[NodeCapacity]) -> None:
        self.node_arrays = NodeArrays(nodes)
        self.free = FreeCapacity(self.node_arrays)
        for pod in pods:
            if not pod.finished:
                self.free.take(pod.node or pod.reserved_node, pod.requirements.needs)
        self._group = Counter(
            (pod.key.namespace, pod.membership.name) for pod in pods if pod.alive and pod.membership.name
        )
        self.running = [pod for pod in pods if pod.alive and pod.node in self.node_arrays.index]

    def refusal(self, pod: Member) -> str:
        """Why a pod may not be moved to any node; empty if it may."""
        others = self._group[pod.key.namespace, pod.membership.name] - 1
        if pod.membership.name and others > 0:
            return f"it belongs to a group of {others + 1} pods, which is never moved in part"
        if pod.owner is None:
            return "it has no owner that would recreate it"
        if unchecked := [word for word in pod.requirements.constraints.unchecked if word != VOLUMES]:
            return f"only the scheduler knows which nodes suit its {', '.join(unchecked)}"
        return ""

    def job_of(self, pod: Member) -> Job:
        if pod.owner is None:
            return pod.key.namespace, pod.uid, ""
        alone = self._group[pod.key.namespace, pod.membership.name] == 1
        return pod.key.namespace, pod.owner.uid, pod.completion_index or ("" if alone else pod.uid)

    def cores(self, amounts: Floats) -> Floats:
        """(n,): the CPU cores of amounts by resource, (resources, n)."""
        cpu = self.node_arrays.resources.get(CPU)
        return np.zeros(amounts.shape[1]) if cpu is None else amounts[cpu].copy()

    def name(self, worker: int) -> str:
        return self.node_arrays.nodes[worker].node.name
