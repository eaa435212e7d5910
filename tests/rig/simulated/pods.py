"""Pods for simulated nodes, and their metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from kubernetes.client import V1Pod

from tests.rig.rig import Rig
from tests.rig.simulated.kwok import metrics_url

SERIES = re.compile(r"^(?P<metric>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def template(
    selector: Mapping[str, str],
    *,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    containers: Sequence[str] = ("main",),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod template with equal resources for all containers; `spec` is merged into the pod's spec."""
    resources = {"requests": dict(requests or {"cpu": "100m", "memory": "128Mi"}), "limits": dict(limits or {})}
    listed = [{"name": name, "image": "simulated", "resources": resources} for name in containers]
    return {
        "metadata": {"labels": dict(labels or {"app": "simulated"}), "annotations": dict(annotations or {})},
        "spec": {"nodeSelector": dict(selector), "terminationGracePeriodSeconds": 0, "containers": listed, **spec},
    }


def create(rig: Rig, namespace: str, name: str, made: Mapping[str, Any]) -> str:
    pod = {"metadata": {"name": name, **made["metadata"]}, "spec": made["spec"]}
    rig.core.create_namespaced_pod(namespace, V1Pod.model_validate(pod))
    return name


def read(rig: Rig, namespace: str, name: str) -> dict[str, Any]:
    answer: Any = rig.core.read_namespaced_pod(name, namespace, _preload_content=False)
    pod: dict[str, Any] = json.loads(answer.data)
    return pod


def status_of(rig: Rig, namespace: str, name: str, container: str = "main") -> dict[str, Any]:
    statuses = read(rig, namespace, name)["status"].get("containerStatuses", ())
    return next((status for status in statuses if status["name"] == container), {})


def container_metrics(rig: Rig, namespace: str, pod: str) -> dict[str, float]:
    """Metrics of the container `main` by name, from one scrape of its node."""
    url = metrics_url(rig, read(rig, namespace, pod)["spec"]["nodeName"])
    answer = requests.get(url, verify=str(rig.authority.file), timeout=10)
    answer.raise_for_status()
    wanted = {"namespace": namespace, "pod": pod, "container": "main"}
    return {
        found["metric"]: float(found["value"])
        for found in SERIES.finditer(answer.text)
        if wanted.items() <= dict(LABEL.findall(found["labels"])).items()
    }
