"""Training jobs on real nodes: classes, arrivals, and Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from local_cluster import autoscaling, workloads
from local_cluster.moving import SCHEDULER
from local_cluster.real_node.kubelet import LABEL
from local_cluster.real_node.node import RealNode
from local_cluster.real_node.training import with_host_python
from node_bench.interpreter import Interpreter

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
    """A pod for one node that runs `training.job` with further options."""
    kind = KINDS[coming.kind]
    command = [
        interpreter.path, "-m", "training.job", "--class", kind.workload, "--run", str(coming.run),
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
