"""The page of nodes: requests, use and forecast of each, and pending pods and gangs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from extender.dashboard.job import RefusedPod, Running, by_resource
from extender.dashboard.watching import ClusterView
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.records import CPU, MEMORY

Json = dict[str, Any]

GANG = "phasewise.dev/gang"
HORIZON_S = 3600.0

MAX_NODES = 200
MAX_PEAKS = 3
MAX_PODS = 50
MAX_MOVES = 200


def nodes(seen: ClusterView) -> Json:
    """The load of nodes (the fullest first), pending pods and gangs (the longest waiting first), and moves. A pod
    without a profile is forecast to use its requests."""
    by_node: dict[str, list[Pod]] = {}
    for pod in seen.pods.values():
        if pod.node and not pod.finished:
            by_node.setdefault(pod.node, []).append(pod)
    running: dict[str, list[tuple[Running, Mapping[str, Any]]]] = {}
    for job in seen.jobs.values():
        entries = job.profile.containers
        for one in job.containers:
            running.setdefault(one.node, []).append((one, entries.get(one.key.container, {})))
    rows = [
        _row(node.name, node.allocatable, by_node.get(node.name, []), running.get(node.name, []), seen.now_s)
        for node in seen.nodes.values()
    ]
    rows.sort(key=lambda row: (-max(row["share"]["forecast"]), row["node"]))
    gangs = sorted(_gangs(seen.pods), key=lambda gang: gang["since"])
    moves = [
        {"namespace": job.key.namespace, "name": job.key.name, "words": job.profile.move}
        for job in seen.jobs.values()
        if job.profile.move
    ]
    return {
        "now": seen.now_s,
        "count": len(rows),
        "nodes": rows[:MAX_NODES],
        "refused": _refused(seen.pods.values()),
        "gangs": gangs[:MAX_PODS],
        "gangsWaiting": len(gangs),
        "moves": moves[:MAX_MOVES],
        "movesCount": len(moves),
    }


def _row(
    name: str,
    allocatable: tuple[float, float],
    pods: list[Pod],
    ours: list[tuple[Running, Mapping[str, Any]]],
    now_s: float,
) -> Json:
    names = {one.key.pod for one, _ in ours}
    requests, forecast, used = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for pod in pods:
        for resource in (CPU, MEMORY):
            requests[resource] += pod.requests[resource]
            forecast[resource] += (pod.extra_requests if pod.key.name in names else pod.requests)[resource]
    for one, entry in ours:
        why = entry.get("why") or {}
        ahead = (why.get("forecastCpuCores"), why.get("forecastMemoryBytes"))
        for resource in (CPU, MEMORY):
            value = ahead[resource]
            forecast[resource] += value if isinstance(value, int | float) else _known(one.request[resource])
            used[resource] += _known(one.use[resource])
    return {
        "node": name,
        "pods": len(pods),
        "ours": len(names),
        "allocatable": by_resource(allocatable),
        "share": {
            what: [amount / whole if whole > 0.0 else 0.0 for amount, whole in zip(amounts, allocatable, strict=True)]
            for what, amounts in (("requests", requests), ("use", used), ("forecast", forecast))
        },
        "peaks": sorted(_peaks(ours, now_s), key=lambda peak: -peak["cpuCores"])[:MAX_PEAKS],
    }


def _peaks(ours: list[tuple[Running, Mapping[str, Any]]], now_s: float) -> Iterator[Json]:
    """The CPU peak in the coming hour of each pod with a known class, by the age of its container."""
    for one, entry in ours:
        demand = entry.get("demand") or {}
        cores = demand.get("cpuCores") or []
        step_s = demand.get("stepSeconds") or 0.0
        age_s = now_s - one.started_s
        if not (cores and step_s > 0.0 and age_s >= 0.0):
            continue
        first = int(age_s / step_s)
        coming = cores[first : first + max(1, int(HORIZON_S / step_s))]
        if coming:
            at = max(range(len(coming)), key=coming.__getitem__)
            yield {"pod": one.key.pod, "namespace": one.key.namespace, "inSeconds": at * step_s, "cpuCores": coming[at]}


def _gangs(pods: Mapping[ObjectKey, Pod]) -> Iterator[Json]:
    waiting = [pod for pod in pods.values() if GANG in pod.labels and not pod.node and not pod.finished]
    waiting.sort(key=lambda pod: (pod.key.namespace, pod.labels[GANG]))
    for (namespace, gang), members in groupby(waiting, key=lambda pod: (pod.key.namespace, pod.labels[GANG])):
        listed = list(members)
        yield {"namespace": namespace, "gang": gang, "waiting": len(listed), "since": min(p.created_s for p in listed)}


def _refused(pods: Iterable[Pod]) -> list[Json]:
    """Pods that are unschedulable, the longest waiting first."""
    waiting = [pod for pod in pods if isinstance(pod, RefusedPod)]
    waiting.sort(key=lambda pod: (math.isnan(pod.refused_since_s), pod.refused_since_s, pod.key))
    return [
        {"namespace": pod.key.namespace, "pod": pod.key.name, "since": pod.refused_since_s, "words": pod.refusal}
        for pod in waiting[:MAX_PODS]
    ]


def _known(amount: float) -> float:
    return 0.0 if math.isnan(amount) else amount
