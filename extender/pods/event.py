"""An event on a pod, as the API takes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey

LONGEST_NOTE = 1000
"""An event's message may have 1024 bytes."""


def event_on(
    pod: ObjectKey, uid: str, reason: str, text: str, component: str, now_s: float, *, warning: bool = False
) -> dict[str, Any]:
    """An event on a pod."""
    now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": uid},
        "reason": reason,
        "message": text[:LONGEST_NOTE],
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
