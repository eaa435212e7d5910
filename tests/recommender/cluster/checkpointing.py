"""Checkpoints for tests: statuses, and objects as another recommender leaves them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from recommender.base.records import Block
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.checkpoints import CHECKPOINTS, Checkpoints, WriteReport
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status

MIB = 2**20
START_S = int(datetime(2026, 8, 21, 8, tzinfo=UTC).timestamp())
NOW_S = START_S + 2 * 86400.0

Json = dict[str, Any]


def session(cpu_cores: float = 0.5, samples: int = 60) -> HistogramSession:
    filled = HistogramSession()
    usage = np.tile([cpu_cores, 512.0 * MIB], (samples, 1))
    filled.advance(Block(usage, START_S + 60 * np.arange(samples), np.array([], np.int64)))
    return filled


def status(cpu_cores: float = 0.5, now_s: float = NOW_S) -> Json:
    return checkpoint_status([session(cpu_cores)], now_s)


def make_vpa(api: Api, namespace: str, name: str, recommender: str = "phasewise") -> ObjectKey:
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "recommenders": [{"name": recommender}],
    }
    body = {"apiVersion": VPAS[0], "kind": "VerticalPodAutoscaler", "metadata": {"name": name}, "spec": spec}
    api.create(path_of(VPAS, namespace), body)
    return ObjectKey(namespace, name)


def make_checkpoint(
    api: Api, namespace: str, name: str, vpa: str, container: str, labels: dict[str, str] | None = None, **fields: Any
) -> None:
    """A checkpoint as the default recommender (or, with labels, another one) leaves it."""
    body = {
        "apiVersion": CHECKPOINTS[0],
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"vpaObjectName": vpa, "containerName": container},
        **fields,
    }
    api.create(path_of(CHECKPOINTS, namespace), body)


def stored(api: Api, namespace: str) -> dict[str, Json]:
    """All checkpoints of the namespace, by name."""
    return {item["metadata"]["name"]: item for item in api.get(path_of(CHECKPOINTS, namespace))["items"]}


def write(checkpoints: Checkpoints, statuses: dict[ObjectKey, dict[str, Json]], **limits: Any) -> WriteReport:
    deadline_s = limits.pop("deadline_s", float("inf"))
    return checkpoints.write({vpa: lambda new=new: new for vpa, new in statuses.items()}, deadline_s, **limits)
