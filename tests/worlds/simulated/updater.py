"""The VPA's updater: which running pods it updates, and how.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/updater` (priority, restriction, logic), version 1.8.1,
with default flags; without rate limit, disruption budget and startup boost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from recommender.base.records import CPU, MEMORY
from tests.worlds.simulated.controllers import capped_recommendation, evict, resources_for
from tests.worlds.simulated.kubelet import request_resize
from tests.worlds.simulated.pods import Autoscaler, Pod, Resources, Tally, Workload

INTERVAL_S = 60.0
MIN_REPLICAS = 2
EVICTION_TOLERANCE = 0.5
UPDATE_THRESHOLD = 0.1
LIFETIME_S = 12 * 3600.0
"""A pod of this age is updated for a difference of `UPDATE_THRESHOLD`, even within its bounds."""

QUICK_OOM_S = 600.0
"""A kill so soon after the start of its container, and no longer ago, makes any difference count."""

MIN_REQUEST = 0.001
"""Smallest request that differences are related to."""

DEFERRED_S, IN_PROGRESS_S = 300.0, 3600.0
"""Seconds to wait for a resize before its pod is evicted."""


class Priority(NamedTuple):
    """Priority of an update; larger ones first."""

    scale_up: bool
    difference: float


@dataclass(slots=True)
class Updater:
    """State between loops: when each pod name was first seen resizing, and which resizes were infeasible."""

    resizing_since_s: dict[tuple[str, str], float] = field(default_factory=dict)
    infeasible: dict[str, Mapping[str, Resources]] = field(default_factory=dict)

    def loop(self, workload: Workload, tally: Tally, now_s: float) -> None:
        vpa = workload.vpa
        live = workload.live
        required = MIN_REPLICAS if vpa.min_replicas is None else vpa.min_replicas
        if vpa.update_mode in ("Off", "Initial") or len(live) < required:
            return
        budget = Budget.of(workload, now_s)
        found = [(priority, pod) for pod in live if (priority := priority_of(pod, vpa, now_s)) is not None]
        for _, pod in sorted(found, key=lambda one: one[0], reverse=True):
            if vpa.update_mode != "Recreate":
                self._update_in_place(workload, pod, budget, tally, now_s)
            elif budget.take(pod):
                evict(workload, pod, tally)

    def _update_in_place(self, workload: Workload, pod: Pod, budget: Budget, tally: Tally, now_s: float) -> None:
        if pod.phase == "Pending":
            return
        in_place_only = workload.vpa.update_mode == "InPlace"
        wanted = {c.spec.name: resources_for(workload.vpa, c.spec.name, c.actual) for c in pod.containers}
        pending = any(container.desired != container.actual for container in pod.containers)
        if pending and not in_place_only:
            if self._resize_timed_out(workload, pod, now_s) and budget.take(pod):
                evict(workload, pod, tally)
            return
        if in_place_only and not self._feasible(pod, wanted):
            return
        if not pending and not budget.take(pod) and not in_place_only:
            return
        if not request_resize(pod, wanted) and not in_place_only:
            evict(workload, pod, tally)

    def _resize_timed_out(self, workload: Workload, pod: Pod, now_s: float) -> bool:
        """Whether the wait is over; it counts from the first pending resize of this pod name and is never reset."""
        since_s = self.resizing_since_s.setdefault((workload.namespace, pod.name), now_s)
        if pod.resize is None:
            return now_s - since_s > IN_PROGRESS_S
        return pod.resize.reason != "Deferred" or now_s - since_s > DEFERRED_S

    def _feasible(self, pod: Pod, wanted: Mapping[str, Resources]) -> bool:
        """Whether to request the resize: an infeasible one is requested once more, then only with a lower request."""
        before = self.infeasible.get(pod.uid)
        if before is not None and not _any_request_lower(wanted, before):
            return False
        if pod.resize is not None and pod.resize.reason == "Infeasible":
            self.infeasible[pod.uid] = wanted
        return True


@dataclass(slots=True)
class Budget:
    """How many pods of a workload may be disrupted in one loop.

    `configured`, `running`: Desired and running pods.
    `tolerance`: Number of pods that may be missing.
    `disrupted`: Pods disrupted in this loop.
    """

    configured: int
    running: int
    tolerance: int
    disrupted: int = 0

    @classmethod
    def of(cls, workload: Workload, now_s: float) -> Budget:
        live = workload.live
        running = sum(pod.phase == "Running" for pod in live)
        configured = {"Job": len(live), "DaemonSet": running}.get(workload.kind, workload.replicas_at(now_s))
        return cls(configured, running, math.floor(configured * EVICTION_TOLERANCE))

    def take(self, pod: Pod) -> bool:
        """Whether this pod may be disrupted; if so, count it. A pending pod always may."""
        if pod.phase == "Pending":
            return True
        alone = self.running == self.configured and self.tolerance == 0 and self.disrupted == 0
        if not alone and self.running - self.disrupted <= self.configured - self.tolerance:
            return False
        self.disrupted += 1
        return True


def priority_of(pod: Pod, vpa: Autoscaler, now_s: float) -> Priority | None:
    """Priority of updating a pod; None if it needs no update."""
    outside_bounds = scale_up = quick_oom = False
    totals, targets = [0.0, 0.0], [0.0, 0.0]
    for container in pod.containers:
        found = capped_recommendation(vpa, container.spec.name, container.actual)
        if found is None:
            continue
        killed_s, ago_s = container.last_kill_s, now_s - container.ended_s
        quick_oom = quick_oom or (killed_s < QUICK_OOM_S and ago_s < QUICK_OOM_S)
        for i in (CPU, MEMORY):
            if math.isnan(found.target[i]):
                continue
            request = container.actual.requests[i]
            missing = math.isnan(request)
            outside_bounds = outside_bounds or missing or request < found.lower[i] or request > found.upper[i]
            scale_up = scale_up or missing or found.target[i] > request
            totals[i] += 0.0 if missing else request
            targets[i] += found.target[i]
    difference = sum(abs(has - is_due) / max(has, MIN_REQUEST) for has, is_due in zip(totals, targets, strict=True))
    old = now_s - pod.started_s >= LIFETIME_S
    if quick_oom and difference == 0.0:
        return None
    if outside_bounds or quick_oom or (old and difference >= UPDATE_THRESHOLD):
        return Priority(scale_up, difference)
    return None


def _any_request_lower(wanted: Mapping[str, Resources], before: Mapping[str, Resources]) -> bool:
    return any(
        now < then
        for name, resources in wanted.items()
        if name in before
        for now, then in zip(resources.requests, before[name].requests, strict=True)
    )
