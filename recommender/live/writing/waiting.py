"""Resizes pending pods to what is recommended now.

The VPA's admission controller applies what is recommended when a pod is created, which for a new VPA is nothing; its
updater acts only on running pods. Without this, a job of a well-known class waits, and makes others wait, for room that
it will never use.

While no other pod of the VPA is live, the target is for the pending ones, and their requests are lowered to it. Beside
running pods the target is for those; requests then never go below what the class needs at a start, and stay as they are
where that is unknown. Requests that were lowered too far are raised to the target, but never above what the owner
declared: a pod that requests more may never be scheduled, and once it runs the updater raises it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recommender.base.records import CPU, RESOURCES, Amounts, ContainerPolicy, amounts_of
from recommender.base.units import MonotonicClock
from recommender.cluster.errors import Forbidden, Invalid, NotFound
from recommender.cluster.objects.pods import PENDING, ContainerState, Pod
from recommender.cluster.objects.quantities import NOTHING, Pair
from recommender.cluster.objects.resizability import GUARANTEED
from recommender.cluster.objects.vpa import KEEP, REQUESTS_ONLY
from recommender.cluster.workloads.waiting_pods import LIMITS, REQUESTS, Change
from recommender.engine.engine import Engine
from recommender.engine.keys import Group, Instance
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.publisher import WriterPool

log = logging.getLogger(__name__)

MIN_RELATIVE_CHANGE = 0.1
"""As in the updater: a pod is resized where a target differs from its request by more than this share."""

RETRY_AFTER_S = 600.0
"""Seconds before a refused resize is tried again."""

MAX_RESIZES_PER_ROUND = 100
"""Pods resized in a round; those that have waited longest come first."""

Resize = tuple[Pod, tuple[Change, ...]]


class RefusedResize(NamedTuple):
    changes: tuple[Change, ...]
    why: str
    at_s: float  # monotonic


class PendingPodResizer:
    """Resizes pending pods; the index says which VPA owns a container that several select."""

    def __init__(
        self, view: View, index: ContainerIndex, engine: Engine, stopwatch: MonotonicClock, writers: WriterPool
    ) -> None:
        self._view, self._index, self._engine = view, index, engine
        self._stopwatch, self._writers = stopwatch, writers
        self._refused: dict[str, RefusedResize] = {}  # by the UID of the pod

    def resize(self, states: Iterable[VpaState], report: Report) -> None:
        """Resize each pending pod to what is published for its containers; skip those that were refused recently."""
        now_s = self._stopwatch()  # a wall clock that is set back would put off the next attempt
        resizes: list[Resize] = []
        report.each(states, VpaState.name, lambda state: resizes.extend(self._resizes(state)))
        due: list[Resize] = []
        before, self._refused = self._refused, {}
        for pod, changes in resizes:
            refused = before.get(pod.uid)
            if refused is None or refused.changes != changes or now_s - refused.at_s >= RETRY_AFTER_S:
                due.append((pod, changes))
                continue
            self._refused[pod.uid] = refused
            report.problems[f"pod {pod.key}"] = f"cannot be resized while it waits: {refused.why}"
        due = sorted(due, key=_age)[:MAX_RESIZES_PER_ROUND]
        for (pod, changes), outcome in self._writers.run(due, lambda resize: self._view.resize_waiting(*resize)):
            with report.guard(f"pod {pod.key}"):
                try:
                    outcome()
                except (Forbidden, Invalid, NotFound) as error:  # most have a node by now: reported if it still waits
                    self._refused[pod.uid] = RefusedResize(changes, str(error), now_s)
                else:
                    report.resized_waiting += 1
                    log.info("%s: resized while it waits: %s", pod.key, _describe(pod, changes))

    def _resizes(self, state: VpaState) -> Iterable[Resize]:
        pending = state.selection.pending
        waiting = [pod for pod in pending if not (pod.node or pod.deleting or pod.resizability.queued)]
        if not waiting or state.vpa.update_mode == "Off" or state.vpa.pause == KEEP or not self._is_in_charge(state):
            return
        alone = all(pod.finished or pod.phase == PENDING for pod in state.selection.pods)
        for pod in waiting:
            targets = {
                name: entry.target if alone else self._at_least_startup(state.group(name), pod.input_size, entry.target)
                for name, entry in state.published.items()
            }
            changes = changes_of(pod, targets, state.vpa.policy_for, state.selection.declared)
            if changes:
                yield pod, changes

    def _at_least_startup(self, group: Group, input_size: float, target: Amounts) -> Amounts:
        """The target of running pods, but at least what a new run needs at its start; NaN where that is unknown."""
        return amounts_of(np.maximum(target, self._engine.next_run(group, input_size) or NOTHING))

    def _is_in_charge(self, state: VpaState) -> bool:
        """Whether this VPA owns any container of its pods, pending or running."""
        owned = (
            self._index.get(Instance(pod.key.namespace, pod.uid, container.name))
            for pod in state.selection.pods
            for container in pod.containers
        )
        return any(container is not None and container.state is state for container in owned)


def changes_of(
    pod: Pod,
    targets: Mapping[str, Amounts],
    policy_for: Callable[[str], ContainerPolicy],
    declared: Mapping[str, Pair],
) -> tuple[Change, ...]:
    """The changes to the requests and limits of a pod; none where they are too small, or would change its QoS class.

    `targets` and what its owner `declared` are in cores and bytes by container name, NaN for none.
    """
    changes: list[Change] = []
    is_worthwhile = False
    for index, container in enumerate(pod.containers):
        policy = policy_for(container.name)
        if policy.controlled_values == REQUESTS_ONLY and pod.resizability.qos == GUARANTEED:
            continue
        for resource, target in enumerate(targets.get(container.name, NOTHING)):
            if resource == CPU and pod.is_boosted(container.name):
                continue
            before, owners = container.requests[resource], declared.get(container.name, NOTHING)[resource]
            request, limits = _new_request(before, target, owners), policy.controlled_values != REQUESTS_ONLY
            changed = _container_changes(index, container, resource, request, limits=limits)
            changes += changed
            is_worthwhile |= bool(changed) and abs(request / before - 1.0) > MIN_RELATIVE_CHANGE
    return tuple(changes) if is_worthwhile else ()


def _new_request(request: float, target: float, declared: float) -> float:
    """Cores or bytes; NaN for no change."""
    if math.isnan(request) or math.isnan(target) or request <= 0.0:
        return math.nan
    raised = request if math.isnan(declared) else max(request, min(target, declared))
    return target if target < request else raised


def _container_changes(
    index: int, container: ContainerState, resource: int, new: float, *, limits: bool
) -> Sequence[Change]:
    """The change of the request, and of the limit where it keeps its ratio to the request."""
    request, limit = container.requests[resource], container.limits[resource]
    if math.isnan(new) or new == request:
        return ()
    if math.isnan(limit):
        return (Change(index, REQUESTS, resource, new),)
    if not limits:
        return (Change(index, REQUESTS, resource, min(new, limit)),)
    return Change(index, REQUESTS, resource, new), Change(index, LIMITS, resource, new * (limit / request))


def _age(resize: Resize) -> tuple[float, str]:
    pod = resize[0]
    return (math.inf if math.isnan(pod.created_s) else pod.created_s), pod.uid


def _describe(pod: Pod, changes: Collection[Change]) -> str:
    return ", ".join(
        f"{pod.containers[each.container].name} {each.part} {RESOURCES[each.resource]} {each.amount:g}"
        for each in changes
    )
