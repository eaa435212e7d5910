"""What becomes of what is published for the containers of a VPA, as its update mode and its pods have it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recommender.cluster.objects.pair import NOTHING, Pair
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.resizability import GUARANTEED, resize_refusal
from recommender.cluster.objects.vpa import REQUESTS_ONLY, SHARES, SHARING_POLICIES, ContainerPolicy, Vpa
from recommender.cluster.workloads.targets import JOBS
from recommender.engine.keys import Rules
from recommender.records import CPU, MEMORY

INTERVAL_S, INTERVALS = 86400.0, 8
"""Of memory peaks: how long one is, and how many count (upstream's flags at their defaults)."""

IN_PLACE = frozenset({"InPlace", "InPlaceOrRecreate"})


def rules_of(vpa: Vpa, pods: Sequence[Pod], container: str, declared: Pair = NOTHING, *, observes_only: bool) -> Rules:
    """What becomes of a target of a container name.

    Parameters
    ----------
    declared
        What its owner requests.
    observes_only
        Nobody gets what is published.
    """
    live = [pod for pod in pods if not pod.finished]
    policy = vpa.policy_for(container)
    looked_at = observes_only or vpa.update_mode in ("Off", "Initial") or policy.mode == "Off"
    return Rules(
        applied=not looked_at,
        evicts=vpa.update_mode != "Off"
        and (vpa.update_mode not in IN_PLACE or any(_evicts(pod, policy) for pod in live)),
        limits_follow=limit_follows(vpa, live, container),
        repeats=vpa.target.kind not in JOBS,
        memory_interval_s=policy.memory_interval_s,
        declared_cores=declared[CPU],
        shares=bool(shares(vpa)),
        evictable=vpa.update_mode != "InPlace" and len(live) >= (vpa.min_replicas or 0),
    )


def limit_follows(vpa: Vpa, pods: Sequence[Pod], container: str) -> bool:
    """Whether the memory limit of a container name moves with its request."""
    return vpa.policy_for(container).controlled_values != REQUESTS_ONLY and any(
        _is_limited(pod, container) for pod in pods
    )


def shares(vpa: Vpa) -> str:
    """By which policy its pods share the CPU of their nodes; empty where they do not."""
    said = vpa.annotations.get(SHARES, "")
    return said if said in SHARING_POLICIES else ""


def counts_for_s(vpa: Vpa, container: str) -> float:
    """How long a sample of a container name counts: one that pods have not had for longer is forgotten."""
    policy = vpa.policy_for(container)
    return (policy.memory_interval_s or INTERVAL_S) * (policy.memory_intervals or INTERVALS)


def _evicts(pod: Pod, policy: ContainerPolicy) -> bool:
    """Whether its resources cannot be changed while it runs: its QoS class would be another one, or it is restarted."""
    alone = pod.resizability.qos == GUARANTEED and policy.controlled_values == REQUESTS_ONLY
    return alone or bool(resize_refusal([pod.resizability]))


def _is_limited(pod: Pod, container: str) -> bool:
    state = pod.container(container)
    return state is not None and not math.isnan(state.limits[MEMORY])
