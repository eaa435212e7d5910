"""The scene for single pods: a control plane with a real kube-scheduler."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import numpy as np
import requests

from extender.pods.curves import Grid
from placement_bench.burst import REAL_TIME
from placement_bench.choices import NODE, Pair, PlacedPod, specon_sums
from placement_bench.place import Bench, Json, pod
from placement_bench.schedulers import Contender, start_extender, start_with_extender
from placement_bench.watching import wait_for
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.profiles import PROFILES

EXTENDER_SCHEDULER = Contender("chooses", "Phasewise")
MIN_CELL_LEFT_S = 40.0
"""Seconds left of a cell of the forecast, so that all pods of a cluster start in the same cell."""
MAX_PROFILE_PODS = 64
"""Pods per PhaseProfile."""


class OnCluster:
    """Simulated nodes, and a real kube-scheduler with our extender as a process."""

    def __init__(self, bench: Bench, nodes: int) -> None:
        self._bench = bench
        self._nodes = bench.cluster.start_nodes(nodes, cpu=f"{NODE[0]:g}", memory=f"{NODE[1]:.0f}")
        no_hold = ("--hold", "0.001s")  # a probe must not count as a pod
        self._url = start_extender(bench, EXTENDER_SCHEDULER, REAL_TIME, *no_hold)
        start_with_extender(bench, EXTENDER_SCHEDULER, self._url)
        self._namespace = bench.namespace()
        self._profiles = 0
        self._sums: list[float] = []

    def learn(self, workload: str, demand: np.ndarray) -> None:
        curve = {"stepSeconds": Grid().step_s, "cpuCores": demand[0].tolist(), "memoryBytes": demand[1].tolist()}
        self._publish(f"class.{workload}", {"containers": [{"name": "main", "demand": curve}]}, of_class=True)

    def fill(self, nodes: int, held: Sequence[PlacedPod]) -> None:
        grid = Grid()
        time.sleep(max(0.0, MIN_CELL_LEFT_S - (grid.step_s - time.time() % grid.step_s)))
        uids = list(self._bench.pool.map(self._bind, range(len(held)), held))
        pods = [{"name": uid, "uid": uid, "category": each.category} for uid, each in zip(uids, held, strict=True)]
        for first in range(0, len(pods), MAX_PROFILE_PODS):
            self._profiles += 1
            self._publish(f"vpa-{self._profiles}", {"pods": pods[first : first + MAX_PROFILE_PODS]}, of_class=False)
        self._sums = specon_sums(nodes, held)
        self._wait_until_counted()

    def place(self, name: str, nodes: int, workload: str, requests: Pair) -> int:
        names = list(self._nodes.names[:nodes])
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        made = pod(name, EXTENDER_SCHEDULER.scheduler, self._nodes, requests, workload=workload, affinity=affinity)
        self._bench.submit_one(self._namespace, made)
        bound = self._bench.watch.bound
        wait_for(lambda: any(one.pod == name for one in bound(self._namespace)), f"{name} to be bound")
        chosen = names.index(next(one.node for one in bound(self._namespace) if one.pod == name))
        self._sums[chosen] += 2.0
        self._wait_until_counted()
        return chosen

    def clear(self) -> None:
        self._bench.clear([self._namespace])

    def close(self) -> None:
        self._nodes.remove()

    def _bind(self, number: int, held: PlacedPod) -> str:
        where = {"workload": held.workload, "nodeName": self._nodes.names[held.node]}
        made = pod(f"held-{number}", EXTENDER_SCHEDULER.scheduler, self._nodes, held.requests, **where)
        return str(self._bench.api.create(path_of(PODS, self._namespace), made)["metadata"]["uid"])

    def _publish(self, name: str, status: Json, *, of_class: bool) -> None:
        where = path_of(PROFILES, self._namespace)
        body: Json = {"apiVersion": PROFILES[0], "kind": "PhaseProfile", "spec": {"class": of_class}}
        self._bench.api.create(where, {**body, "metadata": {"name": name, "namespace": self._namespace}})
        self._bench.api.patch(path_of(PROFILES, self._namespace, name, "status"), {"status": status})

    def _wait_until_counted(self) -> None:
        wanted = dict(zip(self._nodes.names, self._sums, strict=False))
        with requests.Session() as session:
            wait_for(lambda: self._counted(session, list(wanted)) == wanted, "the extender to count all pods")

    def _counted(self, session: requests.Session, names: Sequence[str]) -> dict[str, float]:
        """S of each node as the extender counts it, by asking about a pod that is never created."""
        metadata = {"name": "probe", "namespace": self._namespace, "uid": f"probe-{self._namespace}"}
        spec = {"schedulerName": EXTENDER_SCHEDULER.scheduler, "containers": [{"name": "main"}]}
        probe = {"metadata": metadata, "spec": spec}
        body = {"Pod": probe, "NodeNames": names}
        session.post(f"{self._url}/prioritize", json=body, timeout=10).raise_for_status()
        where = f"{self._url}/explain/{self._namespace}/probe"
        reply = session.get(where, params={"nodes": len(names)}, timeout=10).json()
        scores = {node["node"]: re.match(r"S = ([\d.]+)", node["scorers"]["specon"]["why"]) for node in reply["nodes"]}
        return {node: float(found.group(1)) for node, found in scores.items() if found}
