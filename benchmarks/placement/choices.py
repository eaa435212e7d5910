"""Single pods on loaded clusters: do they go where the forecast peak is lowest, or else where S is smallest?"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import requests

from benchmarks.placement.burst import REAL_TIME
from benchmarks.placement.place import Bench, pod, wait_for
from benchmarks.placement.schedulers import Contender, Pair, start_extender, start_with_extender
from extender.pods.curves import Grid
from recommender.base.units import BYTES_PER_GIB

NODE = (16.0, 64.0 * BYTES_PER_GIB)
PEAK_TOLERANCE = 0.05
"""Peaks that differ by less are similar."""
WEIGHTS: Mapping[str, float] = {"progressing": 2.0, "watching": 1.5, "converged": 1.0}
"""Weights in SpeCon's S; a pod of unknown category counts as progressing."""
CLASSES = 8
MAX_NODES = 12
PODS_PER_CLUSTER = 50
CHOOSES = Contender("chooses", "Phasewise")
MIN_CELL_LEFT_S = 40.0
"""Seconds left of a cell of the forecast, so that all pods of a cluster start in the same cell."""
MAX_PROFILE_PODS = 64


class PlacedPod(NamedTuple):
    """A pod on a node; its class is empty without a history."""

    node: int
    workload: str
    category: str
    requests: Pair


class OnCluster:
    """Simulated nodes of size `NODE`, and a real kube-scheduler with our extender as a process."""

    def __init__(self, bench: Bench, nodes: int) -> None:
        self._bench = bench
        self._nodes = bench.cluster.start_nodes(nodes, cpu=f"{NODE[0]:g}", memory=f"{NODE[1]:.0f}")
        self._url = start_extender(bench, CHOOSES, REAL_TIME, "--hold", "0.001s")  # a probe must not count as a pod
        start_with_extender(bench, CHOOSES, self._url)
        self._namespace = bench.namespace()
        self._clusters = self._profiles = 0
        self._sums: list[float] = []

    def learn(self, workload: str, demand: np.ndarray) -> None:
        """Publish the demand of a class: (2, cells) of the default grid."""
        curve = {"stepSeconds": Grid().step_s, "cpuCores": demand[0].tolist(), "memoryBytes": demand[1].tolist()}
        self._bench.publish_demand(self._namespace, workload, curve)

    def fill(self, nodes: int, held: Sequence[PlacedPod]) -> None:
        """Put pods on the first nodes; return once the extender counts them."""
        step_s = Grid().step_s
        time.sleep(max(0.0, MIN_CELL_LEFT_S - (step_s - time.time() % step_s)))
        self._clusters += 1  # in the names, as kwok may delete a pod of the last one late, by its name
        names = [f"held-{self._clusters}-{number}" for number in range(len(held))]
        uids = list(self._bench.pool.map(self._bind, names, held))
        pods = [{"name": uid, "uid": uid, "category": each.category} for uid, each in zip(uids, held, strict=True)]
        for first in range(0, len(pods), MAX_PROFILE_PODS):
            self._profiles += 1
            some = {"pods": pods[first : first + MAX_PROFILE_PODS]}
            self._bench.publish(self._namespace, f"vpa-{self._profiles}", some, of_class=False)
        self._sums = specon_sums(nodes, held)
        self._wait_until_counted()

    def place(self, name: str, nodes: int, workload: str, requests: Pair) -> int:
        """Place a pod on one of the first nodes; return its number."""
        names = list(self._nodes.names[:nodes])
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        made = pod(name, CHOOSES.scheduler, self._nodes, requests, workload=workload, affinity=affinity)
        self._bench.submit(self._namespace, made)
        bound = self._bench.watch.bound
        wait_for(lambda: any(one.pod == name for one in bound(self._namespace)), f"{name} to be bound")
        chosen = names.index(next(one.node for one in bound(self._namespace) if one.pod == name))
        self._sums[chosen] += WEIGHTS["progressing"]
        self._wait_until_counted()
        return chosen

    def clear(self) -> None:
        self._bench.clear([self._namespace])

    def close(self) -> None:
        self._nodes.remove()

    def _bind(self, name: str, held: PlacedPod) -> str:
        node = self._nodes.names[held.node]
        made = pod(name, CHOOSES.scheduler, self._nodes, held.requests, workload=held.workload, nodeName=node)
        return str(self._bench.submit(self._namespace, made)["metadata"]["uid"])

    def _wait_until_counted(self) -> None:
        wanted = dict(zip(self._nodes.names, self._sums, strict=False))
        with requests.Session() as session:
            wait_for(lambda: self._counted(session, list(wanted)) == wanted, "the extender to count all pods")

    def _counted(self, session: requests.Session, names: Sequence[str]) -> dict[str, float]:
        """S of each node as the extender counts it, by asking about a pod that is never created."""
        metadata = {"name": "probe", "namespace": self._namespace, "uid": f"probe-{self._namespace}"}
        spec = {"schedulerName": CHOOSES.scheduler, "containers": [{"name": "main"}]}
        body: dict[str, Any] = {"Pod": {"metadata": metadata, "spec": spec}, "NodeNames": names}
        session.post(f"{self._url}/prioritize", json=body, timeout=10).raise_for_status()
        where = f"{self._url}/explain/{self._namespace}/probe"
        reply = session.get(where, params={"nodes": len(names)}, timeout=10).json()
        scores = {node["node"]: re.match(r"S = ([\d.]+)", node["scorers"]["specon"]["why"]) for node in reply["nodes"]}
        return {node: float(found.group(1)) for node, found in scores.items() if found}


@dataclass(frozen=True)
class Choice:
    """One placement: of each node the peak share in use with the pod (0 without histories), and S."""

    peaks: Sequence[float]
    sums: Sequence[float]
    chosen: int


@dataclass(frozen=True)
class Tally:
    """Counts of placements without overload.

    `lowest`, `distinct_peaks`: Placements on the node of the lowest peak, of those where no other peak is within 5
        points of it.
    `smallest`, `similar_peaks`: Placements on the node of smallest S within 5 points of the lowest peak, of those where
        several are.
    """

    title: str
    lowest: int
    distinct_peaks: int
    smallest: int
    similar_peaks: int


def tally_of(title: str, choices: Sequence[Choice]) -> Tally:
    lowest = distinct_peaks = smallest = similar_peaks = 0
    for choice in choices:
        peaks, sums = np.array(choice.peaks), np.array(choice.sums)
        if peaks.max() > 1.0:
            continue
        near = np.flatnonzero(peaks - peaks.min() < PEAK_TOLERANCE)
        if len(near) == 1:
            distinct_peaks += 1
            lowest += int(near[0]) == choice.chosen
        else:
            similar_peaks += 1
            smallest += choice.chosen in near and bool(sums[choice.chosen] == sums[near].min())
    return Tally(title, lowest, distinct_peaks, smallest, similar_peaks)


def below_capacity(scene: OnCluster, clusters: int, seed: int, progress: Callable[[int], None]) -> Tally:
    """Clusters of 3 to 12 nodes with up to three jobs per node, and one more to place; histories for all."""
    chance, cells, choices = np.random.default_rng(seed), Grid().cells, list[Choice]()
    curves = [_curve(chance, cells) for _ in range(CLASSES)]
    for number, curve in enumerate(curves):
        scene.learn(f"c{number}", curve)
    small = (0.1, 0.1 * BYTES_PER_GIB)
    for number in range(clusters):
        nodes = int(chance.integers(3, MAX_NODES + 1))
        kinds = [chance.integers(CLASSES, size=chance.integers(0, 4)).tolist() for _ in range(nodes)]
        held = [PlacedPod(at, f"c{kind}", _category(chance), small) for at in range(nodes) for kind in kinds[at]]
        kind = int(chance.integers(CLASSES))
        scene.fill(nodes, held)
        chosen = scene.place(f"new-{number}", nodes, f"c{kind}", small)
        scene.clear()
        load = np.stack([np.sum([curves[each] for each in (*kinds[node], kind)], axis=0) for node in range(nodes)])
        peaks = (load / np.array(NODE)[:, None]).max(axis=(1, 2))
        choices.append(Choice(peaks.tolist(), specon_sums(nodes, held), chosen))
        progress(number + 1)
    return tally_of(f"histories, 3 to {MAX_NODES} nodes", choices)


def without_histories(scene: OnCluster, nodes: int, pods: int, seed: int, progress: Callable[[int], None]) -> Tally:
    """Unequal pods without histories: at most one per node and `PODS_PER_CLUSTER` in all, then a new cluster."""
    chance, choices = np.random.default_rng(seed), list[Choice]()
    while len(choices) < pods:
        held = [
            PlacedPod(node, "", _category(chance), _requests(chance))
            for node in range(nodes)
            for _ in range(chance.integers(0, 6))
        ]
        scene.fill(nodes, held)
        sums = specon_sums(nodes, held)
        for _ in range(min(nodes, PODS_PER_CLUSTER, pods - len(choices))):
            chosen = scene.place(f"new-{len(choices)}", nodes, "", _requests(chance))
            choices.append(Choice([0.0] * nodes, list(sums), chosen))
            sums[chosen] += WEIGHTS["progressing"]
            progress(len(choices))
        scene.clear()
    return tally_of(f"no histories, {nodes} nodes", choices)


def specon_sums(nodes: int, held: Sequence[PlacedPod]) -> list[float]:
    """S of each node."""
    return [sum(WEIGHTS[each.category] for each in held if each.node == node) for node in range(nodes)]


def _category(chance: np.random.Generator) -> str:
    return list(WEIGHTS)[chance.integers(len(WEIGHTS))]


def _curve(chance: np.random.Generator, cells: int) -> np.ndarray:
    """(2, cells): low demand with a high stretch."""
    begins, lasts = int(chance.integers(0, cells - 3)), int(chance.integers(3, 12))
    curve = np.repeat(chance.uniform([0.2, 0.5 * BYTES_PER_GIB], [1.0, 2.0 * BYTES_PER_GIB])[:, None], cells, axis=1)
    curve[:, begins : begins + lasts] += chance.uniform([0.5, BYTES_PER_GIB], [5.0, 16.0 * BYTES_PER_GIB])[:, None]
    return curve.round(3)


def _requests(chance: np.random.Generator) -> Pair:
    return round(float(chance.uniform(0.1, 2.0)), 3), float(round(chance.uniform(0.1, 8.0) * BYTES_PER_GIB))
