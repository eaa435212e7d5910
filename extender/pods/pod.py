"""Pods, nodes and PhaseProfiles as the extender needs them, and the labels and annotations that it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from extender.pods.curves import Curve
from extender.pods.gpus import NO_GPU, NO_GPUS, GpuOffer, GpuRequest

Pair = tuple[float, float]  # (cpu_cores, memory_bytes), NaN where absent
PREFIX = "phasewise.dev/"
WEIGHTS_ANNOTATION = f"{PREFIX}weights"  # scorer weights for this pod: `complement=3,specon=1`

PLACEMENT_ANNOTATION = f"{PREFIX}placement"
"""`pack` or `spread`: whether to place the pods of its job together or apart."""

DATA_ANNOTATION = f"{PREFIX}data"  # the data sets it reads: `imagenet,coco`
SIZE_ANNOTATION = f"{PREFIX}size"  # its T-shirt size: `2-V100`
EXPLAIN_ANNOTATION = f"{PREFIX}explain"  # `event`: write an event on the pod that explains its placement


class Container(NamedTuple):
    """One of `spec.containers`; NaN for a missing request or limit."""

    name: str
    requests: Pair
    limits: Pair


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, from a request of the scheduler or from the watch."""

    namespace: str
    name: str
    uid: str
    node: str  # empty until the pod is bound
    finished: bool  # whether it has succeeded or failed
    job: str  # identifies its job, by group label or controller; empty without one
    workload: str  # workload class, the key of its history
    requests: Pair  # as counted by the scheduler, with sidecars, init containers and overhead; 0 if there are none
    containers: tuple[Container, ...]
    # gpus, gpu_type: number of GPUs requested, and their kind (`V100`) if known
    gpus: float
    gpu_type: str
    annotations: Mapping[str, str]  # those below `phasewise.dev/`
    ours: bool  # whether it names our scheduler or has a label or annotation below `phasewise.dev/`
    started_s: float = math.nan  # when its kubelet accepted it, unix seconds; NaN before that
    # since when it is unschedulable, unix seconds, if we refused nodes in the last attempt; else NaN
    refused_since_s: float = math.nan
    refusal: str = ""  # the scheduler's message on the last failed attempt; empty for none
    # the node where the scheduler has made room for it by preemption, while its victims end; empty for none
    nominated_node: str = ""
    # priority, may_preempt: as in its spec; whether it may preempt pods of lower priority
    priority: int = 0
    may_preempt: bool = True
    of_our_scheduler: bool = False  # whether its spec names one of our schedulers
    # resourceVersion while the pod is pending; empty once it is bound. Not compared
    version: str = field(default="", compare=False)
    # extended, gpu: requests of extended resources by name, and of GPUs
    extended: Mapping[str, float] = field(default_factory=dict)
    gpu: GpuRequest = NO_GPU

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def bound_to(self, node: str) -> Pod:
        """The pod, newly bound to a node."""
        return replace(self, node=node, refused_since_s=math.nan, refusal="", nominated_node="", version="")


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `data` holds the share of each data set stored on it, `extended` its allocatable extended resources."""

    name: str
    allocatable: Pair
    data: Mapping[str, float]
    extended: Mapping[str, float] = field(default_factory=dict)
    gpus: GpuOffer = NO_GPUS


HISTORY, FORECAST = "history", "forecast"


@dataclass(frozen=True, slots=True, eq=False)
class DemandCurves:
    """Learned demand by container, possibly none, and its source."""

    curves: Mapping[str, Curve]
    source: str


NO_CURVES = DemandCurves({}, "")


@dataclass(frozen=True, slots=True)
class Profile:
    namespace: str
    name: str
    workload: str  # workload class; empty for the profile of a VPA
    demand: DemandCurves  # of its class since the start
    forecast: DemandCurves  # of running containers
    categories: Mapping[str, int | None]  # Pod UID -> index of its category in `CATEGORIES`; None if unknown


CATEGORIES = ("progressing", "watching", "converged")  # SpeCon's PC, WC and CC
GANG_LABEL = f"{PREFIX}gang"  # label: name of the gang, unique within the namespace
GANG_SIZE = f"{PREFIX}gang-size"  # label or annotation: number of pods of the gang

GROUPS = (
    (GANG_LABEL, GANG_SIZE),
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
"""(label or annotation with the name of a group, that with its size), the widest group first: ours, JobSet, Kubeflow,
Volcano, Coscheduling (new and old), Kueue, and plain Jobs. `phasewise.dev/gang-size` overrides the size of any."""


def group_of(metadata: Mapping[str, str]) -> tuple[str, str]:
    """(name, size) of a pod's group by its labels and annotations; empty if unknown."""
    for name_key, size_key in GROUPS:
        if name := metadata.get(name_key):
            return f"{name_key}={name}", metadata.get(GANG_SIZE) or metadata.get(size_key, "")
    return "", metadata.get(GANG_SIZE, "")
