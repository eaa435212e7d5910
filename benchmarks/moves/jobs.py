"""Training jobs for moves: classes, arrivals and objects on real nodes, and the cost of a plan in a large cluster."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.node.interpreter import Interpreter
from extender.gangs.member import Member, NodeCapacity, read_member, read_node_capacity
from extender.moves.board import MoveInputs, Rate
from extender.moves.job import MovingJob
from extender.moves.phasewise import PhasewisePlanner
from extender.moves.specon import SpeConPlanner
from recommender.cluster.objects.metadata import ObjectKey
from recommender.contention.sharing import stages_of
from recommender.progress.growth import Category
from tests.rig import autoscaling, workloads
from tests.rig.moving import SCHEDULER
from tests.rig.real_node.kubelet import LABEL
from tests.rig.real_node.node import RealNode
from tests.rig.real_node.training import with_host_python

Json = dict[str, Any]


class Kind(NamedTuple):
    """A workload class: one of the recorder's PyTorch jobs, scaled."""

    workload: str
    scale: float


KINDS: Mapping[str, Kind] = {
    "small": Kind("rnn-torch", 0.15),
    "middle": Kind("lstm-torch", 0.6),
    "large": Kind("rnn-torch", 0.8),
}
"""About 12, 30 and 55 CPU seconds, three of which import PyTorch."""

REQUEST = "100m"
"""CPU request of each job: five fit on a node, and would use all of it."""

GRACE_S = 60

ON_EVICTION = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
"""Pod failure policy: an eviction does not fail the Job."""


class Arrival(NamedTuple):
    """A job: name, class, run of the recorder's plan, and time of arrival in seconds."""

    name: str
    kind: str
    run: int
    at_s: float


def draw_arrivals(number: int, seed: int, within_s: float, prefix: str) -> list[Arrival]:
    chance = np.random.default_rng(seed)
    kinds = chance.permutation([list(KINDS)[place % len(KINDS)] for place in range(number)])
    at_s = np.sort(chance.uniform(0.0, within_s, number))
    return [
        Arrival(f"{prefix}-{kind}-{place}", str(kind), 1 + int(chance.integers(4)), float(at_s[place]))
        for place, kind in enumerate(kinds)
    ]


def training_pod(coming: Arrival, node: RealNode, interpreter: Interpreter, longer: float, *options: str) -> Json:
    """A pod for one node that runs `tests.jobs.job` with further options."""
    kind = KINDS[coming.kind]
    command = [
        interpreter.path, "-m", "tests.jobs.job", "--class", kind.workload, "--run", str(coming.run),
        "--scale", str(longer * kind.scale), *options,
    ]  # fmt: skip
    return with_host_python(node.pod(coming.name, command, cpu=REQUEST, memory="64Mi"), interpreter.prefixes)


def job(
    coming: Arrival, node: RealNode, interpreter: Interpreter, checkpoints: Path, longer: float = 1.0, *, moves: bool
) -> Json:
    """A Job for any real node that logs its loss, and resumes from its checkpoint on another node."""
    pod = training_pod(coming, node, interpreter, longer, "--checkpoint", f"/checkpoints/{coming.name}")
    spec = pod["spec"] | {"nodeSelector": {LABEL: "true"}, "terminationGracePeriodSeconds": GRACE_S}
    spec["volumes"] = [*spec["volumes"], {"name": "checkpoints", "hostPath": {"path": str(checkpoints)}}]
    (main,) = spec["containers"]
    main["volumeMounts"] = [*main["volumeMounts"], {"name": "checkpoints", "mountPath": "/checkpoints"}]
    annotations = {"phasewise.dev/progress-log": "true"}
    metadata: Json = {"labels": {"phasewise.dev/workload": coming.kind}, "annotations": annotations}
    if moves:
        spec |= {"schedulerName": SCHEDULER, "schedulingGates": [{"name": "phasewise.dev/gang"}]}
        annotations["phasewise.dev/checkpointable"] = "true"
    template = {"metadata": metadata, "spec": spec}
    return workloads.job(coming.name, template, podFailurePolicy=ON_EVICTION, backoffLimit=0)


def vpa(name: str, shares: str) -> Json:
    """The VPA of a Job, for CPU in place; `shares` names the policy that shares its node, or is empty."""
    policy = {"containerName": "*", "controlledResources": ["cpu"], "controlledValues": "RequestsOnly"}
    mode = "InPlaceOrRecreate" if shares else "Off"
    made = autoscaling.vpa("Job", name, update_mode=mode, min_replicas=1, container_policy=policy)
    made["metadata"]["annotations"] = {"phasewise.dev/shares": shares} if shares else {}
    return made


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
