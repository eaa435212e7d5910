"""Workloads, VPAs and kinds made in a real cluster, and waiting for the VPAs of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_cluster.cluster import Cluster
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, resources
from recommender.live.auto.settings import AUTO

Json = dict[str, Any]

NOBODY = {"phasewise.dev/test": "no-such-node"}
"""A node selector of pods that are to stay pending."""

VPA_VERSION, VPA = "autoscaling.k8s.io/v1", "VerticalPodAutoscaler"


def label(cluster: Cluster, namespace: str, value: str | None = "true") -> None:
    """Label a namespace as one whose workloads are all to have VPAs; None takes the label away."""
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": {AUTO: value}}})


def make(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    made: Json = cluster.custom.create_namespaced_custom_object(*_path(api_version, namespace, kind), body)
    return made


def change(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str, patch: Json) -> None:
    cluster.custom.patch_namespaced_custom_object(*_path(api_version, namespace, kind), name, patch)


def remove(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str) -> None:
    """Delete it, and what it owns."""
    where = _path(api_version, namespace, kind)
    cluster.custom.delete_namespaced_custom_object(*where, name, propagation_policy="Background")


def _path(api_version: str, namespace: str, kind: str) -> tuple[str, str, str, str]:
    group, _, version = api_version.partition("/")
    return group, version, namespace, f"{kind.lower()}s"


def a_job(selector: dict[str, str], needs: Json | None = None) -> Json:
    spec = pod_spec(selector, needs or resources({"cpu": "100m", "memory": "64Mi"}), restartPolicy="Never")
    return {"template": {"spec": spec}}


def make_job(cluster: Cluster, namespace: str, name: str, **metadata: Any) -> Json:
    return make(cluster, namespace, "batch/v1", "Job", name, a_job(NOBODY), **metadata)


def change_job(cluster: Cluster, namespace: str, name: str, **metadata: Mapping[str, str | None]) -> None:
    """Change its labels or annotations; None takes one away."""
    change(cluster, namespace, "batch/v1", "Job", name, {"metadata": metadata})


def vpas(cluster: Cluster, namespace: str) -> dict[str, Json]:
    where = _path(VPA_VERSION, namespace, VPA)
    return {vpa["metadata"]["name"]: vpa for vpa in cluster.custom.list_namespaced_custom_object(*where)["items"]}


def wait_for_names(cluster: Cluster, namespace: str, *names: str, timeout_s: float = 20.0) -> dict[str, Json]:
    """Wait until these VPAs are there and no others."""

    def there() -> dict[str, Json]:
        found = vpas(cluster, namespace)
        assert sorted(found) == sorted(names), sorted(found)
        return found or {"none": {}}

    return wait_until(there, f"the VPAs {names} and no others", timeout_s=timeout_s)


def remains(cluster: Cluster, namespace: str, *names: str) -> None:
    """These VPAs are there, no others, and none comes: a later job has had its own meanwhile."""
    make_job(cluster, namespace, "later", labels={AUTO: "true"})
    wait_for_names(cluster, namespace, *names, "later.job")


def write_by_hand(cluster: Cluster, namespace: str, name: str, kind: str, target: str) -> None:
    spec = {
        "targetRef": {"apiVersion": "batch/v1", "kind": kind, "name": target},
        "updatePolicy": {"updateMode": "Off"},
    }
    make(cluster, namespace, VPA_VERSION, VPA, name, spec)
