"""Thousands of workloads, pods and VPAs on a real API server; the pods are not run.

Pods are as large as those of training jobs (two containers, environment, volumes, conditions; about 12 kB with what the
server adds). They are created bound to a node, and their status says that they run; controllers are paused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from recommender.cluster.access.connection import Api, connect
from tests.rig.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS, vpa
from tests.rig.rig import Rig
from tests.rig.simulated.nodes import PARALLEL_REQUESTS, in_parallel
from tests.rig.waiting import wait_until

Json = dict[str, Any]

PER_NAMESPACE = 100
"""Workloads in one namespace."""

CONTAINERS = ("main", "sync")
"""Containers of each pod: the training, and a sidecar that uploads its results."""

NODES = 100
IMAGE = "registry.example.com/vision/training:2026-01-15-3f2a91c"
RESOURCES = {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "4Gi"}}
"""More than any recording uses: these pods are not resized, and should not lack resources."""
STARTED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Size:
    """Number of VPAs, each with a StatefulSet, and of all containers of their pods."""

    vpas: int
    containers: int

    def pods(self) -> Iterator[tuple[str, str, int]]:
        """Namespace, workload and number of each pod, spread evenly."""
        for at in range(self.containers // len(CONTAINERS)):
            vpa, number = at % self.vpas, at // self.vpas
            yield namespace_of(vpa), workload_of(vpa), number


def namespace_of(vpa: int) -> str:
    return f"team-{vpa // PER_NAMESPACE:03d}"


def workload_of(vpa: int) -> str:
    return f"training-{vpa:05d}"


def fast_api(rig: Rig) -> Api:
    """API client without the client library, which spends more time on an object than the server."""
    return connect(rig.kubeconfig("admin"), user_agent="bench", qps=5000, burst=5000)


def populate(rig: Rig, size: Size) -> int:
    """Create all objects; return the mean size of a pod in bytes of JSON. Controllers and scheduler stay paused."""
    api = fast_api(rig)
    namespaces = sorted({namespace_of(number) for number in range(size.vpas)})
    in_parallel(lambda name: api.create("/api/v1/namespaces", _named(name)), namespaces)
    for name in namespaces:
        wait_until(partial(rig.core.read_namespaced_service_account, "default", name), "a service account")
    for controller in ("kube-controller-manager", "kube-scheduler"):
        rig.servers[controller].pause()
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    status = {"status": {"capacity": capacity, "allocatable": capacity}}
    in_parallel(lambda node: api.create("/api/v1/nodes", _named(f"node-{node:03d}") | status), range(NODES))

    def create_vpa(number: int) -> None:
        path = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace_of(number)}/{AUTOSCALERS}"
        api.create(path, vpa("StatefulSet", workload_of(number), update_mode="Off"))

    def create_pod(numbered: tuple[int, tuple[str, str, int]]) -> int:
        at, (namespace, workload, number) = numbered
        return _pod(api, namespace, workload, number, uids[workload], at)

    with ThreadPoolExecutor(PARALLEL_REQUESTS) as workers:
        uids = dict(workers.map(lambda number: _workload(api, number), range(size.vpas)))
        in_parallel(create_vpa, range(size.vpas))
        sizes = list(workers.map(create_pod, enumerate(size.pods())))
    return sum(sizes) // len(sizes)


def _named(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, **more}}


def _workload(api: Api, vpa: int) -> tuple[str, str]:
    name = workload_of(vpa)
    spec = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": _labels(name, 0)}, "spec": _pod_spec("")},
    }
    path = f"/apis/apps/v1/namespaces/{namespace_of(vpa)}/statefulsets"
    return name, api.create(path, {**_named(name), "spec": spec})["metadata"]["uid"]


def _pod(api: Api, namespace: str, workload: str, number: int, uid: str, at: int) -> int:
    name = f"{workload}-{number}"
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": workload,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "labels": _labels(workload, number),
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "experiment/config": "x" * 300},
        "ownerReferences": [owner],
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.create(path, {**_named(name, **metadata), "spec": _pod_spec(f"node-{at % NODES:03d}")})
    running = api.patch(f"{path}/{name}/status", {"status": _status(at)})
    return len(json.dumps(running))


def _labels(workload: str, number: int) -> dict[str, str]:
    return {
        "app": workload,
        "app.kubernetes.io/name": "training",
        "app.kubernetes.io/instance": workload,
        "statefulset.kubernetes.io/pod-name": f"{workload}-{number}",
        "team": "vision",
        "queue": "default",
    }


def _pod_spec(node: str) -> Json:
    containers = [
        {
            "name": name,
            "image": IMAGE,
            "command": ["python", "-m", "train", "--config", "/etc/training/config.yaml", "--resume"],
            "env": [{"name": f"SETTING_{number:02d}", "value": f"value-of-setting-{number}"} for number in range(20)],
            "resources": RESOURCES,
            "volumeMounts": [{"name": f"volume-{number}", "mountPath": f"/mnt/{number}"} for number in range(4)],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
        }
        for name in CONTAINERS
    ]
    volumes = [{"name": f"volume-{number}", "emptyDir": {}} for number in range(4)]
    return {"containers": containers, "volumes": volumes, **({"nodeName": node} if node else {})}


def _status(at: int) -> Json:
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": STARTED}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    containers = [
        {
            "name": name,
            "image": IMAGE,
            "imageID": f"registry.example.com/vision/training@sha256:{at:064x}",
            "containerID": f"containerd://{at:060x}{name}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "resources": RESOURCES,
            "state": {"running": {"startedAt": STARTED}},
        }
        for name in CONTAINERS
    ]
    address = f"10.{at >> 16 & 255}.{at >> 8 & 255}.{at & 255}"
    return {
        "phase": "Running",
        "startTime": STARTED,
        "hostIP": "192.0.2.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": ready,
        "containerStatuses": containers,
        "qosClass": "Burstable",
    }
