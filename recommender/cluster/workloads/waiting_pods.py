"""Resizes pods that have no node yet.

The API server accepts a resize of an unscheduled pod, and the scheduler retries one with lower requests at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recommender.base.records import RESOURCES
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import FORMATS
from recommender.cluster.paths import PODS, path_of

REQUESTS, LIMITS = "requests", "limits"


class Change(NamedTuple):
    """A change of one amount, in cores or bytes, of the requests or limits of a container, by its index in the pod."""

    container: int
    part: str
    resource: int
    amount: float

    @property
    def path(self) -> str:
        return f"/spec/containers/{self.container}/resources/{self.part}/{RESOURCES[self.resource]}"


def resize_waiting(api: Api, pod: Pod, changes: Sequence[Change]) -> None:
    """Apply all changes or none: `Invalid` if the pod has been scheduled or replaced, or cannot be resized."""
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/spec/nodeName", "value": None},  # an absent field equals null
        *({"op": "replace", "path": each.path, "value": FORMATS[each.resource](each.amount)} for each in changes),
    ]
    api.patch(path_of(PODS, *pod.key, "resize"), patch)
