"""VerticalPodAutoscalers for tests, and recommendations written into them by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from local_cluster.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS
from local_cluster.rig import Rig
from recommender.units import format_time

Json = dict[str, Any]
OURS = "phasewise"


def vpa(
    kind: str,
    name: str,
    *,
    update_mode: str = "InPlaceOrRecreate",
    recommender: str | None = OURS,
    min_replicas: int | None = None,
    container_policy: Json | None = None,
) -> Json:
    """A VPA for a workload, under the workload's name.

    `recommender`: Name of the recommender that may write into it; None for the default one.
    `min_replicas`: `minReplicas` of its update policy; None for the updater's default.
    `container_policy`: Policy of one container (`{"containerName": "main", "controlledValues": "RequestsOnly"}`).
    """
    spec: Json = {
        "targetRef": {"apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind, "name": name},
        "updatePolicy": {"updateMode": update_mode, **({"minReplicas": min_replicas} if min_replicas else {})},
    }
    if recommender is not None:
        spec["recommenders"] = [{"name": recommender}]
    if container_policy is not None:
        spec["resourcePolicy"] = {"containerPolicies": [container_policy]}
    version = f"{API_GROUP}/{API_VERSION}"
    return {"apiVersion": version, "kind": "VerticalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


def create_vpa(rig: Rig, namespace: str, deployment: str, **more: Any) -> None:
    create(rig, namespace, vpa("Deployment", deployment, **more))


def create(rig: Rig, namespace: str, body: Json) -> None:
    rig.custom.create_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, body)


def recommend(
    rig: Rig,
    namespace: str,
    name: str,
    target: Mapping[str, str],
    *,
    lower: Mapping[str, str] | None = None,
    upper: Mapping[str, str] | None = None,
) -> Json:
    """Write a recommendation for container `main` by a patch of the status, as a recommender does; returns the VPA.

    By default lower and upper bound equal the target, so that running pods are out of bounds at once.
    """
    now = format_time(time.time())
    recommendation = {
        "containerName": "main",
        "target": dict(target),
        "lowerBound": dict(lower or target),
        "upperBound": dict(upper or target),
        "uncappedTarget": dict(target),
    }
    status = {
        "conditions": [{"type": "RecommendationProvided", "status": "True", "lastTransitionTime": now}],
        "recommendation": {"containerRecommendations": [recommendation]},
    }
    patched: Json = rig.custom.patch_namespaced_custom_object_status(
        API_GROUP, API_VERSION, namespace, AUTOSCALERS, name, {"status": status}
    )
    return patched


def recommendation(rig: Rig, namespace: str, name: str) -> Json:
    """The recommendation for container `main` that a VPA holds; empty while there is none."""
    found = rig.custom.get_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, name)
    containers = found.get("status", {}).get("recommendation", {}).get("containerRecommendations", [])
    return next((container for container in containers if container["containerName"] == "main"), {})
