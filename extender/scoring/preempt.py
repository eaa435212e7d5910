"""Whom to push out, so that no pod is evicted in vain, and none waits behind pods that it may push out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from extender.pods.pod import Pod
from extender.scoring.filter import refused
from extender.scoring.request import PlacementRequest
from extender.settings import Limits
from extender.view.snapshot import Floats
from extender.view.state import Resident
from recommender.records import MEMORY

Victims = Mapping[str, Sequence[str]]
"""Node -> UIDs of the pods to be evicted there."""


def evictable(pod: Pod, residents: Mapping[str, Resident], *, seen: bool = True) -> list[Resident]:
    """Whom of a node the pod may push out for the forecast alone: one of our scheduler, and of lower priority.

    Those of the lowest priority first, and of these the one that needs most memory. Only those seen there, unless told
    otherwise.
    """
    there = [one for one in residents.values() if one.pod.of_our_scheduler and (one.seen or not seen)]
    there = [one for one in there if one.pod.priority < pod.priority]
    return sorted(there, key=lambda one: (one.pod.priority, -one.use[MEMORY].max(), one.pod.uid))


def relieved(
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
    besides: list[list[Resident]] = [[] for _ in victims]
    while True:
        against = refused(request, limits, freed).anywhere(nodes)
        left = [node for node in np.flatnonzero(against).tolist() if len(besides[node]) < len(others[node])]
        if not left:
            return [None if no else more for no, more in zip(against.tolist(), besides, strict=True)]
        for node in left:
            goes = others[node][len(besides[node])]
            besides[node].append(goes)
            freed[:, :, node] += goes.use


def _use(pods: Sequence[Resident], cells: int) -> Floats:
    return np.sum([pod.use for pod in pods], axis=0) if pods else np.zeros((2, cells))
