"""What reservations for gangs mean to a pod that is asked about.

A member goes to the node reserved for it alone, as long as the scheduler has that among the nodes that are left, and is
judged like any pod when it has not. No forecast keeps it from there: a tight node is better than half a gang. For
others what the members ask for is taken, until these are bound or the reservation is over, and what the next pod of a
moved one will ask for before it is made; but never for pods of kube-system, of other schedulers or of a higher
priority, nor for one that was refused every node for `patience_s`.

Held against pods that pass through this extender; what others bind is not known before the watch shows it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from extender.pods.pod import Pod
from extender.reasons import RESERVED_ELSEWHERE, RESERVED_FOR_GANG
from extender.view.snapshot import Snapshot
from extender.view.state import ClusterState

ROUNDING_TOLERANCE = 1e-9
SYSTEM_NAMESPACE = "kube-system"
NO_PODS: Mapping[str, Sequence[Pod]] = MappingProxyType({})


def reserved_elsewhere(pod: Pod, names: Sequence[str], state: ClusterState) -> dict[str, str] | None:
    """Node -> why not, for all but the node reserved for the pod; None when that is not among them or there is none."""
    own = state.reservations.node_of(pod.uid)
    return {name: RESERVED_ELSEWHERE for name in names if name != own} if own and own in names else None


def reserved_for_others(
    pod: Pod, names: Sequence[str], state: ClusterState, leaving: Mapping[str, Sequence[Pod]] = NO_PODS
) -> dict[str, str]:
    """Node -> why not, where the pod's requests do not fit beside what is reserved.

    `leaving`: node -> pods there that will be evicted.
    """
    reserved = state.reservations.by_node()
    if not reserved or not pod.of_our_scheduler or pod.namespace == SYSTEM_NAMESPACE:
        return {}
    if state.waiting.waited_s(pod.uid) >= state.patience_s:
        return {}
    snapshot = state.snapshot()
    found = {}
    for name in sorted(reserved.keys() & set(names) & snapshot.table.index.keys()):
        held, counted = _members_on(name, pod, reserved[name], state)
        if _lacks_capacity(snapshot, snapshot.table.index[name], pod, held, [*counted, *leaving.get(name, ())]):
            found[name] = RESERVED_FOR_GANG
    return found


def _members_on(node: str, pod: Pod, uids: Sequence[str], state: ClusterState) -> tuple[list[Pod], list[Pod]]:
    """For whom a node is reserved against a pod; and who of all members is counted there already.

    A member that was advised to go to its node is counted there like any pod that was; one that was advised to go
    elsewhere needs the node no more.
    """
    held, counted = [], []
    for uid in uids:
        member, advised = state.waiting.of(uid) or state.reservations.replacement_of(uid), state.advised_to(uid)
        if member is None or uid == pod.uid or advised not in ("", node):
            continue
        if member.priority >= pod.priority:
            held.append(member)
        if advised:
            counted.append(member)
    return held, counted


def _lacks_capacity(snapshot: Snapshot, place: int, pod: Pod, held: Sequence[Pod], without: Sequence[Pod]) -> bool:
    """Whether the pod lacks anything that is held on a node, once others that are counted there are `without`."""
    for each, need in enumerate(pod.requests):
        kept = math.fsum(member.requests[each] for member in held)
        there = snapshot.requested[each, place] + kept - math.fsum(other.requests[each] for other in without)
        if need > 0.0 and kept > 0.0 and there + need > snapshot.allocatable[each, place] * (1 + ROUNDING_TOLERANCE):
            return True
    kept_devices, gone_devices = _devices(held), _devices(without)
    needs = {name: need for name, need in pod.extended.items() if kept_devices[name] > 0.0}
    adjustment = {name: kept_devices[name] - gone_devices[name] for name in needs}
    return snapshot.devices.lacks(place, needs, adjustment)


def _devices(pods: Sequence[Pod]) -> defaultdict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for pod in pods:
        for name, amount in pod.extended.items():
            total[name] += amount
    return total
