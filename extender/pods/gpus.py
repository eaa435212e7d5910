"""GPUs, whole and shared, as nodes offer and pods request them.

GPUs are extended resources named `<vendor>/gpu`. These ways of sharing are supported:

- time slicing and MPS of NVIDIA's device plugin: each GPU is offered several times, as `nvidia.com/gpu` or
  `nvidia.com/gpu.shared`; the label `nvidia.com/gpu.replicas` says how often;
- HAMi: pods request a percentage of each GPU by `nvidia.com/gpucores` and `nvidia.com/gpumem-percentage`. Nodes offer
  each GPU several times; an annotation lists the physical ones.

A pod that requests only device memory in MiB (`nvidia.com/gpumem`) counts as using the whole GPU. MIG devices
(`nvidia.com/mig-1g.5gb`) are resources of their own. Devices allocated by DRA are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.requests import Amounts, requests_in

MILLI_PER_GPU = 1000
GPU_NAMES = ("gpu", "gpu.shared")
PERCENTAGES, GPU_MEMORY = ("gpucores", "gpumem-percentage"), "gpumem"
REPLICAS_LABEL, COUNT_LABEL = "nvidia.com/gpu.replicas", "nvidia.com/gpu.count"
HAMI_ANNOTATION = "hami.io/node-nvidia-register"
MAX_GPUS = 1024  # GPUs of a node that are told apart: each takes a number for all nodes of the cluster


class GpuRequest(NamedTuple):
    """Number of GPUs (or of the parts that the node offers as GPUs), and thousandths used of each."""

    number: int = 0
    milli: int = MILLI_PER_GPU


class GpuOffer(NamedTuple):
    """Number of GPUs, and how many times each is offered."""

    number: int = 0
    parts: int = 1


NO_GPU, NO_GPUS = GpuRequest(), GpuOffer()


def gpu_request(needs: Amounts, spec: Fields) -> GpuRequest:
    """The GPUs that a pod requests; of different shares in its containers, the largest.

    `needs`: requests of the whole pod. Percentages refer to each GPU of a container; their sum is meaningless.

    >>> share = {"resources": {"requests": {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}}}
    >>> gpu_request({"cpu": 4.0, "nvidia.com/gpu": 2.0}, Fields({"containers": [share, share]}))
    GpuRequest(number=2, milli=300)
    """
    number = int(sum(amount for name, amount in needs.items() if _resource_name(name) in GPU_NAMES))
    if not number:
        return NO_GPU
    containers = (*spec.children("initContainers"), *spec.children("containers"))
    return GpuRequest(number, max(map(_milli, containers), default=0) or MILLI_PER_GPU)


def _milli(container: Fields) -> int:
    asked = requests_in(container.child("resources"))
    if not any(amount for name, amount in asked.items() if _resource_name(name) in GPU_NAMES):
        return 0
    percent = max((amount for name, amount in asked.items() if _resource_name(name) in PERCENTAGES), default=0.0)
    return round(10 * percent) if 0.0 < percent < 100.0 else MILLI_PER_GPU


def gpu_offer(allocatable: Amounts, labels: Mapping[str, str], annotations: Mapping[str, str]) -> GpuOffer:
    offered = int(sum(amount for name, amount in allocatable.items() if _resource_name(name) in GPU_NAMES))
    parts = max(1, _integer(labels.get(REPLICAS_LABEL, "")))
    number = min(offered // parts, MAX_GPUS)
    registered = annotations.get(HAMI_ANNOTATION, "")
    if registered:  # a JSON list, or entries that end in colons, depending on the version
        registered_count = registered.count('"id"') or sum(1 for entry in registered.split(":") if "," in entry)
        number = min(number, registered_count or _integer(labels.get(COUNT_LABEL, "")) or number)
    return GpuOffer(number, parts)


def requests_in_gpus(needs: Amounts, spec: Fields) -> dict[str, float]:
    """The requests of a pod, a share of a GPU rounded up to 1 / n, where n such pods fit on one GPU.

    Only sums per node are kept, in which two pods with 60 % each would otherwise seem to fit on 1.2 GPUs.

    >>> share = {"resources": {"requests": {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}}}
    >>> requests_in_gpus({"nvidia.com/gpu": 1.0}, Fields({"containers": [share]})) == {"nvidia.com/gpu": 1 / 3}
    True
    """
    pods_per_gpu = MILLI_PER_GPU // max(1, gpu_request(needs, spec).milli)
    kept = {name: amount for name, amount in needs.items() if _resource_name(name) not in (*PERCENTAGES, GPU_MEMORY)}
    return {
        name: amount / pods_per_gpu if _resource_name(name) in GPU_NAMES else amount for name, amount in kept.items()
    }


def allocatable_in_gpus(
    allocatable: Amounts, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, float]:
    """The allocatable resources of a node; with HAMi, which offers each GPU several times, its physical GPUs."""
    offer = gpu_offer(allocatable, labels, annotations)
    hami = HAMI_ANNOTATION in annotations
    return {
        name: float(offer.number) if hami and _resource_name(name) in GPU_NAMES else amount
        for name, amount in allocatable.items()
    }


def _resource_name(name: str) -> str:
    return name.rpartition("/")[2] if "/" in name else ""


def _integer(text: str) -> int:
    return int(text) if text.isdecimal() else 0
