"""A pod as the extender needs it: what it asks for, to whom it belongs, and what it says of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.pods.curves import Curve
from extender.pods.gpus import NO_GPU, NO_GPUS, GpuOffer, GpuRequest

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes), NaN where absent."""

PREFIX = "phasewise.dev/"

WEIGHTS_ANNOTATION = f"{PREFIX}weights"
"""Weights of scorers for this pod: `complement=3,specon=1`."""

PLACEMENT_ANNOTATION = f"{PREFIX}placement"
"""`pack` or `spread`: whether the pods of its job want to be together or apart."""

DATA_ANNOTATION = f"{PREFIX}data"
"""The data sets it reads: `imagenet,coco`."""

SIZE_ANNOTATION = f"{PREFIX}size"
"""Its T-shirt size: `2-V100`."""

EXPLAIN_ANNOTATION = f"{PREFIX}explain"
"""`event`: an event on the pod shall say why it went where it went."""


class Container(NamedTuple):
    """One of `spec.containers`; NaN where it asks for nothing or has no limit."""

    name: str
    requests: Pair
    limits: Pair


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, asked about or seen by the watch.

    Attributes
    ----------
    node
        Where it is bound; empty while it is not.
    finished
        It runs no more and never will: it needs nothing.
    job
        What pods of one job have in common; empty for a pod without a job.
    workload
        Its workload class, by which its history is found.
    requests
        What the scheduler counts for it: containers, sidecars, init containers and overhead; 0 where it asks for none.
    gpus, gpu_type
        How many it asks for, and of which kind (`V100`) where that can be told.
    words
        Its annotations below `phasewise.dev/`.
    ours
        It names our scheduler, or carries a label or annotation below `phasewise.dev/`.
    started_s
        When its kubelet took it on, unix seconds; NaN before that.
    refused_s
        Since when no node is found for it, unix seconds, if it was us who refused the last ones; else NaN.
    refusal
        What the scheduler says of its last attempt in vain; empty while there was none.
    priority, preempts
        As in its spec; whether it may push out pods of lower priority.
    of_our_scheduler
        Its scheduler is one of ours, whatever else it says.
    extended, gpu
        What it requests of extended resources by name, and of GPUs.
    version
        Its resourceVersion while it waits; empty once it is bound, and no part of a comparison.
    """

    namespace: str
    name: str
    uid: str
    node: str
    finished: bool
    job: str
    workload: str
    requests: Pair
    containers: tuple[Container, ...]
    gpus: float
    gpu_type: str
    words: Mapping[str, str]
    ours: bool
    started_s: float = math.nan
    refused_since_s: float = math.nan
    refusal: str = ""
    priority: int = 0
    may_preempt: bool = True
    of_our_scheduler: bool = False
    version: str = field(default="", compare=False)
    extended: Mapping[str, float] = field(default_factory=dict)
    gpu: GpuRequest = NO_GPU

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def bound_to(self, node: str) -> Pod:
        """The same pod on its node, before its kubelet has said anything. By `replace` it would take twice as long."""
        return Pod(
            self.namespace, self.name, self.uid, node, self.finished, self.job, self.workload, self.requests,
            self.containers, self.gpus, self.gpu_type, self.words, self.ours, self.started_s,
            priority=self.priority, of_our_scheduler=self.of_our_scheduler, extended=self.extended, gpu=self.gpu,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    `allocatable` in (cpu_cores, memory_bytes), `data` the share of each data set that lies on it, `extended` what it
    has of extended resources.
    """

    name: str
    allocatable: Pair
    data: Mapping[str, float]
    extended: Mapping[str, float] = field(default_factory=dict)
    gpus: GpuOffer = NO_GPUS


@dataclass(frozen=True, slots=True)
class Profile:
    """What a PhaseProfile says that matters here.

    Attributes
    ----------
    workload
        The workload class it is of; empty for the profile of a VPA.
    curves
        Container name -> demand of its class since the start; containers without one are left out.
    forecasts
        Container name -> what one that runs is expected to need next.
    categories
        Pod uid -> number of its category in `CATEGORIES`; None when none was told.
    """

    namespace: str
    name: str
    workload: str
    curves: Mapping[str, Curve]
    forecasts: Mapping[str, Curve]
    categories: Mapping[str, int | None]


CATEGORIES = ("progressing", "watching", "converged")
"""SpeCon's PC, WC and CC, by number."""


GANG_LABEL = f"{PREFIX}gang"
"""Names the gang within its namespace."""

SIZE = f"{PREFIX}gang-size"
"""Label or annotation: how many pods it takes."""

GROUPS = (
    (GANG_LABEL, SIZE),
    ("jobset.sigs.k8s.io/jobset-name", ""),
    ("training.kubeflow.org/job-name", ""),
    ("volcano.sh/job-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.x-k8s.io/pod-group", ""),
    ("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
    ("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    ("batch.kubernetes.io/job-name", ""),
)
"""(label or annotation that names a group, the one that tells its size), the widest first. Ours, JobSet, Kubeflow,
Volcano, Coscheduling (now and as it was), Kueue, and a plain Job. `phasewise.dev/gang-size` tells the size of any."""


def group_of(words: Mapping[str, str]) -> tuple[str, str]:
    """(name, size) of the group that a pod's labels and annotations tell of; empty where they do not."""
    for named, sized in GROUPS:
        if name := words.get(named):
            return f"{named}={name}", words.get(SIZE) or words.get(sized, "")
    return "", words.get(SIZE, "")
