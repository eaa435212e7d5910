"""A plan on a large cluster, as the controller makes it: time, and memory of all it keeps."""

from __future__ import annotations

import gc
import random
import time
from typing import Any, NamedTuple

import psutil
from extender.moves.planner import Planner

from extender.gangs.member import Member, Place
from extender.gangs.reading import read_member, read_place
from recommender.growth import Category

MIB = 1 << 20
ROUNDS = 7
TRAINING = 0.5
"""Share of the pods that tell of their progress."""


class Planned(NamedTuple):
    """Of one size: CPU seconds of each round, MiB that the process takes in all, and how many moves there were."""

    nodes: int
    pods: int
    rounds_s: tuple[float, ...]
    resident_mib: float
    moves: int


def measure(nodes: int, pods: int, seed: int) -> Planned:
    """Ten pods a node, each of a Job of its own; half of them train, of which a third each is in one category."""
    chance = random.Random(seed)  # noqa: S311  # which pod is where
    places = [_place(number) for number in range(nodes)]
    members = [_member(number, f"node-{chance.randrange(nodes)}") for number in range(pods)]
    words = list(Category)
    categories = {pod.uid: words[chance.randrange(3)] for pod in members if chance.random() < TRAINING}
    gc.collect()
    rounds_s, moves, planner = [], 0, Planner()
    for number in range(ROUNDS):
        began_s = time.process_time()
        moves = len(planner.plan(members, places, categories, 30.0 * number))
        rounds_s.append(time.process_time() - began_s)
    resident_mib = psutil.Process().memory_info().rss / MIB
    return Planned(nodes, pods, tuple(rounds_s), resident_mib, moves)


def _place(number: int) -> Place:
    told: dict[str, Any] = {
        "metadata": {"name": f"node-{number}", "labels": {"kubernetes.io/hostname": f"node-{number}"}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return read_place(told)


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
