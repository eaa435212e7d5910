"""The kubelet: runs the containers of a pod, kills, restarts and resizes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from recommender.base.records import CPU, MEMORY, RESOURCES
from tests.worlds.simulated.pods import (
    Container,
    Node,
    Obstacle,
    Phase,
    Pod,
    Resize,
    Resources,
    Tally,
    Workload,
    qos_of,
)

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 10.0, 300.0
BACKOFF_RESET_S = 600.0
"""A run of this length resets the back-off."""

MIN_SHARE_CORES = 0.002
"""Share of a container without a CPU request: `cpu.shares` is at least 2, of 1024 for a core."""


class Kill(NamedTuple):
    """A container killed for memory, or a pod evicted by a node short of memory.

    `memory_bytes`: memory request (NaN without one) for a kill; memory in use for an eviction.
    """

    namespace: str
    pod: str
    container: str
    when_s: float
    memory_bytes: float


def run(workload: Workload, pod: Pod, tally: Tally, now_s: float, elapsed_s: float) -> list[Kill]:
    """Run a pod for the last `elapsed_s` seconds; return kills."""
    kills: list[Kill] = []
    number = pod.revision if workload.kind == "Job" else pod.replica
    share = 1.0 if workload.horizontal is None else 1.0 / max(1, sum(one.phase == "Running" for one in workload.pods))
    for container in pod.containers:
        if not container.running:
            _start_if_due(workload, pod, container, now_s)
            tally.down_s += 0.0 if container.running else elapsed_s
            continue
        age_s = now_s - container.started_s
        if any(window.contains(now_s) and age_s >= least_s for window, least_s in container.spec.crashes):
            _stop(workload, pod, container, now_s)
            continue
        works = workload.kind == "Job" and container is pod.containers[0]
        at_s = container.done_s + elapsed_s if works else age_s
        cpu_cores, memory_bytes = container.spec.use(at_s, now_s, number)
        wanted_cores = share * cpu_cores
        container.used = min(wanted_cores, _available_cores(container.actual, workload.node)), memory_bytes
        demand, requests = (wanted_cores, memory_bytes), container.actual.requests
        tally.ran(demand, container.used, requests, container.created, elapsed_s)
        container.cpu_core_seconds += container.used[CPU] * elapsed_s
        requested_bytes, most_bytes = container.actual.requests[MEMORY], container.actual.limits[MEMORY]
        if memory_bytes > most_bytes or memory_bytes > workload.node.allocatable[MEMORY]:
            kills.append(Kill(workload.namespace, pod.name, container.spec.name, now_s, requested_bytes))
            container.kills += 1
            _stop(workload, pod, container, now_s, killed=True)
        elif workload.node.evicts and not memory_bytes <= requested_bytes:
            kills.append(Kill(workload.namespace, pod.name, container.spec.name, now_s, memory_bytes))
            _end(workload, pod, "Failed", now_s)
            break
        elif works and _work(workload, container, wanted_cores, elapsed_s):
            tally.slowdowns += (slowdown(workload, container, now_s),)
            _end(workload, pod, "Succeeded", now_s)
            break
    tally.kills += len(kills)
    return kills


def _available_cores(has: Resources, node: Node) -> float:
    """Cores that a container can get: its limit; on a node with busy pods also its share by requests."""
    cores = node.allocatable[CPU] if math.isnan(has.limits[CPU]) else has.limits[CPU]
    if not node.busy_cores:
        return cores
    request = MIN_SHARE_CORES if math.isnan(has.requests[CPU]) else max(MIN_SHARE_CORES, has.requests[CPU])
    return min(cores, node.allocatable[CPU] * request / (node.busy_cores + request))


def _work(workload: Workload, container: Container, wanted_cores: float, elapsed_s: float) -> bool:
    """Advance a Job by the work that its container did in the last `elapsed_s` seconds; return whether that is all."""
    declared_cores = _available_cores(container.spec.resources.defaulted(), workload.node)
    done_s = elapsed_s * container.used[CPU] / wanted_cores
    container.done_s += done_s
    container.declared_s += done_s * max(1.0, wanted_cores / declared_cores)
    return container.done_s >= workload.runs_for_s


def slowdown(workload: Workload, container: Container, now_s: float) -> float:
    """Time that a Job has taken, from the start of its first pod, divided by that of its work as declared."""
    return (now_s - workload.began_s) / container.declared_s


def _start_if_due(workload: Workload, pod: Pod, container: Container, now_s: float) -> None:
    if now_s < container.starts_s:
        return
    container.running, container.started_s = True, now_s
    container.cpu_core_seconds = container.done_s = container.declared_s = 0.0
    if pod.phase == "Pending":
        pod.phase, pod.started_s = "Running", now_s
    if math.isnan(workload.began_s):
        workload.began_s = now_s
    workload.version += 1


def _stop(workload: Workload, pod: Pod, container: Container, now_s: float, *, killed: bool = False) -> None:
    """End a container with an error: it is restarted after the back-off, or its pod fails."""
    age_s = now_s - container.started_s
    container.last_kill_s = age_s if killed else math.nan
    container.running, container.ended_s, container.used = False, now_s, (0.0, 0.0)
    workload.version += 1
    if workload.kind == "Job" and not workload.restarts_in_place:
        _end(workload, pod, "Failed", now_s)
        return
    if age_s >= BACKOFF_RESET_S:
        container.backoff_s = FIRST_BACKOFF_S
    container.starts_s = now_s + container.backoff_s
    container.backoff_s = min(2.0 * container.backoff_s, LONGEST_BACKOFF_S)
    container.restarts += 1


def _end(workload: Workload, pod: Pod, phase: Phase, now_s: float) -> None:
    pod.phase, pod.ended_s = phase, now_s
    workload.failed_pods += phase == "Failed"
    for container in pod.containers:
        if container.running:
            container.running, container.ended_s = False, now_s
        container.used = (0.0, 0.0)
    workload.version += 1


def request_resize(pod: Pod, wanted: Mapping[str, Resources]) -> bool:
    """Patch `pods/<name>/resize`; return False and change nothing if that would change the QoS class of the pod."""
    after = [wanted.get(container.spec.name, container.desired) for container in pod.containers]
    if qos_of(after) != qos_of([container.desired for container in pod.containers]):
        return False
    for container, resources in zip(pod.containers, after, strict=True):
        container.desired = resources
    return True


def resize(workload: Workload, pod: Pod, tally: Tally, now_s: float) -> None:
    """Resize a pod whose containers differ from its spec, or note why that is not possible."""
    if all(container.desired == container.actual for container in pod.containers):
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
        if _needs_restart(container):
            container.running, container.starts_s, container.ended_s = False, now_s, now_s
            container.last_kill_s = math.nan
            container.restarts += 1
            tally.restarts += 1
        container.actual = container.desired
    pod.resize = None
    tally.updates += 1
    workload.version += 1


def fits(pod: Pod, node: Node, busy_cores: float = 0.0) -> bool:
    """Whether the requests of a pod's spec fit on a node, beside others of `busy_cores`."""
    requests = [[max(0.0, c.desired.requests[i]) for c in pod.containers] for i in (CPU, MEMORY)]  # NaN gives 0
    cores, memory_bytes = map(sum, requests)
    return busy_cores + cores <= node.allocatable[CPU] and memory_bytes <= node.allocatable[MEMORY]


def _obstacle(pod: Pod, node: Node, now_s: float) -> Obstacle | None:
    if not fits(pod, node):
        return "Infeasible"
    raises = any(c.desired.requests[i] > c.actual.requests[i] for c in pod.containers for i in (CPU, MEMORY))
    if raises and (any(window.contains(now_s) for window in node.full) or not fits(pod, node, node.busy_cores)):
        return "Deferred"
    if any(container.desired.limits[MEMORY] < container.used[MEMORY] for container in pod.containers):
        return "Error"
    return None


def _needs_restart(container: Container) -> bool:
    """Whether a resource with the resize policy RestartContainer changes."""
    return container.running and any(
        resource in container.spec.restart_for
        and before[i] != after[i]
        and not (math.isnan(before[i]) and math.isnan(after[i]))
        for before, after in zip(container.actual, container.desired, strict=True)
        for i, resource in enumerate(RESOURCES)
    )
