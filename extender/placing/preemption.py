"""Whom to evict for a pod: those whom the scheduler proposes, and others where the forecast would refuse it still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from extender.scoring.filter import refused
from extender.scoring.preempt import Victims, evictable, relieved
from extender.scoring.request import PlacementRequest
from extender.settings import Limits
from extender.view.state import ClusterState, Resident

MOST_EXAMINED = 100
"""Nodes on which evictions are tried out for a pod that is refused all, by their names."""


def sufficient(
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
    names = [request.snapshot.names[place] for place in request.places.tolist()]
    victims = [_known(proposed[node], there[node]) for node in names]
    for seen in (True, False):
        others = [
            [one for one in evictable(request.pod, there[node], seen=seen) if one.pod.uid not in proposed[node]]
            for node in names
        ]
        besides = relieved(request, victims, others, limits)
        found: dict[str, Sequence[str]] = {
            node: [*proposed[node], *(one.pod.uid for one in more)]
            for node, more in zip(names, besides, strict=True)
            if more is not None and (proposed[node] or more)
        }
        if found:
            return found
    return {}


def worth_evicting(request: PlacementRequest, state: ClusterState, limits: Limits) -> str:
    """The node that the forecast refuses until the fewest pods of lower priority are evicted; empty for none.

    One is enough for the scheduler to look at. Of several its message would name now one and now another, and each time
    it differs the pod is tried again at once.
    """
    if not (there := state.evictable_on(request.pod)):
        return ""
    snapshot = request.snapshot
    against = request.places[refused(request, limits).anywhere(len(request.places))].tolist()
    names = {snapshot.names[place]: place for place in against if snapshot.names[place] in there}
    examined = sorted(names)[:MOST_EXAMINED]
    if not examined:
        return ""
    tried = replace(request, places=np.array([names[name] for name in examined], dtype=np.intp))
    others = [evictable(request.pod, state.residents(name)) for name in examined]
    besides = relieved(tried, [()] * len(examined), others, limits)
    fewest = {name: len(more) for name, more in zip(examined, besides, strict=True) if more}
    return min(fewest, key=lambda name: (fewest[name], name), default="")


def _known(uids: Sequence[str], there: Mapping[str, Resident]) -> list[Resident] | None:
    return [there[uid] for uid in uids] if all(uid in there for uid in uids) else None
