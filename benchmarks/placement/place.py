"""The cluster of the benchmark, with fast creation and deletion of pods, and a watch of their bindings."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.placement.recordings import demand_of_classes
from benchmarks.scale.objects import fast_api
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.watching.reflector import Reflector
from recommender.cluster.workloads.workload_class import WORKLOAD_LABEL
from tests.rig.cluster import Cluster, lent_or_own
from tests.rig.installing import MANIFESTS
from tests.rig.simulated.nodes import PARALLEL_REQUESTS, SimulatedNodes
from tests.rig.simulated.pods import template
from tests.rig.waiting import wait_until

BENCH_LABEL = "placement-bench"
Json = dict[str, Any]


@dataclass(frozen=True)
class PodSeen:
    key: ObjectKey
    node: str
    phase: str
    unschedulable: bool

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Bound:
    """Binding of a pod, seen at `at_s` (monotonic seconds)."""

    pod: str
    node: str
    at_s: float


class PodWatch:
    """Follows pods labelled `BENCH_LABEL` from `start` to `stop`: bindings in order, and when they were seen."""

    def __init__(self, api: Api) -> None:
        self._lock = threading.Lock()
        self._pods: dict[ObjectKey, PodSeen] = {}
        self._bound: dict[str, list[Bound]] = {}
        self._started: dict[ObjectKey, float] = {}
        self._reflector = Reflector(api, path_of(PODS), _seen, label_selector=BENCH_LABEL, on_change=self._changed)

    def start(self) -> PodWatch:
        self._reflector.start()
        wait_until(lambda: self._reflector.synced, "the watch of the bench's pods")
        return self

    def stop(self) -> None:
        self._reflector.stop()

    @property
    def lists(self) -> int:
        """Number of lists; after more than one, intermediate states may have been missed."""
        return self._reflector.lists

    def pods(self, namespace: str) -> Mapping[str, PodSeen]:
        with self._lock:
            return {key.name: pod for key, pod in self._pods.items() if key.namespace == namespace}

    def bound(self, namespace: str) -> Sequence[Bound]:
        """Bindings so far, in the order of the API server."""
        with self._lock:
            return list(self._bound.get(namespace, ()))

    def started(self, namespace: str) -> Mapping[str, float]:
        """When each pod was first seen running, monotonic seconds."""
        with self._lock:
            return {key.name: at_s for key, at_s in self._started.items() if key.namespace == namespace}

    def forget(self, namespace: str) -> None:
        with self._lock:
            self._bound.pop(namespace, None)
            self._started = {key: at_s for key, at_s in self._started.items() if key.namespace != namespace}

    def _changed(self, old: PodSeen | None, new: PodSeen | None) -> None:
        now_s = time.monotonic()
        with self._lock:
            if new is None:
                if old is not None:
                    self._pods.pop(old.key, None)
                return
            self._pods[new.key] = new
            if new.node and (old is None or not old.node):
                self._bound.setdefault(new.key.namespace, []).append(Bound(new.key.name, new.node, now_s))
            if new.phase == "Running" or new.ended:
                self._started.setdefault(new.key, now_s)


def _seen(raw: Mapping[str, Any]) -> PodSeen:
    metadata, status = raw["metadata"], raw.get("status", {})
    conditions = status.get("conditions") or ()
    return PodSeen(
        ObjectKey(metadata["namespace"], metadata["name"]),
        raw["spec"].get("nodeName", ""),
        status.get("phase", ""),
        any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions),
    )


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    wait_until(condition, what, timeout_s=timeout_s, every_s=0.02)


@dataclass(frozen=True)
class Bench:
    """The cluster, a fast API client, and the watch of the benchmark's pods."""

    cluster: Cluster
    api: Api
    watch: PodWatch
    pool: ThreadPoolExecutor

    def namespace(self) -> str:
        return self.cluster.namespace("placement")

    def publish(self, namespace: str, name: str, status: Json, *, of_class: bool) -> None:
        """Write a PhaseProfile, as the live recommender would."""
        body: Json = {"apiVersion": PROFILES[0], "kind": "PhaseProfile", "spec": {"class": of_class}}
        body["metadata"] = {"name": name, "namespace": namespace}
        self.api.create(path_of(PROFILES, namespace), body)
        self.api.patch(path_of(PROFILES, namespace, name, "status"), {"status": status})

    def publish_demand(self, namespace: str, workload: str, demand: Mapping[str, Any]) -> None:
        """Write the profile of a class."""
        status = {"containers": [{"name": "main", "demand": demand}]}
        self.publish(namespace, f"class.{workload}", status, of_class=True)

    def publish_recorded(self, namespace: str, speed: float) -> None:
        """Write the profiles of all recorded classes."""
        for workload, demand in demand_of_classes(speed).items():
            self.publish_demand(namespace, workload, demand)

    def submit(self, namespace: str, made: Json) -> Json:
        created: Json = self.api.create(path_of(PODS, namespace), made)
        return created

    def submit_all(self, namespace: str, pods: Iterable[Json]) -> None:
        list(self.pool.map(lambda made: self.submit(namespace, made), pods))

    def clear(self, namespaces: Sequence[str]) -> None:
        """Delete all pods without grace period, and wait until the watch has seen it."""
        for namespace in namespaces:
            self.cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        wait_for(lambda: not any(self.watch.pods(namespace) for namespace in namespaces), "the pods to go")
        for namespace in namespaces:
            self.watch.forget(namespace)


def pod(
    name: str,
    scheduler: str,
    nodes: SimulatedNodes,
    needs: tuple[float, float],
    *,
    workload: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod with one container that requests `needs` (cores, bytes) on one of the nodes."""
    own = {BENCH_LABEL: "", **({WORKLOAD_LABEL: workload} if workload else {}), **(labels or {})}
    requests = {"cpu": f"{round(needs[0] * 1000)}m", "memory": str(round(needs[1]))}
    spec |= {"schedulerName": scheduler, "restartPolicy": "Never"}
    made = template(nodes.selector, requests=requests, labels=own, annotations=annotations, **spec)
    return {"metadata": {"name": name, **made["metadata"]}, "spec": made["spec"]}


@contextmanager
def bench_cluster(lent: Cluster | None = None, logs_to: Path | None = None) -> Iterator[Bench]:
    """A cluster with our resources and roles: the one that is lent, or one that is stopped afterwards."""
    with lent_or_own(lent, f"bench-{os.getpid()}", logs_to) as cluster:
        cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "extender" / "rbac.yaml")
        api = fast_api(cluster)
        watch = PodWatch(api).start()
        try:
            with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
                yield Bench(cluster, api, watch, pool)
        finally:
            watch.stop()
