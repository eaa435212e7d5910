"""The cluster of the benchmark, with fast creation and deletion of pods."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.cluster import Cluster, lent_or_own
from local_cluster.installing import MANIFESTS
from local_cluster.simulated.nodes import PARALLEL_REQUESTS, SimulatedNodes
from local_cluster.simulated.pods import template
from placement_bench.recordings import demand_of_classes
from placement_bench.watching import BENCH_LABEL, PodWatch, all_gone, wait_for
from recommender.cluster.access.connection import Api
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.profiles import PROFILES
from scale_bench.objects import fast_api

WORKLOAD_LABEL = "phasewise.dev/workload"
Json = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    cluster: Cluster
    api: Api
    watch: PodWatch
    pool: ThreadPoolExecutor

    def namespace(self) -> str:
        return self.cluster.namespace("placement")

    def publish(self, namespace: str, speed: float) -> None:
        """Write PhaseProfiles of all recorded classes, as the live recommender would."""
        for workload, demand in demand_of_classes(speed).items():
            name = f"class.{workload}"
            body: Json = {"apiVersion": PROFILES[0], "kind": "PhaseProfile"}
            body |= {"metadata": {"name": name, "namespace": namespace}, "spec": {"class": True}}
            self.api.create(path_of(PROFILES, namespace), body)
            status = {"status": {"containers": [{"name": "main", "demand": demand}]}}
            self.api.patch(path_of(PROFILES, namespace, name, "status"), status)

    def submit(self, namespace: str, pods: Iterable[Json]) -> None:
        list(self.pool.map(lambda made: self.submit_one(namespace, made), pods))

    def submit_one(self, namespace: str, made: Json) -> None:
        self.api.create(path_of(PODS, namespace), made)

    def clear(self, namespaces: Sequence[str]) -> None:
        """Delete all pods without grace period, and wait until the watch has seen it."""
        for namespace in namespaces:
            self.cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        wait_for(lambda: all_gone(self.watch, namespaces), "the pods to go")
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
    made = template(
        nodes.selector,
        requests={"cpu": f"{round(needs[0] * 1000)}m", "memory": str(round(needs[1]))},
        labels=own,
        annotations=annotations,
        schedulerName=scheduler,
        restartPolicy="Never",
        **spec,
    )
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
