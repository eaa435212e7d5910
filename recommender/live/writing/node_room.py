"""What CPU pods may be raised to where they run: no more than their nodes have left.

The kubelet puts a resize off as a whole where its node has no room for it, what there is room for as well. For that the
VPA's updater evicts the pod in mode `InPlaceOrRecreate`: after five minutes, counted from the first time that it saw a
resize of a pod of that name wait, so for the second one at once (upstream, `pkg/updater/inplace`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.engine.rails import OLD_S
from recommender.live.rules import IN_PLACE
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import CPU, RESOURCES, ContainerRecommendation


class NodeRoom:
    """What was recommended and is not had yet counts as taken, for all others: VPAs are asked for one after the other.

    Pods that nobody lets us see leave room that is not there; on a node that is not known nothing is held back.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._states: Collection[VpaState] = ()
        self._left: dict[str, float] | None = None
        self._asked: dict[ObjectKey, float] = {}

    def begin(self, states: Collection[VpaState]) -> None:
        """A round begins: what nodes have left is looked at anew, once anybody wants more."""
        self._states, self._left = states, None

    def most_cores(self, state: VpaState, wanted: Sequence[ContainerRecommendation], now_s: float) -> float:
        """What the containers of a pod may be recommended together; infinite where no resize comes of it."""
        names, total = {one.container for one in wanted}, _total(wanted)
        pods = _placed(state)
        raised = [pod for pod in pods if _has(pod, names) < total and _is_updated(pod, wanted, now_s)]
        if state.vpa.update_mode not in IN_PLACE or not raised:
            self._asked.pop(state.vpa.key, None)
            return math.inf
        left = self._left = self._look() if self._left is None else self._left
        before = self._asked.get(state.vpa.key, 0.0)
        fits = [
            _has(pod, names) + max(0.0, left[pod.node] + max(0.0, before - _has(pod, names)))
            for pod in raised
            if pod.node in left
        ]
        # One target is for all of them: what another one has already is not taken from it for a full node's sake.
        most = max(min(fits), *(_has(pod, names) for pod in pods)) if fits else math.inf
        self._asked[state.vpa.key] = min(total, most)
        for pod in pods:
            if pod.node in left:
                had = _has(pod, names)
                left[pod.node] -= max(0.0, min(total, most) - had) - max(0.0, before - had)
        return most

    def _look(self) -> dict[str, float]:
        """What is left of the CPU of the nodes of all pods, less what was asked for and is not had yet."""
        placed = {state.vpa.key: (state, _placed(state)) for state in self._states}
        nodes = {pod.node for _, pods in placed.values() for pod in pods}
        left = dict(self._view.spare_cores(nodes, ()))
        self._asked = {key: asked for key, asked in self._asked.items() if key in placed}
        for key, asked in self._asked.items():
            state, pods = placed[key]
            for pod in pods:
                if pod.node in left:
                    left[pod.node] -= max(0.0, asked - _has(pod, state.targets.keys()))
        return left


def _placed(state: VpaState) -> list[Pod]:
    return [pod for pod in state.selection.pods if pod.node and not pod.finished and not pod.deleting]


def _total(wanted: Sequence[ContainerRecommendation]) -> float:
    return math.fsum(one.target[CPU] for one in wanted if one.target[CPU] >= 0.0)


def _has(pod: Pod, names: Collection[str]) -> float:
    """Cores that these containers of a pod request."""
    requests = (one.requests[CPU] for one in pod.containers if one.name in names)
    return math.fsum(cores for cores in requests if cores >= 0.0)


def _is_updated(pod: Pod, wanted: Sequence[ContainerRecommendation], now_s: float) -> bool:
    """Whether the updater acts: what a pod requests is out of bounds, or it is so old that these do not count."""
    if pod.started_s is not None and now_s - pod.started_s >= OLD_S:
        return True
    requests = {one.name: one.requests for one in pod.containers}
    return any(
        not one.lower[i] <= requests[one.container][i] <= one.upper[i]
        for one in wanted
        if one.container in requests
        for i in range(len(RESOURCES))
        if one.target[i] >= 0.0
    )
