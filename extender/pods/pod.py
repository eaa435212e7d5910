"""Pods, nodes and PhaseProfiles as the extender needs them, the labels and annotations that it reads, and the reasons
for refusing a node, which the scheduler writes into the pod's condition."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from extender.pods.curves import Curve, Grid, constant, resampled
from extender.pods.gpus import NO_GPU, NO_GPUS, GpuOffer, GpuRequest, gpu_offer, gpu_request
from recommender.base.records import or_nan
from recommender.base.units import format_duration
from recommender.cluster.objects.metadata import OwnerRef
from recommender.cluster.objects.pods import Pod as ClusterPod
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.requests import (
    MAX_BYTES,
    MAX_CORES,
    amounts,
    counted_amount,
    extended_resources,
    requests_of,
)
from recommender.cluster.profiles import CLASS_PREFIX
from recommender.cluster.workloads.ownership import Workload
from recommender.cluster.workloads.workload_class import workload_class

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


class Pod(NamedTuple):
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
    version: str = ""  # resourceVersion while the pod is pending; empty once it is bound
    # extended, gpu: requests of extended resources by name, and of GPUs
    extended: Mapping[str, float] = {}
    gpu: GpuRequest = NO_GPU
    soft_constraints: bool = False  # whether the scheduler itself may prefer some nodes for it
    images: tuple[str, ...] = ()  # of its containers, as nodes name them

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def bound_to(self, node: str) -> Pod:
        """The pod, newly bound to a node."""
        return self._replace(node=node, refused_since_s=math.nan, refusal="", nominated_node="", version="")


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `data` holds the share of each data set stored on it, `extended` its allocatable extended resources."""

    name: str
    allocatable: Pair
    data: Mapping[str, float]
    extended: Mapping[str, float] = field(default_factory=dict)
    gpus: GpuOffer = NO_GPUS
    soft_taint: bool = False  # whether pods avoid it where possible (`PreferNoSchedule`)
    images: Mapping[str, float] = field(default_factory=dict)  # bytes of the large images that it stores, by name


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
    declared_bytes: Mapping[str, float] = field(default_factory=dict)  # container -> memory that its owner requests


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


OwnersOf = Callable[[ClusterPod], Sequence[Workload]]  # the controllers of a pod, the nearest first

GPU_KINDS = re.compile(r"accelerator|gpu\.(product|model)|gpu-(type|model|product)")
"""Node labels by which pods select a kind of GPU (NVIDIA's and AMD's feature discovery, clouds)."""

DATA_PREFIX = f"data.{PREFIX}"  # `data.phasewise.dev/imagenet: "0.5"` on a node: it stores half of the data set
CATEGORY_NUMBERS = {"progressing": 0, "watching": 1, "converged": 2, "pc": 0, "wc": 1, "cc": 2}


def pod_reader(owners_of: OwnersOf, schedulers: frozenset[str]) -> Callable[[Mapping[str, Any]], Pod]:
    @reads("Pod")
    def read(raw: Fields) -> Pod:
        seen = read_cluster_pod(raw.raw)
        spec = raw.child("spec")
        needs = requests_of(spec, raw.child("status"))
        annotations = {name: text for name, text in seen.annotations.items() if name.startswith(PREFIX)}
        of_pod = spec.child("resources").pair("requests")
        labelled = any(name.startswith(PREFIX) for name in seen.labels)
        return Pod(
            namespace=seen.key.namespace,
            name=seen.key.name,
            uid=seen.uid,
            node=seen.node,
            finished=seen.finished,
            job=_job_of(seen),
            workload=intern(workload_class(seen, owners_of(seen))),
            requests=(needs.get("cpu", 0.0), needs.get("memory", 0.0)),
            containers=tuple(_container(c.name, _filled(c.requests, of_pod), c.limits) for c in seen.containers),
            gpus=counted_amount("gpu", math.fsum(map(_gpus_of, spec.children("containers")))),
            gpu_type=" ".join(text for name, text in seen.node_selector.items() if GPU_KINDS.search(name)),
            annotations=annotations,
            ours=labelled or bool(annotations) or seen.scheduler_name in schedulers,
            started_s=or_nan(seen.started_s),
            refused_since_s=math.nan if seen.node else _refused_since_s(raw.child("status")),
            refusal="" if seen.node else refusal_in(raw.child("status")).text("message"),
            nominated_node="" if seen.node else raw.child("status").text("nominatedNodeName"),
            priority=spec.integer("priority"),
            may_preempt=spec.text("preemptionPolicy") != "Never",
            of_our_scheduler=seen.scheduler_name in schedulers,
            version="" if seen.node else str(raw.child("metadata").raw.get("resourceVersion") or ""),
            extended=extended_resources(needs),
            gpu=gpu_request(needs, spec),
            soft_constraints=_has_soft_constraints(spec, seen.owner),
            images=_images(tuple(container.image for container in seen.containers)),
        )

    return read


@lru_cache(maxsize=4096)
def _images(names: tuple[str, ...]) -> tuple[str, ...]:
    """The images with the tag that they have by default, each once."""
    tagged = (name if ":" in name.rpartition("/")[2] else f"{name}:latest" for name in names if name)
    return tuple(dict.fromkeys(map(intern, tagged)))


_container = lru_cache(maxsize=16384)(Container)  # pods of one job share the objects


def _filled(requests: Pair, of_pod: Pair) -> Pair:
    """The requests of a container, 0 where it has none but the pod as a whole does (`spec.resources`)."""
    cpu_cores, memory_bytes = (
        0.0 if math.isnan(own) and not math.isnan(whole) else own for own, whole in zip(requests, of_pod, strict=True)
    )
    return cpu_cores, memory_bytes


def _job_of(pod: ClusterPod) -> str:
    """The name of the pod's group, else the UID of its controller."""
    name, _ = group_of({**pod.annotations, **pod.labels})
    if name:
        return intern(name)
    owner: OwnerRef | None = pod.owner
    return owner.uid or owner.name if owner is not None else ""


SPREAD_BY_DEFAULT = {"ReplicationController", "ReplicaSet", "StatefulSet"}
"""Controllers whose pods a scheduler spreads without being asked."""

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _has_soft_constraints(spec: Fields, owner: OwnerRef | None) -> bool:
    """Whether a pod prefers nodes, neighbours or devices, or is spread where possible."""
    if owner is not None and owner.kind in SPREAD_BY_DEFAULT:
        return True
    spreads = (each.text("whenUnsatisfiable") != "DoNotSchedule" for each in spec.children("topologySpreadConstraints"))
    affinity = spec.child("affinity")
    kinds = ("nodeAffinity", "podAffinity", "podAntiAffinity")
    return any(spreads) or "resourceClaims" in spec or any(PREFERRED in affinity.child(kind) for kind in kinds)


def _refused_since_s(status: Fields) -> float:
    """When the pod became unschedulable: later attempts do not change the condition's time."""
    condition = refusal_in(status)
    since_s = condition.time_s("lastTransitionTime")
    return since_s if since_s is not None and refused_by_us(condition) else math.nan


def refusal_in(status: Fields) -> Fields:
    """The condition of an unschedulable pod; empty for any other."""
    for condition in status.children("conditions"):
        if condition.text("type") == "PodScheduled" and condition.text("status") == "False":
            return condition
    return Fields({})


def refused_by_us(condition: Fields) -> bool:
    """Whether one of our temporary reasons is in the condition's message."""
    return is_ours(condition.text("message"))


def is_ours(refusal: str) -> bool:
    """Whether one of our temporary reasons is in a scheduler's message."""
    return any(reason in refusal for reason in TEMPORARY_REASONS)


def _gpus_of(container: Fields) -> float:
    resources = container.child("resources")
    limits, requests = resources.child("limits"), resources.child("requests")
    amounts_of = limits if limits.raw else requests
    return math.fsum(amounts_of.quantity(name) or 0.0 for name in amounts_of.raw if name.rpartition("/")[2] == "gpu")


MIN_IMAGE_BYTES = 5e8  # smaller images are pulled in seconds


@reads("Node")
def read_node(raw: Fields) -> Node:
    metadata, status = raw.child("metadata"), raw.child("status")
    labels = metadata.string_map("labels")
    data = {
        name.removeprefix(DATA_PREFIX): _share(text) for name, text in labels.items() if name.startswith(DATA_PREFIX)
    }
    extended = extended_resources(amounts(status.child("allocatable")))
    gpus = gpu_offer(extended, labels, metadata.string_map("annotations"))
    soft_taint = any(taint.text("effect") == "PreferNoSchedule" for taint in raw.child("spec").children("taints"))
    images = {
        intern(name): size
        for image in status.children("images")
        if (size := image.quantity("sizeBytes") or 0.0) >= MIN_IMAGE_BYTES
        for name in image.texts("names")
    }
    return Node(intern(metadata.required("name")), status.pair("allocatable"), data, extended, gpus, soft_taint, images)


def _share(text: str) -> float:
    """The share of a data set by the value of a label; any other text but `false`, `no` and `absent` counts as 1."""
    try:
        share = float(text)
    except ValueError:
        return 0.0 if text.lower() in ("false", "no", "absent") else 1.0
    return min(1.0, max(0.0, share)) if share == share else 0.0  # noqa: PLR0124  NaN


def profile_reader(grid: Grid) -> Callable[[Mapping[str, Any]], Profile]:
    """A function that reads a `Profile` from the JSON of a PhaseProfile, without unusable demand curves."""

    @reads("PhaseProfile")
    def read(raw: Fields) -> Profile:
        metadata, status = raw.child("metadata"), raw.child("status")
        name = metadata.required("name")
        of_class = raw.child("spec").flag("class") and name.startswith(CLASS_PREFIX)
        curves, forecasts, declared = {}, {}, {}
        for container in status.children("containers"):
            if memory := container.quantity("declaredMemoryBytes"):
                declared[container.required("name")] = memory
            if "demand" in container and (curve := _curve_of(container.child("demand").raw, grid)):
                curves[container.required("name")] = curve
            if curve := _forecast_of(container.child("why").raw):
                forecasts[container.required("name")] = curve
        return Profile(
            namespace=metadata.text("namespace"),
            name=name,
            workload=name.removeprefix(CLASS_PREFIX) if of_class else "",
            demand=DemandCurves(curves, HISTORY),
            forecast=DemandCurves(forecasts, FORECAST),
            categories=categories_of(status),
            declared_bytes=declared,
        )

    return read


def categories_of(status: Fields) -> dict[str, int | None]:
    """The category of each pod by UID; of several containers the one that still learns most."""
    categories: dict[str, int | None] = {}
    for pod in status.children("pods"):
        uid, category = pod.text("uid"), CATEGORY_NUMBERS.get(pod.text("category").lower())
        known = categories.get(uid)
        categories[uid] = category if known is None else known if category is None else min(known, category)
    return categories


def _curve_of(demand: Mapping[str, Any], grid: Grid) -> Curve | None:
    step_s, cpu, memory = (demand.get(name) for name in ("stepSeconds", "cpuCores", "memoryBytes"))
    if not isinstance(step_s, int | float) or not isinstance(cpu, list) or not isinstance(memory, list):
        return None
    if not all(isinstance(value, int | float) for value in (*cpu, *memory)):
        return None
    return _resampled(float(step_s), tuple(cpu), tuple(memory), grid)


def _forecast_of(why: Mapping[str, Any]) -> Curve | None:
    cpu_cores, memory_bytes = why.get("forecastCpuCores"), why.get("forecastMemoryBytes")
    if not isinstance(cpu_cores, int | float) or not isinstance(memory_bytes, int | float):
        return None
    known = 0.0 <= cpu_cores <= MAX_CORES and 0.0 <= memory_bytes <= MAX_BYTES
    return constant(float(cpu_cores), float(memory_bytes)) if known else None


_resampled = lru_cache(maxsize=4096)(resampled)
"""Profiles change with every phase but their demand seldom does: equal numbers give the same object."""


# constant texts: if the reason changed between attempts, the scheduler would retry without a pause
MEMORY_REASON = "forecast memory exceeds the limit while the pod would run"
OTHERS_REASON = "pods of other namespaces are expected to use its memory in the coming cycle"
CPU_REASON = "forecast CPU shortage exceeds the limit in the coming cycle"
RESERVED_ELSEWHERE = "another node is reserved for this gang member"
RESERVED_FOR_GANG = "free capacity is reserved for a gang"


def with_time_limit(reason: str, patience_s: float) -> str:
    """The reason, and how long a pod waits for it at most.

    >>> with_time_limit(RESERVED_FOR_GANG, 7200.0)
    'free capacity is reserved for a gang; the pod waits at most 2h'
    """
    return f"{reason}; the pod waits at most {format_duration(patience_s)}"


TEMPORARY_REASONS = (MEMORY_REASON, OTHERS_REASON, CPU_REASON, RESERVED_FOR_GANG)
"""Reasons that expire even if nothing in the cluster changes."""
