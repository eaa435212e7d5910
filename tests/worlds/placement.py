"""Small clusters without servers: pods, nodes and profiles as API objects, and the extender's state of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from extender.placing.decisions import Decisions
from extender.placing.placer import Placer
from extender.pods.pod import CPU_REASON, MEMORY_REASON, pod_reader, profile_reader, read_node, with_time_limit
from extender.protocol.wire import ExtenderArgs
from extender.scoring.request import PlacementRequest
from extender.scoring.scorers import NEUTRAL
from extender.settings import Settings
from extender.view.state import ClusterState

Json = dict[str, Any]

NOON_S = 1_800_000_000.0
"""A time at which a cell of the default grid begins."""

GIB = float(1 << 30)

RESTLESS = [2.0] * 119 + [5.0]
"""Cores: 2 on average for five hours, of a pod that needs up to 5. Its variance, in cores squared, is half of
2 (5 - 2): 3. It is uniformly distributed within the root of three times that, 3 cores, of the 2."""

NO_MEMORY, NO_CPU = (with_time_limit(reason, 7200.0) for reason in (MEMORY_REASON, CPU_REASON))
"""Reasons for refusing nodes, with the default patience."""


@dataclass
class Clock:
    now_s: float = NOON_S

    def __call__(self) -> float:
        return self.now_s


def pod_json(
    name: str,
    *,
    cpu: str | None = "1",
    memory: str | None = "1Gi",
    node: str = "",
    scheduler: str = "phasewise",
    workload: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "",
    uid: str = "",
    limits: Mapping[str, str] | None = None,
    started: str = "",
    extended: Mapping[str, str] | None = None,
    namespace: str = "team",
    **spec: Any,
) -> Json:
    requests = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(extended or {})}
    own = {"phasewise.dev/workload": workload} if workload else {}
    container = {"name": "main", "image": "x", "resources": {"requests": requests, "limits": dict(limits or {})}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "labels": {**own, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"schedulerName": scheduler, "nodeName": node, "containers": [container], **spec},
        "status": {"phase": phase or ("Running" if node else "Pending"), **({"startTime": started} if started else {})},
    }


def node_json(
    name: str,
    cpu: str = "8",
    memory: str = "32Gi",
    labels: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    allocatable = {"cpu": cpu, "memory": memory, **(extended or {})}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "status": {"allocatable": allocatable},
    }


def as_schedulers_send(pod: Json, names: Sequence[str]) -> bytes:
    """ExtenderArgs in exactly kube-scheduler's form: fields in the order of its types, without whitespace."""
    first = ("name", "generateName", "namespace", "uid", "resourceVersion")
    metadata = {**{key: pod["metadata"][key] for key in first if key in pod["metadata"]}, **pod["metadata"]}
    sent = {"metadata": metadata, "spec": pod["spec"], "status": pod["status"]}
    args = {"Pod": sent, "Nodes": None, "NodeNames": list(names)}
    return json.dumps(args, separators=(",", ":"), ensure_ascii=False).encode()


def class_json(
    workload: str,
    cpu_cores: Sequence[float],
    memory_gib: Sequence[float],
    step_s: float = 150.0,
    namespace: str = "team",
) -> Json:
    """Profile of a workload class with the demand of container `main` by time since start."""
    demand = {
        "stepSeconds": step_s,
        "runs": 3,
        "cpuCores": list(cpu_cores),
        "memoryBytes": [gib * GIB for gib in memory_gib],
    }
    return {
        "kind": "PhaseProfile",
        "metadata": {"name": f"class.{workload}", "namespace": namespace},
        "spec": {"class": True},
        "status": {"containers": [{"name": "main", "demand": demand}]},
    }


def profile_json(name: str, categories: Mapping[str, str]) -> Json:
    pods = [{"name": uid, "uid": uid, "category": category} for uid, category in categories.items()]
    return {
        "kind": "PhaseProfile",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"class": False},
        "status": {"pods": pods},
    }


class World:
    """A cluster without API server: put objects in, and call the extender as a scheduler does."""

    def __init__(self, settings: Settings | None = None, *objects: Json) -> None:
        self.settings = settings or Settings()
        self.clock = Clock()
        self.state = ClusterState(self.settings, self.clock, self.clock)
        self.read_pod = pod_reader(lambda _: (), self.settings.schedulers)
        self.read_profile = profile_reader(self.settings.grid)
        self.decisions = Decisions()
        self.placer = Placer(self.state, self.settings, self.decisions, self.read_pod, self.clock)
        self.put(*objects)

    def put(self, *objects: Json) -> World:
        for raw in objects:
            if raw["kind"] == "Node":
                self.state.put_node(read_node(raw))
            elif raw["kind"] == "Pod":
                self.state.put_pod(self.read_pod(raw))
                if raw["spec"]["nodeName"]:
                    self.decisions.bound(raw["metadata"]["uid"], raw["spec"]["nodeName"])
            else:
                self.state.put_profile(self.read_profile(raw))
        return self

    @property
    def names(self) -> list[str]:
        return sorted(self.state.snapshot().table.index)

    def filter(self, pod: Json, names: Sequence[str] | None = None) -> dict[str, str]:
        return dict(self.placer.filter(ExtenderArgs(pod, list(names or self.names), None)).refused)

    def prioritize(self, pod: Json, names: Sequence[str] | None = None) -> dict[str, int]:
        asked = list(names or self.names)
        scored = self.placer.prioritize(ExtenderArgs(pod, asked, None))
        judged = zip(scored.places.tolist(), scored.scores.tolist(), strict=True)
        return dict.fromkeys(scored.neutral, NEUTRAL) | {scored.known.names[place]: score for place, score in judged}

    def place(self, pod: Json, names: Sequence[str] | None = None) -> str:
        """Call `filter` and `prioritize`; return the favourite node, or an empty string if all nodes are refused."""
        asked = list(names or self.names)
        refused = self.placer.filter(ExtenderArgs(pod, asked, None)).refused
        left = [name for name in asked if name not in refused]
        if not left:
            return ""
        if len(left) > 1:
            self.placer.prioritize(ExtenderArgs(pod, left, None))
        decision = self.decisions.of(pod["metadata"]["uid"])
        return decision.favourite if decision is not None else ""

    def request(self, pod: Json, names: Sequence[str] | None = None) -> PlacementRequest:
        read = self.read_pod(pod)
        snapshot, footprint, peers, _ = self.state.view_of(read)
        places = np.array([snapshot.table.index[name] for name in names or self.names])
        return PlacementRequest(read, footprint, snapshot, places, peers)
