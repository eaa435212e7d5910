"""Reads pods, nodes and PhaseProfiles from their JSON: only what placement needs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

from extender.pods.curves import Curve, Grid, constant, resampled
from extender.pods.gpus import gpu_offer, gpu_request
from extender.pods.pod import FORECAST, HISTORY, PREFIX, Container, DemandCurves, Node, Pair, Pod, Profile, group_of
from extender.reasons import TEMPORARY_REASONS
from recommender.cluster.objects.metadata import OwnerRef
from recommender.cluster.objects.pods import Pod as ClusterPod
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
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
from recommender.records import or_nan

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
            gpu_type=_gpu_type(spec),
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
        )

    return read


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
    message = condition.text("message")
    return any(reason in message for reason in TEMPORARY_REASONS)


def _gpus_of(container: Fields) -> float:
    resources = container.child("resources")
    limits, requests = resources.child("limits"), resources.child("requests")
    amounts_of = limits if limits.raw else requests
    return math.fsum(amounts_of.quantity(name) or 0.0 for name in amounts_of.raw if name.rpartition("/")[2] == "gpu")


def _gpu_type(spec: Fields) -> str:
    return " ".join(text for name, text in spec.string_map("nodeSelector").items() if GPU_KINDS.search(name))


@reads("Node")
def read_node(raw: Fields) -> Node:
    metadata, status = raw.child("metadata"), raw.child("status")
    labels = metadata.string_map("labels")
    data = {
        name.removeprefix(DATA_PREFIX): _share(text) for name, text in labels.items() if name.startswith(DATA_PREFIX)
    }
    extended = extended_resources(amounts(status.child("allocatable")))
    gpus = gpu_offer(extended, labels, metadata.string_map("annotations"))
    return Node(intern(metadata.required("name")), status.pair("allocatable"), data, extended, gpus)


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
        curves, forecasts = {}, {}
        for container in status.children("containers"):
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
