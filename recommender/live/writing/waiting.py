"""Pods that wait for a node ask for what is recommended, not for what was recommended when they were made.

The VPA's admission controller gives a pod what stands when it is made, which is nothing where its VPA is as new as it
is; its updater acts on pods that run. So a job of a well-known class waits, and keeps others waiting, for room that it
will never use.

Requests are lowered to the target, which is for these while no other pod of the VPA is alive. Beside one that runs it
is for that one; then they are never below what the class promises to suffice at a start, and left alone where it
promises nothing. They are raised to the target where they were lowered too far, but never beyond what the owner
declared: while it waits, a pod that asks for more than that may never be placed, and once it runs the updater raises
it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from recommender.cluster.errors import Forbidden, Invalid, NotFound
from recommender.cluster.objects.pair import NOTHING, Pair
from recommender.cluster.objects.pods import PENDING, ContainerState, Pod
from recommender.cluster.objects.resizability import GUARANTEED
from recommender.cluster.objects.vpa import REQUESTS_ONLY, ContainerPolicy
from recommender.cluster.workloads.waiting_pods import LIMITS, REQUESTS, Change
from recommender.engine.engine import Engine
from recommender.engine.keys import Group, Instance
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.publisher import Writers
from recommender.records import CPU, RESOURCES, Amounts, amounts_of

log = logging.getLogger(__name__)

WORTH_IT = 0.1
"""Of what is requested: a pod is changed where a target differs by more, as the updater has it."""

REFUSALS = (Forbidden, Invalid, NotFound)

ASKED_AGAIN_S = 600.0
"""For a pod that was refused what it is still to have."""

MOST_A_ROUND = 100
"""Pods; those that wait longest come first."""

Offer = tuple[Pod, tuple[Change, ...]]


class Refusal(NamedTuple):
    """What was refused for a pod, why, and when; unix seconds."""

    changes: tuple[Change, ...]
    why: str
    at_s: float


class WaitingPods:
    """Resizes them.

    Parameters
    ----------
    index
        Which VPA speaks for a container that several are for.
    """

    def __init__(self, view: View, index: ContainerIndex, engine: Engine, writers: Writers) -> None:
        self._view, self._index, self._engine, self._writers = view, index, engine, writers
        self._refused: dict[str, Refusal] = {}

    def resize(self, states: Iterable[VpaState], now_s: float, report: Report) -> None:
        """Give each what stands published of its containers; one that was refused is left alone for a while."""
        offers: list[Offer] = []
        report.each(states, VpaState.name, lambda state: offers.extend(self._offers(state)))
        told = self._refused
        self._refused = {
            pod.uid: told[pod.uid]
            for pod, changes in offers
            if pod.uid in told and told[pod.uid].changes == changes and now_s - told[pod.uid].at_s < ASKED_AGAIN_S
        }
        for pod, _ in offers:
            if (refusal := self._refused.get(pod.uid)) is not None:
                report.problems[f"pod {pod.key}"] = f"cannot be resized while it waits: {refusal.why}"
        taken = sorted((offer for offer in offers if offer[0].uid not in self._refused), key=_age)[:MOST_A_ROUND]
        outcomes = self._writers.run([partial(self._view.resize_waiting, *offer) for offer in taken])
        for (pod, changes), outcome in zip(taken, outcomes, strict=True):
            with report.guard(f"pod {pod.key}"):
                try:
                    outcome()
                except REFUSALS as error:  # most have a node by now, or are gone: told if it waits on
                    self._refused[pod.uid] = Refusal(changes, str(error), now_s)
                else:
                    report.resized_waiting += 1
                    log.info("%s: resized while it waits: %s", pod.key, _words(pod, changes))

    def _offers(self, state: VpaState) -> Iterable[Offer]:
        waiting = [pod for pod in state.selection.pending if not pod.node and not pod.deleting]
        if not waiting or state.vpa.update_mode == "Off" or not self._is_obeyed(state):
            return
        alone = all(pod.finished or pod.phase == PENDING for pod in state.selection.pods)
        for pod in waiting:
            targets = {
                name: entry.target if alone else self._at_least_a_start(state.group(name), pod.input_size, entry.target)
                for name, entry in state.entries.items()
            }
            changes = changes_of(pod, targets, state.vpa.policy_for, state.selection.declared)
            if changes:
                yield pod, changes

    def _at_least_a_start(self, group: Group, input_size: float, target: Amounts) -> Amounts:
        """The target of pods that run, and what suffices for one that begins; NaN for what nobody knows."""
        return amounts_of(np.maximum(target, self._engine.next_run(group, input_size) or NOTHING))

    def _is_obeyed(self, state: VpaState) -> bool:
        """Whether no other VPA speaks for its pods, those that wait or those beside which they wait."""
        homes = (
            self._index.of(Instance(pod.key.namespace, pod.uid, each.name))
            for pod in state.selection.pods
            for each in pod.containers
        )
        return any(home is not None and home.state is state for home in homes)


def changes_of(
    pod: Pod,
    targets: Mapping[str, Amounts],
    policy_for: Callable[[str], ContainerPolicy],
    declared: Mapping[str, Pair],
) -> tuple[Change, ...]:
    """What is to become of the amounts of a pod; nothing where it is not worth it, or its QoS class would change.

    Parameters
    ----------
    targets
        Cores and bytes by container name; NaN for nothing.
    declared
        What its owner requests, by container name.
    """
    changes: list[Change] = []
    worth_it = False
    for place, container in enumerate(pod.containers):
        policy = policy_for(container.name)
        if policy.controlled_values == REQUESTS_ONLY and pod.resizability.qos == GUARANTEED:
            continue
        for resource, target in enumerate(targets.get(container.name, NOTHING)):
            if resource == CPU and pod.is_boosted(container.name):
                continue
            owners = declared.get(container.name, NOTHING)[resource]
            wanted = _wanted(container.requests[resource], target, owners)
            of_one = _of_one(place, container, resource, wanted, limits=policy.controlled_values != REQUESTS_ONLY)
            changes += of_one
            worth_it |= bool(of_one) and abs(wanted / container.requests[resource] - 1.0) > WORTH_IT
    return tuple(changes) if worth_it else ()


def _wanted(request: float, target: float, declared: float) -> float:
    """Cores or bytes; NaN for no change."""
    if math.isnan(request) or math.isnan(target) or request <= 0.0:
        return math.nan
    raised = request if math.isnan(declared) else max(request, min(target, declared))
    return target if target < request else raised


def _of_one(place: int, container: ContainerState, resource: int, wanted: float, *, limits: bool) -> Sequence[Change]:
    """The request, and the limit where it keeps its ratio to it."""
    request, limit = container.requests[resource], container.limits[resource]
    if math.isnan(wanted) or wanted == request:
        return ()
    if math.isnan(limit):
        return (Change(place, REQUESTS, resource, wanted),)
    if not limits:
        return (Change(place, REQUESTS, resource, min(wanted, limit)),)
    return Change(place, REQUESTS, resource, wanted), Change(place, LIMITS, resource, wanted * (limit / request))


def _age(offer: Offer) -> tuple[float, str]:
    pod = offer[0]
    return (math.inf if math.isnan(pod.created_s) else pod.created_s), pod.uid


def _words(pod: Pod, changes: Collection[Change]) -> str:
    return ", ".join(
        f"{pod.containers[each.container].name} {each.part} {RESOURCES[each.resource]} {each.amount:g}"
        for each in changes
    )
