"""How reservations for gangs restrict a pod.

A gang member is restricted to its reserved node, whatever the forecast says, as a tight node is better than half a
gang. If the scheduler does not offer that node, the member is treated like any pod. For other pods the requests of
members (and of replacements of moved pods) count as used until these are bound or the reservation expires; those of
pods that have to end before the members fit do not, as others delay the members no more beside them. Exempt are pods of
kube-system, of other schedulers, of higher priority, and those refused by every node for `patience_s`.

Reservations only hold against pods that pass through this extender.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from extender.pods.pod import RESERVED_ELSEWHERE, RESERVED_FOR_GANG, Pod
from extender.view.snapshot import Snapshot
from extender.view.state import ClusterState

ROUNDING_TOLERANCE = 1e-9
SYSTEM_NAMESPACE = "kube-system"


def reserved_elsewhere(pod: Pod, names: Sequence[str], state: ClusterState) -> dict[str, str] | None:
    """Node -> reason, for all but the pod's reserved node; None if there is none or it is not in `names`."""
    own = state.reservations.node_of(pod.uid)
    return {name: RESERVED_ELSEWHERE for name in names if name != own} if own and own in names else None


def reserved_for_others(
    pod: Pod, names: Sequence[str], state: ClusterState, leaving: Mapping[str, Sequence[Pod]]
) -> dict[str, str]:
    """Node -> reason, for nodes where the pod does not fit beside the reservations after the pods in `leaving` are
    evicted."""
    reserved = state.reservations.by_node()
    if not reserved or not pod.of_our_scheduler or pod.namespace == SYSTEM_NAMESPACE:
        return {}
    if state.waiting.waited_s(pod.uid) >= state.limits.patience_s:
        return {}
    snapshot = state.snapshot()
    found = {}
    for name in sorted(reserved.keys() & set(names) & snapshot.table.index.keys()):
        held, counted = _members_on(name, pod, reserved[name], state)
        place, gone = snapshot.table.index[name], [*counted, *leaving.get(name, ())]
        if _lacks_capacity(snapshot, place, pod, held, gone) and _delays(snapshot, place, pod, held, gone, state):
            found[name] = RESERVED_FOR_GANG
    return found


def _delays(
    snapshot: Snapshot, place: int, pod: Pod, held: Sequence[Pod], gone: Sequence[Pod], state: ClusterState
) -> bool:
    """Whether a pod that does not fit beside all others would also be in the way once those have ended that have to: as
    they are, each alone does not fit beside the `held` pods."""
    there = state.pods_on(snapshot.table.names[place])
    if _lacks_capacity(snapshot, place, pod, held, there):
        return True
    known = {each.uid for each in gone}
    ending = [each for each in there if each.uid not in known and _lacks_capacity(snapshot, place, each, held, there)]
    return not ending or _lacks_capacity(snapshot, place, pod, held, [*gone, *ending])


def _members_on(node: str, pod: Pod, uids: Sequence[str], state: ClusterState) -> tuple[list[Pod], list[Pod]]:
    """Members whose reservation of a node holds against a pod, and those already counted in the snapshot there.

    A member advised to go to its node is in the snapshot; one advised to go elsewhere no longer needs its reservation.
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
    """Whether the pod does not fit with the `held` pods added and those in `without` removed, by what the held ones
    request."""
    for each, need in enumerate(pod.requests):
        reserved = math.fsum(member.requests[each] for member in held)
        used = snapshot.requested[each, place] + reserved - math.fsum(other.requests[each] for other in without)
        limit = snapshot.allocatable[each, place] * (1 + ROUNDING_TOLERANCE)
        if need > 0.0 and reserved > 0.0 and used + need > limit:
            return True
    added, removed = _devices(held), _devices(without)
    needs = {name: need for name, need in pod.extended.items() if added[name] > 0.0}
    return snapshot.devices.lacks(place, needs, {name: added[name] - removed[name] for name in needs})


def _devices(pods: Sequence[Pod]) -> defaultdict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for pod in pods:
        for name, amount in pod.extended.items():
            total[name] += amount
    return total
