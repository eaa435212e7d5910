"""VerticalPodAutoscalers for tests, and recommendations written into them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from local_cluster.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS
from local_cluster.rig import Rig

Json = dict[str, Any]
OURS = "phasewise"


def create_vpa(
    rig: Rig,
    namespace: str,
    deployment: str,
    *,
    update_mode: str = "InPlaceOrRecreate",
    recommender: str | None = OURS,
    container_policy: Json | None = None,
) -> None:
    """Create a VPA for a Deployment, under the Deployment's name.

    Parameters
    ----------
    recommender
        Name of the recommender that may write into it; None for the default one.
    container_policy
        What holds for its container `main` (`{"controlledValues": "RequestsOnly"}`).
    """
    spec: Json = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
        "updatePolicy": {"updateMode": update_mode},
    }
    if recommender is not None:
        spec["recommenders"] = [{"name": recommender}]
    if container_policy is not None:
        spec["resourcePolicy"] = {"containerPolicies": [{"containerName": "main", **container_policy}]}
    body = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": deployment},
        "spec": spec,
    }
    rig.custom.create_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, body)


def recommend(
    rig: Rig,
    namespace: str,
    vpa: str,
    target: Mapping[str, str],
    *,
    lower: Mapping[str, str] | None = None,
    upper: Mapping[str, str] | None = None,
) -> Json:
    """Write a recommendation for container `main` by a patch of the status, as a recommender does; returns the VPA.

    Without bounds of their own, lower and upper bound are the target: what runs is then outside of them at once.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
        API_GROUP, API_VERSION, namespace, AUTOSCALERS, vpa, {"status": status}
    )
    return patched


def recommendation(rig: Rig, namespace: str, vpa: str) -> Json:
    """The recommendation for container `main` that a VPA holds; empty while there is none."""
    found = rig.custom.get_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, vpa)
    containers = found.get("status", {}).get("recommendation", {}).get("containerRecommendations", [])
    return next((container for container in containers if container["containerName"] == "main"), {})
