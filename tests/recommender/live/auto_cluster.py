"""Workloads, VPAs and kinds made in a real cluster by kubectl, and waiting for the VPAs of a namespace."""

from __future__ import annotations

import json
from typing import Any

from recommender.live.auto_settings import AUTO
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources

Json = dict[str, Any]

NOBODY = {"phasewise.dev/test": "no-such-node"}
"""A node selector of pods that are to stay pending."""


def label(cluster: Cluster, namespace: str, what: str, *words: str, verb: str = "label") -> None:
    cluster.kubectl(verb, "--overwrite", what, *words, *(["-n", namespace] if namespace else []))


def make(cluster: Cluster, namespace: str, api_version: str, kind: str, name: str, spec: Json, **metadata: Any) -> None:
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(body))


def a_job(selector: dict[str, str], needs: Json | None = None) -> Json:
    spec = pod_spec(selector, needs or resources({"cpu": "100m", "memory": "64Mi"}), restartPolicy="Never")
    return {"template": {"spec": spec}}


def make_job(cluster: Cluster, namespace: str, name: str, **metadata: Any) -> None:
    make(cluster, namespace, "batch/v1", "Job", name, a_job(NOBODY), **metadata)


def vpas(cluster: Cluster, namespace: str) -> dict[str, Json]:
    listed = json.loads(cluster.kubectl("get", "vpa", "-n", namespace, "-o", "json"))["items"]
    return {vpa["metadata"]["name"]: vpa for vpa in listed}


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
    make(cluster, namespace, "autoscaling.k8s.io/v1", "VerticalPodAutoscaler", name, spec)
