"""The training jobs of the bench on real nodes: what they are, when they come, and their Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from local_cluster import vpa_objects, workloads
from local_cluster.moving import SCHEDULER
from local_cluster.real_node.kubelet import LABEL
from local_cluster.real_node.node import RealNode
from local_cluster.real_node.training import with_host_python
from node_bench.interpreter import Interpreter

Json = dict[str, Any]


class Kind(NamedTuple):
    """A workload class: one of the recorder's PyTorch jobs, at a size."""

    workload: str
    scale: float


KINDS: Mapping[str, Kind] = {
    "small": Kind("rnn-torch", 0.15),
    "middle": Kind("lstm-torch", 0.6),
    "large": Kind("rnn-torch", 0.8),
}
"""Some 12, 30 and 55 CPU seconds, of which three import PyTorch."""

REQUEST = "100m"
"""What each declares: five fit on a node, and use all of it."""

GRACE_S = 60

SURVIVES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
"""An eviction is no failure of a Job."""


class Coming(NamedTuple):
    """A job: its name and class, which run of the recorder's plan it is, and when it comes, seconds."""

    name: str
    kind: str
    run: int
    at_s: float


def drawn(number: int, seed: int, within_s: float, prefix: str) -> list[Coming]:
    """As many of each class, in random order at random moments."""
    chance = np.random.default_rng(seed)
    kinds = chance.permutation([list(KINDS)[place % len(KINDS)] for place in range(number)])
    at_s = np.sort(chance.uniform(0.0, within_s, number))
    return [
        Coming(f"{prefix}-{kind}-{place}", str(kind), 1 + int(chance.integers(4)), float(at_s[place]))
        for place, kind in enumerate(kinds)
    ]


def training_pod(coming: Coming, node: RealNode, interpreter: Interpreter, longer: float, *options: str) -> Json:
    """A pod for one node that trains, with further options of `training.job`."""
    kind = KINDS[coming.kind]
    command = [
        interpreter.path, "-m", "training.job", "--class", kind.workload, "--run", str(coming.run),
        "--scale", str(longer * kind.scale), *options,
    ]  # fmt: skip
    return with_host_python(node.pod(coming.name, command, cpu=REQUEST, memory="64Mi"), interpreter.prefixes)


def job(
    coming: Coming, node: RealNode, interpreter: Interpreter, checkpoints: Path, longer: float = 1.0, *, moves: bool
) -> Json:
    """A Job that any of the real nodes may run, and that goes on elsewhere from where it was; it tells its loss."""
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
    return workloads.job(coming.name, {"metadata": metadata, "spec": spec}, podFailurePolicy=SURVIVES, backoffLimit=0)


def vpa(name: str, shares: str) -> Json:
    """The VPA of a Job: of its CPU alone, in place; `shares` is how it divides its node with the others, or empty."""
    policy = {"containerName": "*", "controlledResources": ["cpu"], "controlledValues": "RequestsOnly"}
    mode = "InPlaceOrRecreate" if shares else "Off"
    made = vpa_objects.vpa("Job", name, update_mode=mode, min_replicas=1, container_policy=policy)
    made["metadata"]["annotations"] = {"phasewise.dev/shares": shares} if shares else {}
    return made
