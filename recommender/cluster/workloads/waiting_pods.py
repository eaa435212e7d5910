"""Changes what a pod asks for that has no node yet; nothing of one that has.

The API server takes a resize of a pod that nobody has placed, and its scheduler tries one that asks for less at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import cpu_quantity, memory_quantity
from recommender.cluster.paths import PODS, path_of
from recommender.records import CPU, RESOURCES

REQUESTS, LIMITS = "requests", "limits"


class Change(NamedTuple):
    """Of one amount of a pod.

    Attributes
    ----------
    container
        Its place among the containers of the pod.
    part
        `requests` or `limits`.
    resource
        CPU or MEMORY.
    amount
        Cores or bytes.
    """

    container: int
    part: str
    resource: int
    amount: float


def resize_waiting(api: Api, pod: Pod, changes: Sequence[Change]) -> None:
    """Make these changes, all or none: none where the pod has a node by now, or another has its name.

    Raises
    ------
    ApiError
        `Invalid` where the pod is not the one that was seen, has a node, or cannot be resized.
    """
    api.patch(f"{path_of(PODS, pod.key.namespace, pod.key.name)}/resize", resize_patch(pod, changes))


def resize_patch(pod: Pod, changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The JSON Patch."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/spec/nodeName", "value": None},  # what is not there equals null
        *({"op": "replace", "path": _path(each), "value": _quantity(each)} for each in changes),
    ]


def _path(change: Change) -> str:
    return f"/spec/containers/{change.container}/resources/{change.part}/{RESOURCES[change.resource]}"


def _quantity(change: Change) -> str:
    return cpu_quantity(change.amount) if change.resource == CPU else memory_quantity(change.amount)
