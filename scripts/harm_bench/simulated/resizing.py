"""Resizes in place: what the API server accepts, and what the kubelet makes of it (Kubernetes 1.34)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from harm_bench.simulated.pods import Container, Node, Obstacle, Pod, Resize, Resources, Workload, qos_of
from harm_bench.simulated.tally import Tally
from recommender.records import CPU, MEMORY, RESOURCES


def ask(pod: Pod, wanted: Mapping[str, Resources]) -> bool:
    """Patch `pods/<name>/resize`; False, and nothing is changed, where it would put the pod in another QoS class."""
    after = [wanted.get(container.spec.name, container.wanted) for container in pod.containers]
    if qos_of(after) != qos_of([container.wanted for container in pod.containers]):
        return False
    for container, resources in zip(pod.containers, after, strict=True):
        container.wanted = resources
    return True


def resize(workload: Workload, pod: Pod, tally: Tally, now_s: float) -> None:
    """What the kubelet does about a pod whose spec asks for something else than its containers have."""
    if all(container.wanted == container.has for container in pod.containers):
        if pod.resize is not None:
            pod.resize = None
            workload.version += 1
        return
    reason = _obstacle(pod, workload.node, now_s)
    if reason is not None:
        if pod.resize is None or pod.resize.reason != reason:
            pod.resize = Resize(reason, now_s)
            workload.version += 1
        return
    for container in pod.containers:
        if _restarts(container):
            container.running, container.starts_s, container.ended_s = False, now_s, now_s
            container.last_kill_s = math.nan
            container.restarts += 1
            tally.restarts += 1
        container.has = container.wanted
    pod.resize = None
    tally.updates += 1
    workload.version += 1


def fits(pod: Pod, node: Node) -> bool:
    """Whether a node has as much as a pod's spec requests."""
    return all(
        sum(c.wanted.requests[i] for c in pod.containers if c.wanted.requests[i] >= 0.0) <= node.allocatable[i]
        for i in (CPU, MEMORY)
    )


def _obstacle(pod: Pod, node: Node, now_s: float) -> Obstacle | None:
    if not fits(pod, node):
        return "Infeasible"
    raises = any(
        container.wanted.requests[i] > container.has.requests[i] for container in pod.containers for i in (CPU, MEMORY)
    )
    if raises and any(window.holds(now_s) for window in node.full):
        return "Deferred"
    if any(container.wanted.limits[MEMORY] < container.used[MEMORY] for container in pod.containers):
        return "Error"
    return None


def _restarts(container: Container) -> bool:
    """Whether a resource changes that this container cannot be given while it runs."""
    return container.running and any(
        resource in container.spec.restart_for and _differ(before[i], after[i])
        for before, after in zip(container.has, container.wanted, strict=True)
        for i, resource in enumerate(RESOURCES)
    )


def _differ(one: float, other: float) -> bool:
    return one != other and not (math.isnan(one) and math.isnan(other))
