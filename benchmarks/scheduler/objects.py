"""Thousands of objects: nodes, workload classes with histories, and their pods.

All are created by plain requests to the API server. Pods are only bound, not run. Controllers and the default scheduler
are stopped first, since there are neither kubelets nor Jobs; pausing them would make the API server wait for watchers
that do not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rich.progress import Progress

from benchmarks.scheduler.place import BenchCluster
from recommender.base.units import BYTES_PER_GIB
from tests.rig.simulated.nodes import PARALLEL_REQUESTS, in_parallel
from tests.rig.waiting import wait_until

Json = dict[str, Any]

CLASSES = 20
"""Workload classes with a history per namespace; pods of other classes count by their requests."""

UNKNOWN_CLASSES = 10
STEP_S, STEPS = 15, 240
"""Demand of a class as the recommender writes it: an hour since the start of a pod."""

NAMESPACES = 20
PODS_OF_A_JOB = 10
WORKER = "gpu-pool-a-node-{:05d}.zone1"
"""28 characters, as in clouds."""

REQUESTS = {"cpu": "2", "memory": "4Gi"}


def node_name(number: int) -> str:
    return WORKER.format(number)


def namespace_of(pod: int) -> str:
    return f"team-{pod % NAMESPACES:02d}"


def job_of(pod: int) -> int:
    """Pods of one job share everything but their names."""
    return pod // (NAMESPACES * PODS_OF_A_JOB)


def workload_of(pod: int) -> str:
    """Workload class; two of three jobs have one with a history."""
    return f"job-{job_of(pod) % (CLASSES + UNKNOWN_CLASSES):02d}"


def classes_of(pods: Iterable[int]) -> list[tuple[str, int]]:
    """(namespace, number) of each class with a history that occurs among these pods."""
    found = {(namespace_of(pod), job_of(pod) % (CLASSES + UNKNOWN_CLASSES)) for pod in pods}
    return sorted((namespace, number) for namespace, number in found if number < CLASSES)


def node(number: int) -> Json:
    """A node too large to become full."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    return {"metadata": {"name": node_name(number)}, "status": {"capacity": capacity, "allocatable": capacity}}


def learned_profile(namespace: str, number: int) -> tuple[Json, Json]:
    """PhaseProfile of a class, and its status: CPU demand is a sine wave with a period of its own."""
    waves = [1.0 + math.sin(step * (number + 1) / 20.0) for step in range(STEPS)]
    demand = {
        "stepSeconds": STEP_S,
        "runs": 3,
        "cpuCores": [round(2.0 * wave, 3) for wave in waves],
        "memoryBytes": [round((1.0 + wave) * BYTES_PER_GIB) for wave in waves],
    }
    profile = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "PhaseProfile",
        "metadata": {"name": f"class.job-{number:02d}", "namespace": namespace},
        "spec": {"class": True},
    }
    return profile, {"status": {"containers": [{"name": "main", "demand": demand}]}}


def pod(name: str, number: int, *, node: str = "", scheduler: str = "phasewise") -> Json:
    """A pod of a training job, bound if `node` is given."""
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


def prepare(bench: BenchCluster, namespaces: Iterable[str], classes: Iterable[tuple[str, int]]) -> None:
    """Create namespaces and workload classes with histories, and stop controllers and scheduler."""
    names = list(namespaces)
    in_parallel(lambda name: bench.api.create("/api/v1/namespaces", {"metadata": {"name": name}}), names)
    account = bench.cluster.core.read_namespaced_service_account
    for name in names:
        wait_until(partial(account, "default", name), f"the account of {name}", every_s=0.02)
    for controller in ("kube-controller-manager", "kube-scheduler"):
        bench.cluster.servers[controller].stop()

    def publish(of: tuple[str, int]) -> None:
        profile, status = learned_profile(*of)
        path = f"/apis/phasewise.dev/v1alpha1/namespaces/{of[0]}/phaseprofiles"
        bench.api.create(path, profile)
        bench.api.patch(f"{path}/{profile['metadata']['name']}/status", status)

    in_parallel(publish, classes)


def fill(bench: BenchCluster, progress: Progress, nodes: range, pods: range, all_nodes: int) -> None:
    """Create nodes and bound pods with these numbers, pods spread evenly over the first `all_nodes` nodes."""

    def bound(number: int) -> None:
        at = node_name(number % all_nodes)
        body = pod(f"{workload_of(number)}-{number}", number, node=at)
        bench.api.create(f"/api/v1/namespaces/{namespace_of(number)}/pods", body)

    _with_progress(progress, "nodes", nodes, lambda number: bench.api.create("/api/v1/nodes", node(number)))
    _with_progress(progress, "pods", pods, bound)


def waiting(bench: BenchCluster, progress: Progress, numbers: range) -> list[Json]:
    """Create pending pods with these numbers; return them as a scheduler would send them."""
    made: list[Json] = []

    def create(number: int) -> None:
        path = f"/api/v1/namespaces/{namespace_of(number)}/pods"
        created = bench.api.create(path, pod(f"waiting-{number}", number))
        del created["metadata"]["managedFields"]
        made.append({part: value for part, value in created.items() if part not in ("kind", "apiVersion")})

    _with_progress(progress, "waiting pods", numbers, create)
    return made


def _with_progress(progress: Progress, what: str, numbers: range, make: Callable[[int], object]) -> None:
    task = progress.add_task(f"creating {len(numbers):,} {what}", total=len(numbers))
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as workers:
        for _ in workers.map(make, numbers):
            progress.advance(task)
    progress.remove_task(task)
