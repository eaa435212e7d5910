"""A plan in a large cluster, as the controller makes it: CPU time, and memory of the process."""

from __future__ import annotations

import gc
import random
import time
from typing import Any, NamedTuple

import psutil

from extender.gangs.member import Member, NodeCapacity, read_member, read_node_capacity
from extender.moves.board import MoveInputs, Rate
from extender.moves.job import MovingJob
from extender.moves.phasewise import PhasewisePlanner
from extender.moves.specon import SpeConPlanner
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.sharing import stages_of
from recommender.growth import Category

MIB = 1 << 20
ROUNDS = 7
TRAINING = 0.5
"""Share of the pods that report training progress."""


POLICIES = {"specon": SpeConPlanner, "phasewise": PhasewisePlanner}

RUN = stages_of(15.0, [4.0 if 40 < number < 200 else 0.5 for number in range(240)])
"""Forecast of every class: an hour, most of it on four cores."""


class Planned(NamedTuple):
    """Plans of one policy: CPU seconds of each round, MiB of the whole process, and number of moves."""

    policy: str
    nodes: int
    pods: int
    rounds_s: tuple[float, ...]
    resident_mib: float
    moves: int


def measure(policy: str, nodes: int, pods: int, seed: int) -> Planned:
    """Plan moves of pods that belong to a Job each; half train, a third of these in each category."""
    chance = random.Random(seed)  # noqa: S311  # places pods
    places = [_place(number) for number in range(nodes)]
    members = [_member(number, f"node-{chance.randrange(nodes)}") for number in range(pods)]
    words = list(Category)
    categories = {pod.identity: words[chance.randrange(3)] for pod in members if chance.random() < TRAINING}
    keys = (ObjectKey(f"team-{number % 100}", f"training-{number}") for number in range(pods))
    jobs = {f"job-{n}": MovingJob(key, f"job-{n}", "1", key.name, "", False) for n, key in enumerate(keys)}
    rates = {pod: Rate(1.0, -3600.0 * chance.random()) for pod in categories}
    known = MoveInputs(categories, rates, {job.key: RUN for job in jobs.values()}, jobs)
    gc.collect()
    rounds_s, moves, planner = [], 0, POLICIES[policy]()
    for number in range(ROUNDS):
        began_s = time.process_time()
        moves = len(planner.plan(members, places, known, 30.0 * number))
        rounds_s.append(time.process_time() - began_s)
    resident_mib = psutil.Process().memory_info().rss / MIB
    return Planned(policy, nodes, pods, tuple(rounds_s), resident_mib, moves)


def _place(number: int) -> NodeCapacity:
    raw: dict[str, Any] = {
        "metadata": {"name": f"node-{number}", "labels": {"kubernetes.io/hostname": f"node-{number}"}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return read_node_capacity(raw)


def _member(number: int, node: str) -> Member:
    resources = {"requests": {"cpu": str(1 + number % 4), "memory": f"{2 + number % 6}Gi"}}
    owner = {"kind": "Job", "name": f"training-{number}", "uid": f"job-{number}", "controller": True}
    return read_member(
        {
            "metadata": {
                "name": f"training-{number}-x7k2p",
                "namespace": f"team-{number % 100}",
                "uid": f"pod-{number}",
                "labels": {"batch.kubernetes.io/job-name": f"training-{number}"},
                "annotations": {"phasewise.dev/checkpointable": "true", "phasewise.dev/gang-node": node},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running"},
        }
    )
