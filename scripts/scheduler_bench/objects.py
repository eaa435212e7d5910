"""The objects of the bench, as JSON for the API: nodes, workload classes that have been learned, pods of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

CLASSES = 20
"""Workload classes in a namespace that have a history; the pods of all others count by their requests."""

UNKNOWN_CLASSES = 10
STEP_S, STEPS = 15, 240
"""The demand of a class, as the recommender writes it: an hour since the start of a pod."""

NAMESPACES = 20
PODS_OF_A_JOB = 10
WORKER = "gpu-pool-a-node-{:05d}.zone1"
"""28 characters, as clouds have them."""

REQUESTS = {"cpu": "2", "memory": "4Gi"}
GIB = 2.0**30


def node_name(number: int) -> str:
    return WORKER.format(number)


def namespace_of(pod: int) -> str:
    return f"team-{pod % NAMESPACES:02d}"


def job_of(pod: int) -> int:
    """Pods of one job share everything but their names."""
    return pod // (NAMESPACES * PODS_OF_A_JOB)


def workload_of(pod: int) -> str:
    """Two of three jobs are of a class with a history."""
    return f"job-{job_of(pod) % (CLASSES + UNKNOWN_CLASSES):02d}"


def classes_of(pods: Iterable[int]) -> list[tuple[str, int]]:
    """(namespace, number) of each class with a history that some of these pods are of."""
    found = {(namespace_of(pod), job_of(pod) % (CLASSES + UNKNOWN_CLASSES)) for pod in pods}
    return sorted((namespace, number) for namespace, number in found if number < CLASSES)


def node(number: int) -> Json:
    """Large enough that none is ever full."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    return {"metadata": {"name": node_name(number)}, "status": {"capacity": capacity, "allocatable": capacity}}


def learned(namespace: str, number: int) -> tuple[Json, Json]:
    """A class's PhaseProfile and its status: its need of CPU goes up and down, each class in a rhythm of its own."""
    waves = [1.0 + math.sin(step * (number + 1) / 20.0) for step in range(STEPS)]
    demand = {
        "stepSeconds": STEP_S,
        "runs": 3,
        "cpuCores": [round(2.0 * wave, 3) for wave in waves],
        "memoryBytes": [round((1.0 + wave) * GIB) for wave in waves],
    }
    profile = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "PhaseProfile",
        "metadata": {"name": f"class.job-{number:02d}", "namespace": namespace},
        "spec": {"class": True},
    }
    return profile, {"status": {"containers": [{"name": "main", "demand": demand}]}}


def pod(name: str, number: int, *, node: str = "", scheduler: str = "phasewise") -> Json:
    """A training job's pod; bound where `node` says so."""
    workload = workload_of(number)
    container = {
        "name": "main",
        "image": f"registry.example.com/vision/{workload}:2026-01-15-3f2a91c",
        "command": ["python", "-m", "train", "--config", "/etc/training/config.yaml", "--resume"],
        "env": [{"name": f"SETTING_{each:02d}", "value": f"value-of-setting-{each}"} for each in range(2)],
        "resources": {"requests": REQUESTS, "limits": {"memory": "16Gi"}},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{workload}-{job_of(number)}", "controller": True}
    metadata = {
        "name": name,
        "labels": {"phasewise.dev/workload": workload, "batch.kubernetes.io/job-name": owner["name"], "team": "vision"},
        "ownerReferences": [{**owner, "uid": f"00000000-0000-0000-0000-{job_of(number):012d}"}],
    }
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": metadata, "spec": {**spec, **({"nodeName": node} if node else {})}}
