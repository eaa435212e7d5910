"""Creates workloads and VPAs in a real cluster, and waits for the VPAs of a namespace."""

from __future__ import annotations

from typing import Any

from recommender.live.auto.settings import AUTO
from tests.rig.cluster import Cluster
from tests.rig.waiting import wait_until
from tests.rig.workloads import pod_spec, resources

Json = dict[str, Any]

NO_SUCH_NODE = {"phasewise.dev/test": "no-such-node"}
"""Node selector of pods that stay pending."""

VPA_VERSION, VPA = "autoscaling.k8s.io/v1", "VerticalPodAutoscaler"


def label(cluster: Cluster, namespace: str, value: str | None = "true") -> None:
    """Set the label that gives all workloads of a namespace VPAs; None removes it."""
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": {AUTO: value}}})


def make(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    created: Json = cluster.custom.create_namespaced_custom_object(*_path(api_version, namespace, kind), body)
    return created


def remove(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str) -> None:
    """Delete an object and its dependents."""
    path = _path(api_version, namespace, kind)
    cluster.custom.delete_namespaced_custom_object(*path, name, propagation_policy="Background")


def _path(api_version: str, namespace: str, kind: str) -> tuple[str, str, str, str]:
    group, _, version = api_version.partition("/")
    return group, version, namespace, f"{kind.lower()}s"


def job_spec(selector: dict[str, str], pod_resources: Json | None = None) -> Json:
    spec = pod_spec(selector, pod_resources or resources({"cpu": "100m", "memory": "64Mi"}), restartPolicy="Never")
    return {"template": {"spec": spec}}


def make_job(cluster: Cluster, namespace: str, name: str, **metadata: Any) -> Json:
    return make(cluster, namespace, "batch/v1", "Job", name, job_spec(NO_SUCH_NODE), **metadata)


def vpas(cluster: Cluster, namespace: str) -> dict[str, Json]:
    path = _path(VPA_VERSION, namespace, VPA)
    return {vpa["metadata"]["name"]: vpa for vpa in cluster.custom.list_namespaced_custom_object(*path)["items"]}


def wait_for_vpas(cluster: Cluster, namespace: str, *names: str, timeout_s: float = 20.0) -> dict[str, Json]:
    """Wait until exactly these VPAs exist."""

    def exactly_these() -> dict[str, Json]:
        found = vpas(cluster, namespace)
        assert sorted(found) == sorted(names), sorted(found)
        return found or {"none": {}}

    return wait_until(exactly_these, f"the VPAs {names} and no others", timeout_s=timeout_s)
