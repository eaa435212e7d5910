"""The engine's rules for the containers of a VPA, derived from its update mode, its policies and its pods."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recommender.base.records import CPU, MEMORY
from recommender.cluster.objects.pods import RESIZE_ERROR, Pod
from recommender.cluster.objects.quantities import NOTHING, Pair
from recommender.cluster.objects.requests import INFEASIBLE
from recommender.cluster.objects.resizability import BURSTABLE, GUARANTEED, resize_refusal
from recommender.cluster.objects.vpa import (
    REQUESTS_ONLY,
    SHARES,
    SHARING_POLICIES,
    TARGET_KILLS,
    TARGET_VIOLATION,
    Vpa,
    target_share,
)
from recommender.cluster.workloads.kinds import COSTLY_KINDS
from recommender.engine.keys import Rules

DEFAULT_MEMORY_INTERVAL_S, DEFAULT_MEMORY_INTERVALS = 86400.0, 8
"""Of memory peaks: length of an interval, and how many intervals count (upstream's flags at their defaults)."""


def rules_of(vpa: Vpa, pods: Sequence[Pod], container: str, declared: Pair = NOTHING, *, observe_only: bool) -> Rules:
    """Derive the rules of a container name; `declared` is what the owner's pod template requests.

    While no pod is live, the next one will be like the last.
    """
    live = [pod for pod in pods if not pod.finished]
    policy = vpa.policy_for(container)
    advisory_only = observe_only or bool(vpa.pause) or vpa.update_mode in ("Off", "Initial") or policy.mode == "Off"
    evictable = vpa.update_mode != "InPlace" and len(live) >= (vpa.min_replicas or 0)
    return Rules(
        applied=not advisory_only,
        evicts=vpa.update_mode != "Off"
        and (
            not vpa.resizes_in_place
            or any(_needs_eviction(vpa, pod) for pod in live or pods)
            or (evictable and any(_is_refused(pod) for pod in live))
        ),
        limits_follow=limit_follows(vpa, live or pods, container, MEMORY),
        repeats=vpa.target.kind not in COSTLY_KINDS,
        memory_interval_s=policy.memory_interval_s,
        declared_cores=declared[CPU],
        shares=bool(sharing_policy(vpa)),
        evictable=evictable,
        cpu_limit_follows=limit_follows(vpa, live or pods, container, CPU),
        declared_bytes=declared[MEMORY],
        target_violation=target_share(vpa.annotations, TARGET_VIOLATION),
        target_kills=target_share(vpa.annotations, TARGET_KILLS),
    )


def most_requested(vpa: Vpa, pods: Sequence[Pod], container: str) -> Pair:
    """The most that a container name can request: with `RequestsOnly` its limits, to which the updater cuts targets.

    CPU of Burstable pods stays a millicore below. Requests that equal all limits would make a pod Guaranteed, and for
    that the API server refuses the whole resize. In mode `Off` a person reads the target, and may raise the limits.
    """
    found = [
        (each.limits, 0.001 if pod.resizability.qos == BURSTABLE else 0.0)
        for pod in pods
        if not pod.finished and (each := pod.container(container)) is not None
    ]
    if not found or vpa.update_mode == "Off" or vpa.policy_for(container).controlled_values != REQUESTS_ONLY:
        return math.inf, math.inf
    cpu_cores = max(math.inf if math.isnan(limits[CPU]) else limits[CPU] - below for limits, below in found)
    return cpu_cores, max(math.inf if math.isnan(limits[MEMORY]) else limits[MEMORY] for limits, _ in found)


def limit_follows(vpa: Vpa, pods: Sequence[Pod], container: str, resource: int) -> bool:
    """Whether the limit of a resource moves with the request, for a container name."""
    states = (pod.container(container) for pod in pods)
    return vpa.policy_for(container).controlled_values != REQUESTS_ONLY and any(
        state is not None and not math.isnan(state.limits[resource]) for state in states
    )


def sharing_policy(vpa: Vpa) -> str:
    """The policy by which pods share the CPU of their nodes; empty where they do not share."""
    policy = vpa.annotations.get(SHARES, "")
    return policy if policy in SHARING_POLICIES else ""


def retention_s(vpa: Vpa, container: str) -> float:
    """How long samples of a container name count; a name that no pod has had for longer is forgotten."""
    policy = vpa.policy_for(container)
    interval_s = policy.memory_interval_s or DEFAULT_MEMORY_INTERVAL_S
    return interval_s * (policy.memory_intervals or DEFAULT_MEMORY_INTERVALS)


def _needs_eviction(vpa: Vpa, pod: Pod) -> bool:
    """Whether a resize in place is impossible: it would change the QoS class, or restart a container.

    The updater resizes all containers of a pod together, so those without a change of their own count as well.
    """
    policies = [policy for _, policy in vpa.controlling(container.name for container in pod.containers)]
    if pod.resizability.qos == GUARANTEED and any(one.controlled_values == REQUESTS_ONLY for one in policies):
        return True
    restarts = pod.resizability.restarts & frozenset[str]().union(*(one.controlled for one in policies))
    return bool(resize_refusal([pod.resizability._replace(restarts=restarts)]))


def _is_refused(pod: Pod) -> bool:
    """Whether its node has refused a resize, for which the updater evicts the pod at once instead of waiting for room.

    A kubelet refuses them under the static CPU manager, with swap, and for a memory limit below what is in use.
    """
    return any(each.reason in (INFEASIBLE, RESIZE_ERROR) for each in pod.resizes)
