"""The containers of a pod from start to end: what they use, and when they are killed and started again."""

from __future__ import annotations

import math
from typing import NamedTuple

from harm_bench.simulated.pods import Container, Phase, Pod, Workload
from harm_bench.simulated.tally import Tally
from recommender.records import CPU, MEMORY

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 10.0, 300.0
BACKOFF_FORGOTTEN_S = 600.0
"""A run of this length starts the waits anew."""


class Kill(NamedTuple):
    """A container that wanted more memory than there was for it.

    Attributes
    ----------
    when_s
        Seconds.
    memory_bytes
        What it had requested, NaN where nothing; or what it used, where its node evicted its pod.
    """

    namespace: str
    pod: str
    container: str
    when_s: float
    memory_bytes: float


def run(workload: Workload, pod: Pod, tally: Tally, now_s: float, lasted_s: float) -> list[Kill]:
    """The last `lasted_s` seconds of a pod; returns the kills."""
    kills: list[Kill] = []
    if pod.phase == "Running" and workload.kind == "Job" and now_s - pod.started_s >= workload.runs_for_s:
        _end(workload, pod, "Succeeded", now_s)
        return kills
    for container in pod.containers:
        if not container.running:
            _start_if_due(workload, pod, container, now_s)
            tally.down_s += 0.0 if container.running else lasted_s
            continue
        age_s = now_s - container.started_s
        if any(window.holds(now_s) and age_s >= least_s for window, least_s in container.spec.crashes):
            _stop(workload, pod, container, now_s)
            continue
        cpu_cores, memory_bytes = wanted = container.spec.use(age_s, now_s, pod.replica)
        tally.ran(wanted, container.has.requests, lasted_s)
        most_cores, most_bytes = container.has.limits
        container.used = (most_cores if most_cores < cpu_cores else cpu_cores), memory_bytes
        container.cpu_core_seconds += container.used[CPU] * lasted_s
        requested_bytes = container.has.requests[MEMORY]
        if memory_bytes > most_bytes or memory_bytes > workload.node.allocatable[MEMORY]:
            kills.append(Kill(workload.namespace, pod.name, container.spec.name, now_s, requested_bytes))
            container.kills += 1
            _stop(workload, pod, container, now_s, killed=True)
        elif workload.node.evicts and not memory_bytes <= requested_bytes:
            kills.append(Kill(workload.namespace, pod.name, container.spec.name, now_s, memory_bytes))
            _end(workload, pod, "Failed", now_s)
            break
    tally.kills += len(kills)
    return kills


def _start_if_due(workload: Workload, pod: Pod, container: Container, now_s: float) -> None:
    if now_s < container.starts_s:
        return
    container.running, container.started_s = True, now_s
    container.cpu_core_seconds = 0.0
    if pod.phase == "Pending":
        pod.phase, pod.started_s = "Running", now_s
    workload.version += 1


def _stop(workload: Workload, pod: Pod, container: Container, now_s: float, *, killed: bool = False) -> None:
    """A container ends with an error: it is started again after a while, or its pod has failed."""
    age_s = now_s - container.started_s
    container.last_kill_s = age_s if killed else math.nan
    container.running, container.ended_s, container.used = False, now_s, (0.0, 0.0)
    workload.version += 1
    if workload.kind == "Job" and not workload.restarts_in_place:
        _end(workload, pod, "Failed", now_s)
        return
    if age_s >= BACKOFF_FORGOTTEN_S:
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
