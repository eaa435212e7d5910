"""GPUs as nodes offer them and pods ask for them: whole ones, and shares of one.

Nodes and pods name GPUs by an extended resource `<vendor>/gpu`. Of the ways to share one, these are read:

- time slicing and MPS of NVIDIA's device plugin: each GPU is offered several times, as `nvidia.com/gpu` or
  `nvidia.com/gpu.shared`; the label `nvidia.com/gpu.replicas` says how often, and a pod gets such a part of one;
- HAMi: a pod says which percentage of each GPU it wants, by `nvidia.com/gpucores` and `nvidia.com/gpumem-percentage`;
  how many GPUs there are stands in an annotation of the node, since it offers each one several times too.

A pod that asks for device memory in MiB alone (`nvidia.com/gpumem`) counts as if it took the whole GPU. Parts that MIG
makes (`nvidia.com/mig-1g.5gb`) are resources of their own, which are whole. Claims (DRA) are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.requests import Amounts, amounts

MILLI_PER_GPU = 1000
"""A GPU, in thousandths."""

GPU_NAMES = ("gpu", "gpu.shared")
PERCENTAGES, GPU_MEMORY = ("gpucores", "gpumem-percentage"), "gpumem"
REPLICAS_LABEL, COUNT_LABEL = "nvidia.com/gpu.replicas", "nvidia.com/gpu.count"
HAMI_ANNOTATION = "hami.io/node-nvidia-register"


class GpuRequest(NamedTuple):
    """So many GPUs, or parts that the node makes of them, and how much of each in thousandths."""

    number: int = 0
    milli: int = MILLI_PER_GPU


class GpuOffer(NamedTuple):
    """So many GPUs, each made into so many parts."""

    number: int = 0
    parts: int = 1


NO_GPU, NO_GPUS = GpuRequest(), GpuOffer()


def gpu_request(needs: Amounts, spec: Fields) -> GpuRequest:
    """What a pod asks for; where its containers want different shares of a GPU, the largest of each.

    Parameters
    ----------
    needs
        Of the whole pod. Percentages are of each GPU of a container, and mean nothing added up.

    Examples
    --------
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
    asked = amounts(container.child("resources").child("requests"))
    if not any(amount for name, amount in asked.items() if _resource_name(name) in GPU_NAMES):
        return 0
    percent = max((amount for name, amount in asked.items() if _resource_name(name) in PERCENTAGES), default=0.0)
    return round(10 * percent) if 0.0 < percent < 100.0 else MILLI_PER_GPU


def gpu_offer(allocatable: Amounts, labels: Mapping[str, str], annotations: Mapping[str, str]) -> GpuOffer:
    """What a node has."""
    offered = int(sum(amount for name, amount in allocatable.items() if _resource_name(name) in GPU_NAMES))
    parts = max(1, _integer(labels.get(REPLICAS_LABEL, "")))
    number = offered // parts
    registered = annotations.get(HAMI_ANNOTATION, "")
    if registered:  # by version a list in JSON, or entries that end in colons
        told = registered.count('"id"') or sum(1 for entry in registered.split(":") if "," in entry)
        number = min(number, told or _integer(labels.get(COUNT_LABEL, "")) or number)
    return GpuOffer(number, parts)


def requests_in_gpus(needs: Amounts, spec: Fields) -> dict[str, float]:
    """What a pod asks for, a share of a GPU as the part of one that so many equal pods can each have.

    Where only sums over a node are kept, half a GPU for 60 % would promise room for a second such pod.

    Examples
    --------
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
    """What a node has, GPUs as many as there are where HAMi offers each several times."""
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
