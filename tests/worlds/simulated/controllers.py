"""Workload controllers (Deployments, StatefulSets, DaemonSets, Jobs), and the VPA's admission controller for the pods.

Source of the latter: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/admission-controller` and
`pkg/utils/vpa/capping.go`; the updater uses its resources of running pods, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from recommender.base.records import CPU, MEMORY, RESOURCES, Amounts, ContainerPolicy, ContainerRecommendation
from tests.worlds.simulated.kubelet import fits
from tests.worlds.simulated.pods import (
    Autoscaler,
    Container,
    HorizontalAutoscaler,
    Pod,
    Resources,
    Tally,
    Workload,
)


def capped_recommendation(vpa: Autoscaler, container: str, current: Resources) -> ContainerRecommendation | None:
    """Recommendation within the policy and, with `RequestsOnly`, the limits of the container."""
    found = vpa.recommendation.get(container)
    if found is None:
        return None
    bounds = (found.target, found.lower, found.upper)
    target, lower, upper = (_capped(amounts, vpa.policy, current) for amounts in bounds)
    return replace(found, target=target, lower=lower, upper=upper)


def resources_for(vpa: Autoscaler, container: str, current: Resources) -> Resources:
    """Requests and limits that a container gets: the target, and limits in proportion to its `current` resources."""
    current = current.defaulted()
    found = capped_recommendation(vpa, container, current)
    if found is None:
        return current
    requests, limits = list(current.requests), list(current.limits)
    for i in (CPU, MEMORY):
        if math.isnan(found.target[i]):
            continue
        requests[i] = found.target[i]
        if vpa.policy.controlled_values == "RequestsAndLimits" and not math.isnan(current.limits[i]):
            limits[i] = _in_proportion(current.limits[i], current.requests[i], found.target[i], i)
    return Resources((requests[CPU], requests[MEMORY]), (limits[CPU], limits[MEMORY]))


def _in_proportion(limit: float, request: float, target: float, resource: int) -> float:
    """Proportional limit in whole millicores or bytes; the target if the limit equals the request or there is none."""
    if request in (limit, 0.0):
        return target
    units = 1000.0 if resource == CPU else 1.0
    return math.floor(limit * target / request * units) / units


def _capped(amounts: Amounts, policy: ContainerPolicy, current: Resources) -> Amounts:
    capped = list(amounts)
    for i, resource in enumerate(RESOURCES):
        if math.isnan(capped[i]) or resource not in policy.controlled:
            continue
        if least := policy.min_allowed[i]:
            capped[i] = max(capped[i], least)
        if most := policy.max_allowed[i]:
            capped[i] = min(capped[i], most)
        if policy.controlled_values == "RequestsOnly" and current.limits[i] < capped[i]:
            capped[i] = current.limits[i]
    return capped[CPU], capped[MEMORY]


START_S = 10.0
"""Seconds from the creation of a pod to the start of its containers."""

FINISHED_POD_TTL_S = 300.0
"""Seconds until a finished pod of a Job is removed."""


def reconcile(workload: Workload, tally: Tally, now_s: float) -> None:
    for pod in [pod for pod in workload.pods if pod.finished]:
        if workload.kind != "Job" or now_s - pod.ended_s >= FINISHED_POD_TTL_S:
            _remove(workload, pod)
    if workload.kind == "Job":
        _reconcile_job(workload, tally, now_s)
        return
    if workload.horizontal is not None:
        _scale(workload, workload.horizontal, now_s)
    replicas = workload.replicas_at(now_s)
    revision = sum(now_s >= at_s for at_s in workload.rollouts)
    workload.revision = revision
    for pod in [pod for pod in workload.pods if pod.replica >= replicas]:
        _remove(workload, pod)
    old = [pod for pod in workload.pods if pod.revision != revision]
    if old and all(pod.phase == "Running" for pod in workload.pods) and len(workload.pods) == replicas:
        _remove(workload, old[-1])
    for number in sorted(set(range(replicas)) - {pod.replica for pod in workload.pods}):
        _make(workload, number, now_s)
    _place(workload, now_s)


HPA_TOLERANCE = 0.1
HPA_STABILIZATION_S = 300.0


def _scale(workload: Workload, autoscaler: HorizontalAutoscaler, now_s: float) -> None:
    """Set the number of replicas as a HorizontalPodAutoscaler does: up at once, down to the most of five minutes."""
    has = [container for pod in workload.live for container in pod.containers if container.running]
    requested = sum(container.actual.requests[CPU] for container in has)
    if not requested > 0.0:
        return
    ratio = sum(container.used[CPU] for container in has) / requested / autoscaler.target
    wanted = workload.replicas if abs(ratio - 1.0) <= HPA_TOLERANCE else math.ceil(len(workload.live) * ratio)
    wanted = min(max(1, wanted), autoscaler.most, max(2 * workload.replicas, workload.replicas + 4))
    recent = [(at_s, number) for at_s, number in autoscaler.wanted if at_s > now_s - HPA_STABILIZATION_S]
    autoscaler.wanted = [*recent, (now_s, wanted)]
    workload.replicas = max(wanted, min(workload.replicas, max(number for _, number in autoscaler.wanted)))


def evict(workload: Workload, pod: Pod, tally: Tally) -> None:
    """Evict a pod as the Eviction API does; its controller replaces it. To a Job it is a failed pod."""
    tally.evictions += 1
    workload.failed_pods += 1
    _remove(workload, pod)


def _reconcile_job(workload: Workload, tally: Tally, now_s: float) -> None:
    """Run one pod after the other until one succeeds or too many have failed; after a pause, begin the next run."""
    if not workload.live and workload.ended_s == math.inf:
        last = workload.pods[-1] if workload.pods else None
        if last is not None and last.phase == "Succeeded" and last.revision == workload.run:
            workload.ended_s = now_s
        elif workload.failed_pods > workload.backoff_limit:
            workload.ended_s = now_s
            tally.failed_jobs += 1
    if now_s >= workload.ended_s + workload.next_run_after_s:
        workload.run, workload.failed_pods = workload.run + 1, 0
        workload.began_s, workload.ended_s = math.nan, math.inf
        if workload.per_run == "VPA":
            workload.vpa.recommendation = {}
    if not workload.live and workload.ended_s == math.inf:
        workload.revision = workload.run
        _make(workload, 0, now_s)
    _place(workload, now_s)


def _make(workload: Workload, replica: int, now_s: float) -> None:
    """Create a pod from its template, through the admission controller."""
    workload.made += 1
    number = replica if workload.kind == "StatefulSet" else f"{workload.revision}-{workload.made}"
    mutated = workload.vpa.update_mode != "Off"
    containers = []
    for spec in workload.template:
        declared = spec.resources.within(workload.limit_range)
        resources = resources_for(workload.vpa, spec.name, declared) if mutated else declared.defaulted()
        containers.append(Container(spec, resources.requests, resources, resources, now_s + START_S))
    name, uid = f"{workload.name}-{number}", f"{workload.namespace}-{workload.name}-{workload.made}"
    workload.pods.append(Pod(name, uid, replica, workload.revision, now_s, containers))
    workload.version += 1


def _place(workload: Workload, now_s: float) -> None:
    """Delay the start of pods that do not fit on a node."""
    for pod in workload.pods:
        if pod.phase == "Pending" and not fits(pod, workload.node):
            for container in pod.containers:
                container.starts_s = now_s + START_S


def _remove(workload: Workload, pod: Pod) -> None:
    workload.pods.remove(pod)
    workload.version += 1
