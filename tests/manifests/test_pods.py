"""Pods of the manifests fit the strictest security standard and have limits, and drains of nodes respect them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.manifests.reading import MANIFESTS, ROOT
from tests.rig.cluster import Cluster
from tests.rig.installing import documents

OBJECTS = [each for folder in ("recommender", "extender", "web") for each in documents(MANIFESTS / folder)]
BUDGETS = [each["spec"] for each in OBJECTS if each["kind"] == "PodDisruptionBudget"]
DEPLOYMENTS = [
    pytest.param(each["spec"], id=each["metadata"]["name"]) for each in OBJECTS if each["kind"] == "Deployment"
]


def pod_specs() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for each in OBJECTS:
        if each["kind"] in ("Deployment", "CronJob"):
            controller = each["spec"]["jobTemplate"] if each["kind"] == "CronJob" else each
            yield each["metadata"]["name"], controller["spec"]["template"]["spec"]


SPECS = [pytest.param(spec, id=name) for name, spec in pod_specs()]


@pytest.mark.parametrize("spec", SPECS)
def test_no_container_may_become_root_and_each_has_requests_and_a_memory_limit(spec: Mapping[str, Any]) -> None:
    """Except kube-scheduler: its memory depends on the cluster. A CPU limit would only make answers late."""
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in containers:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        limited = {"memory"} if container["name"] != "scheduler" else set()
        assert container["resources"].get("limits", {}).keys() == limited
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", ())}
    assert mounted == {volume["name"] for volume in spec.get("volumes", ())}


@pytest.mark.parametrize("spec", DEPLOYMENTS)
def test_nodes_with_our_pods_can_be_drained_and_removed_one_replica_at_a_time(spec: Mapping[str, Any]) -> None:
    """cluster-autoscaler keeps a node with a pod of kube-system without a budget, or with a volume on its disk.

    A drain waits for no replica that is not ready.
    """
    budget = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": spec["selector"]}
    assert budget in BUDGETS
    folders = [volume["emptyDir"] for volume in spec["template"]["spec"].get("volumes", ()) if "emptyDir" in volume]
    assert all(folder.get("medium") == "Memory" for folder in folders)


@pytest.mark.parametrize("spec", SPECS)
def test_pods_are_allowed_under_the_restricted_pod_security_standard(
    cluster: Cluster, spec: Mapping[str, Any], namespace: str
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    reduced = {key: value for key, value in spec.items() if key not in ("serviceAccountName", "priorityClassName")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours", "namespace": namespace}, "spec": reduced}
    created = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    assert json.loads(created)["metadata"]["name"] == "ours"


def test_the_page_about_security_lists_the_rights_of_every_account() -> None:
    accounts = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "ServiceAccount"}
    programs = re.findall(r"^\| (\w+) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert {f"phasewise-{program}" for program in programs[1:]} == accounts
