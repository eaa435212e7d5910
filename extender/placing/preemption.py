"""Victims of preemption: those that the scheduler proposes, and more where the forecast would still refuse the pod.

So no pod is evicted in vain, and no pod waits for others that it may preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from extender.pods.curves import LATER
from extender.pods.pod import Pod
from extender.protocol.wire import Victims
from extender.scoring.filter import refused
from extender.scoring.request import PlacementRequest
from extender.settings import Limits
from extender.view.state import ClusterState, Resident
from recommender.base.records import MEMORY

MAX_EXAMINED = 100  # nodes, in order of names, for which evictions are tried out when a pod is refused everywhere


def sufficient_victims(
    request: PlacementRequest, proposed: Victims, residents: Mapping[str, Mapping[str, Resident]], limits: Limits
) -> dict[str, Sequence[str]]:
    """The nodes of the request that would accept the pod, with their victims: those proposed, and more if needed.

    A failed preemption is not retried before the cluster changes or five minutes have passed. So if nothing else
    helps, pods that were advised to go to a node but are not seen there yet may be victims too: the scheduler knows
    its placements some milliseconds before the watch does. If such a pod went elsewhere, the scheduler gives up the
    preemption, as it would without victims.

    `residents`: node -> its pods by UID. If a proposed victim is unknown, the node is accepted with the victims as
    proposed.
    """
    names = [request.snapshot.table.names[place] for place in request.places.tolist()]
    known = [residents[node].keys() >= set(proposed[node]) for node in names]
    victims = [
        [residents[node][uid] for uid in proposed[node]] if all_known else None
        for node, all_known in zip(names, known, strict=True)
    ]
    for seen in (True, False):
        others = [
            [one for one in evictable(request.pod, residents[node], seen=seen) if one.pod.uid not in proposed[node]]
            for node in names
        ]
        additional = additional_victims(request, victims, others, limits)
        found: dict[str, Sequence[str]] = {
            node: [*proposed[node], *(one.pod.uid for one in more)]
            for node, more in zip(names, additional, strict=True)
            if more is not None and (proposed[node] or more)
        }
        if found:
            return found
    return {}


def node_worth_evicting(request: PlacementRequest, state: ClusterState, limits: Limits) -> str:
    """Of the nodes refused by the forecast, the one that needs the fewest evictions of lower priority; empty for none.
    One suffices for the scheduler to try preemption; with several its message would vary between attempts, and each
    change makes it retry the pod at once."""
    if not (candidates := state.evictable_on(request.pod)):
        return ""
    snapshot = request.snapshot
    refusing = request.places[refused(request, limits).for_any_reason(len(request.places))].tolist()
    names = {snapshot.table.names[place]: place for place in refusing if snapshot.table.names[place] in candidates}
    examined = sorted(names)[:MAX_EXAMINED]
    if not examined:
        return ""
    tried = replace(request, places=np.array([names[name] for name in examined], dtype=np.intp))
    others = [evictable(request.pod, state.residents(name)) for name in examined]
    additional = additional_victims(tried, [()] * len(examined), others, limits)
    fewest = {name: len(more) for name, more in zip(examined, additional, strict=True) if more}
    return min(fewest, key=lambda name: (fewest[name], name), default="")


def evictable(pod: Pod, residents: Mapping[str, Resident], *, seen: bool = True) -> list[Resident]:
    """Pods on a node that may be evicted because of the forecast: of our scheduler and of lower priority, the lowest
    first, then by memory. With `seen`, only those that the watch shows there. A pod whose use is only guessed keeps no
    other out."""
    found = [one for one in residents.values() if one.pod.of_our_scheduler and (one.seen or not seen)]
    lower = [one for one in found if one.pod.priority < pod.priority and one.frees.any()]
    return sorted(lower, key=lambda one: (one.pod.priority, -one.frees[MEMORY].max(), one.pod.uid))


def additional_victims(
    request: PlacementRequest,
    victims: Sequence[Sequence[Resident] | None],
    others: Sequence[Sequence[Resident]],
    limits: Limits,
) -> list[list[Resident] | None]:
    """For each node, the first of `others` to evict besides the victims until it would accept the pod; None if it never
    would. Victims are None where one is unknown, which counts as sufficient."""
    nodes, cells = len(victims), request.snapshot.grid.cells + LATER
    freed = np.zeros((3, cells, nodes))
    for node, known in enumerate(victims):
        freed[:, :, node] = np.inf if known is None else sum(pod.frees for pod in known)
    additional: list[list[Resident]] = [[] for _ in victims]
    while True:
        refusing = refused(request, limits, freed).for_any_reason(nodes)
        left = [node for node in np.flatnonzero(refusing).tolist() if len(additional[node]) < len(others[node])]
        if not left:
            return [None if no else more for no, more in zip(refusing.tolist(), additional, strict=True)]
        for node in left:
            victim = others[node][len(additional[node])]
            additional[node].append(victim)
            freed[:, :, node] += victim.frees
