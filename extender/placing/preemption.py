"""Whom to evict for a pod: those whom the scheduler proposes, and others where the forecast would refuse it still, so
that no pod is evicted in vain, and none waits behind pods that it may push out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from extender.pods.pod import Pod
from extender.protocol.wire import Victims
from extender.scoring.filter import refused
from extender.scoring.request import PlacementRequest
from extender.settings import Limits
from extender.view.snapshot import Floats
from extender.view.state import ClusterState, Resident
from recommender.records import MEMORY

MAX_EXAMINED = 100
"""Nodes on which evictions are tried out for a pod that is refused all, by their names."""


def sufficient_victims(
    request: PlacementRequest, proposed: Victims, there: Mapping[str, Mapping[str, Resident]], limits: Limits
) -> dict[str, Sequence[str]]:
    """Of the nodes of the request, those that would take the pod, and who must go: the victims proposed, and others.

    A scheduler knows at once whom it has placed, a watch some milliseconds later; and a pod whose preemption fails is
    not tried again before something happens in the cluster, or five minutes have passed. So where nothing else helps,
    those go as well who were advised to go to a node and were not seen there yet. One that the scheduler has put
    elsewhere after all makes it give up this preemption, as naming nobody would.

    Parameters
    ----------
    there
        Node -> its pods by UID. Of a node where a victim is not known nothing is said, and its victims stay.
    """
    names = [request.snapshot.table.names[place] for place in request.places.tolist()]
    victims = [_known(proposed[node], there[node]) for node in names]
    for seen in (True, False):
        others = [
            [one for one in evictable(request.pod, there[node], seen=seen) if one.pod.uid not in proposed[node]]
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
    """The node that the forecast refuses until the fewest pods of lower priority are evicted; empty for none.

    One is enough for the scheduler to look at. Of several its message would name now one and now another, and each time
    it differs the pod is tried again at once.
    """
    if not (there := state.evictable_on(request.pod)):
        return ""
    snapshot = request.snapshot
    against = request.places[refused(request, limits).for_any_reason(len(request.places))].tolist()
    names = {snapshot.table.names[place]: place for place in against if snapshot.table.names[place] in there}
    examined = sorted(names)[:MAX_EXAMINED]
    if not examined:
        return ""
    tried = replace(request, places=np.array([names[name] for name in examined], dtype=np.intp))
    others = [evictable(request.pod, state.residents(name)) for name in examined]
    additional = additional_victims(tried, [()] * len(examined), others, limits)
    fewest = {name: len(more) for name, more in zip(examined, additional, strict=True) if more}
    return min(fewest, key=lambda name: (fewest[name], name), default="")


def _known(uids: Sequence[str], there: Mapping[str, Resident]) -> list[Resident] | None:
    return [there[uid] for uid in uids] if all(uid in there for uid in uids) else None


def evictable(pod: Pod, residents: Mapping[str, Resident], *, seen: bool = True) -> list[Resident]:
    """Whom of a node the pod may push out for the forecast alone: one of our scheduler, and of lower priority.

    Those of the lowest priority first, and of these the one that needs most memory. Only those seen there, unless told
    otherwise.
    """
    there = [one for one in residents.values() if one.pod.of_our_scheduler and (one.seen or not seen)]
    there = [one for one in there if one.pod.priority < pod.priority]
    return sorted(there, key=lambda one: (one.pod.priority, -one.use[MEMORY].max(), one.pod.uid))


def additional_victims(
    request: PlacementRequest,
    victims: Sequence[Sequence[Resident] | None],
    others: Sequence[Sequence[Resident]],
    limits: Limits,
) -> list[list[Resident] | None]:
    """Of each node, who must go besides the victims until it would take the pod; None where it never would.

    Parameters
    ----------
    victims
        Of each node of the request, who goes in any case; None where one of them is not known, and nothing can be said
        against it.
    others
        Who may go besides, in this order.
    """
    nodes, cells = len(victims), request.snapshot.grid.cells
    freed = np.zeros((2, cells, nodes))
    for node, known in enumerate(victims):
        freed[:, :, node] = np.inf if known is None else _use(known, cells)
    additional: list[list[Resident]] = [[] for _ in victims]
    while True:
        against = refused(request, limits, freed).for_any_reason(nodes)
        left = [node for node in np.flatnonzero(against).tolist() if len(additional[node]) < len(others[node])]
        if not left:
            return [None if no else more for no, more in zip(against.tolist(), additional, strict=True)]
        for node in left:
            goes = others[node][len(additional[node])]
            additional[node].append(goes)
            freed[:, :, node] += goes.use


def _use(pods: Sequence[Resident], cells: int) -> Floats:
    return np.sum([pod.use for pod in pods], axis=0) if pods else np.zeros((2, cells))
