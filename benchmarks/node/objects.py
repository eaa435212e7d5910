"""Jobs of the benchmark, drawn from a seed, and their Kubernetes objects: Jobs and VPAs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.node.interpreter import Interpreter
from tests.rig import autoscaling, workloads
from tests.rig.real_node.node import RealNode
from tests.rig.real_node.training import with_host_python

Json = dict[str, Any]

CLASS = "train"
"""Jobs are `train-001`, `train-002`, ...: runs of one class."""
DECLARED = {"cpu": "900m", "memory": "1200Mi"}
JOB_LABEL = "batch.kubernetes.io/job-name"
MAX_ATTEMPTS = 100
"""Backoff limit: a job that is killed or evicted starts again."""


def job_name(number: int) -> str:
    return f"{CLASS}-{number:03d}"


def job(node: RealNode, interpreter: Interpreter, number: int, plan: Plan) -> Json:
    command = [interpreter.path, "-m", "benchmarks.node.job", "--workload", interpreter.workload, *plan.arguments()]
    pod = node.pod("", command, cpu=DECLARED["cpu"], memory=DECLARED["memory"], restart="OnFailure")
    return workloads.job(job_name(number), with_host_python(pod, interpreter.prefixes), backoffLimit=MAX_ATTEMPTS)


def vpa(name: str, recommender: str | None) -> Json:
    policy = {"containerName": "*", "controlledValues": "RequestsOnly"}
    return autoscaling.vpa("Job", name, recommender=recommender, min_replicas=1, container_policy=policy)


EPOCHS = (3, 5)
VARIATION = 0.15
QUICK_SCALE = 0.25


@dataclass(frozen=True)
class Plan:
    """Parameters of one training job.

    `number`: Position in the queue, from 1.
    `size`: Rows of its data set relative to the average job; memory and work on the CPU follow.
    `pace`: Length of its waits (storage, accelerator) relative to the average job.
    `scale`: 1 for a job of about a minute; less shrinks data, work and waits.
    `waits`, `work`: Factors on the length of stages that wait, and of stages that compute, with the same data.
    """

    number: int
    seed: int
    size: float
    epochs: int
    pace: float
    scale: float = 1.0
    waits: int = 1
    work: int = 1

    def arguments(self) -> list[str]:
        sizes = {"seed": self.seed, "size": self.size, "epochs": self.epochs, "pace": self.pace, "scale": self.scale}
        sizes |= {"waits": self.waits, "work": self.work}
        return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def draw(count: int, seed: int, scale: float = 1.0, waits: int = 1, work: int = 1) -> list[Plan]:
    """The first `count` jobs of a batch, always the same for a seed; two epochs with a scale below 1 (trial runs)."""
    plans = []
    for number in range(1, count + 1):
        chance = np.random.default_rng([seed, number])
        size, pace = (round(float(factor), 3) for factor in chance.uniform(1 - VARIATION, 1 + VARIATION, 2))
        epochs = int(chance.integers(EPOCHS[0], EPOCHS[1] + 1))
        own = int(chance.integers(1, 2**20))
        plans.append(Plan(number, own, size, epochs if scale == 1.0 else 2, pace, scale, waits, work))
    return plans
