"""The VPA's updater: which running pods it acts on, and how.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/updater` (priority, restriction, logic), version 1.7. Flags
stand at their defaults; no rate limit, no disruption budget, no startup boost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from harm_bench.simulated.admission import in_force, resources_for
from harm_bench.simulated.controllers import evict
from harm_bench.simulated.kubelet import ask
from harm_bench.simulated.pods import Autoscaler, Pod, Resources, Tally, Workload
from recommender.records import CPU, MEMORY, Amounts

INTERVAL_S = 60.0
MIN_REPLICAS = 2
EVICTION_TOLERANCE = 0.5
UPDATE_THRESHOLD = 0.1
LIFETIME_S = 12 * 3600.0
"""A pod older than this is updated for a difference of a tenth, whatever the bounds say."""

QUICK_OOM_S = 600.0
LEAST_TOTAL = 0.001
"""Of what is requested; differences are shares of it."""

DEFERRED_S, IN_PROGRESS_S = 300.0, 3600.0
"""For so long a resize is waited for before its pod is evicted, where that may be."""


class Priority(NamedTuple):
    """Why a pod is acted on; the larger one first."""

    scale_up: bool
    difference: float


@dataclass(slots=True)
class Updater:
    """What it remembers from loop to loop: when each pod's name was first seen resizing, and what was infeasible."""

    resizing_since_s: dict[tuple[str, str], float] = field(default_factory=dict)
    infeasible: dict[str, Mapping[str, Resources]] = field(default_factory=dict)

    def loop(self, workload: Workload, tally: Tally, now_s: float) -> None:
        """Look at the pods of one workload."""
        vpa = workload.vpa
        live = workload.live
        required = MIN_REPLICAS if vpa.min_replicas is None else vpa.min_replicas
        if vpa.update_mode in ("Off", "Initial") or len(live) < required:
            return
        budget = Budget.of(workload, now_s)
        found = [(priority, pod) for pod in live if (priority := priority_of(pod, vpa, now_s)) is not None]
        for _, pod in sorted(found, key=lambda one: one[0], reverse=True):
            if vpa.update_mode == "Recreate":
                self._evict(workload, pod, budget, tally)
            else:
                self._in_place(workload, pod, budget, tally, now_s)

    def _evict(self, workload: Workload, pod: Pod, budget: Budget, tally: Tally) -> None:
        if budget.take(pod):
            evict(workload, pod, tally)

    def _in_place(self, workload: Workload, pod: Pod, budget: Budget, tally: Tally, now_s: float) -> None:
        if pod.phase == "Pending":
            return
        only = workload.vpa.update_mode == "InPlace"
        wanted = {c.spec.name: resources_for(workload.vpa, c.spec.name, c.has) for c in pod.containers}
        waits = any(container.wanted != container.has for container in pod.containers)
        if waits and not only:
            if self._waited_enough(workload, pod, now_s):
                self._evict(workload, pod, budget, tally)
            return
        if only and not self._feasible(pod, wanted):
            return
        if not waits and not budget.take(pod) and not only:
            return
        if not ask(pod, wanted) and not only:
            evict(workload, pod, tally)

    def _waited_enough(self, workload: Workload, pod: Pod, now_s: float) -> bool:
        """The wait counts from the first time that a pod of this name was seen to wait: it is never taken back."""
        since_s = self.resizing_since_s.setdefault((workload.namespace, pod.name), now_s)
        if pod.resize is None:
            return now_s - since_s > IN_PROGRESS_S
        return pod.resize.reason != "Deferred" or now_s - since_s > DEFERRED_S

    def _feasible(self, pod: Pod, wanted: Mapping[str, Resources]) -> bool:
        """What a node had no room for is asked for once more, then not until less of something is wanted."""
        before = self.infeasible.get(pod.uid)
        if before is not None and not _less_of_something(wanted, before):
            return False
        if pod.resize is not None and pod.resize.reason == "Infeasible":
            self.infeasible[pod.uid] = wanted
        return True


@dataclass(slots=True)
class Budget:
    """How many pods of a workload may be disturbed in one loop.

    Attributes
    ----------
    configured, running
        How many there are to be, and how many run.
    tolerance
        So many of these may be missing.
    touched
        Disturbed in this loop.
    """

    configured: int
    running: int
    tolerance: int
    touched: int = 0

    @classmethod
    def of(cls, workload: Workload, now_s: float) -> Budget:
        live = workload.live
        running = sum(pod.phase == "Running" for pod in live)
        configured = {"Job": len(live), "DaemonSet": running}.get(workload.kind, workload.replicas_at(now_s))
        return cls(configured, running, math.floor(configured * EVICTION_TOLERANCE))

    def take(self, pod: Pod) -> bool:
        """Whether this pod may be disturbed; if so it counts. One that does not run yet always may."""
        if pod.phase == "Pending":
            return True
        alone = self.running == self.configured and self.tolerance == 0 and self.touched == 0
        if not alone and self.running - self.touched <= self.configured - self.tolerance:
            return False
        self.touched += 1
        return True


def priority_of(pod: Pod, vpa: Autoscaler, now_s: float) -> Priority | None:
    """Why a pod is to be acted on; None where it is not."""
    beyond = scale_up = quick_oom = False
    totals, targets = [0.0, 0.0], [0.0, 0.0]
    for container in pod.containers:
        said = in_force(vpa, container.spec.name, container.has)
        if said is None:
            continue
        quick_oom = quick_oom or container.last_kill_s < QUICK_OOM_S
        for i in (CPU, MEMORY):
            if math.isnan(said.target[i]):
                continue
            request = container.has.requests[i]
            missing = math.isnan(request)
            beyond = beyond or missing or request < said.lower[i] or request > said.upper[i]
            scale_up = scale_up or missing or said.target[i] > request
            totals[i] += 0.0 if missing else request
            targets[i] += said.target[i]
    difference = _difference((totals[CPU], totals[MEMORY]), (targets[CPU], targets[MEMORY]))
    old = now_s - pod.started_s >= LIFETIME_S
    if beyond or (quick_oom and difference != 0.0) or (old and difference >= UPDATE_THRESHOLD):
        return Priority(scale_up, difference)
    return None


def _difference(totals: Amounts, targets: Amounts) -> float:
    """The sum over the resources of the share by which all targets differ from all requests."""
    pairs = zip(totals, targets, strict=True)
    return sum(abs(total - target) / max(total, LEAST_TOTAL) for total, target in pairs)


def _less_of_something(wanted: Mapping[str, Resources], before: Mapping[str, Resources]) -> bool:
    return any(
        now < then
        for name, resources in wanted.items()
        if name in before
        for now, then in zip(resources.requests, before[name].requests, strict=True)
    )
