"""What pods may be raised to where they run: no more than their nodes have left.

The kubelet puts a resize off as a whole where its node has no room for it, what there is room for as well. For that the
VPA's updater evicts the pod in mode `InPlaceOrRecreate`: after five minutes, counted from the first time that it saw a
resize of a pod of that name wait, so for the second one at once (upstream, `pkg/updater/inplace`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.engine.rails import OLD_S
from recommender.live.rules import IN_PLACE, limit_follows
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import MEMORY, RESOURCES, Amounts, ContainerRecommendation, FloatArray, amounts_of

NO_BOUND: Amounts = (math.inf, math.inf)
NOTHING = np.zeros(len(RESOURCES))


class NodeRoom:
    """What was recommended and is not had yet counts as taken, for all others: VPAs are asked for one after the other.

    Pods that nobody lets us see leave room that is not there; on a node that is not known nothing is held back.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._states: Collection[VpaState] = ()
        self._left: dict[str, FloatArray] | None = None
        self._asked: dict[ObjectKey, FloatArray] = {}

    def begin(self, states: Collection[VpaState]) -> None:
        """A round begins: what nodes have left is looked at anew, once anybody wants more."""
        self._states, self._left = states, None

    def most(self, state: VpaState, wanted: Sequence[ContainerRecommendation], now_s: float) -> Amounts:
        """What the containers of a pod may be recommended together; infinite where no resize comes of it.

        Memory whose limit moves along is not held back: too little of it kills, a wait for room may not.
        """
        names, total = {one.container for one in wanted}, _total(wanted)
        pods = _placed(state)
        has = [(pod.node, _has(pod, names)) for pod in pods]
        is_resized = state.vpa.update_mode in IN_PLACE and any(
            (total > had).any() and _is_updated(pod, wanted, now_s) for pod, (_, had) in zip(pods, has, strict=True)
        )
        if not is_resized:
            self._asked.pop(state.vpa.key, None)
            return NO_BOUND
        left = self._left = self._look() if self._left is None else self._left
        before = self._asked.get(state.vpa.key, NOTHING)
        fits = [had + np.fmax(0.0, left[node] + np.fmax(0.0, before - had)) for node, had in has if node in left]
        # One target is for all of them: what another one has already is not taken from it for a full node's sake.
        most = np.fmax(np.min(fits, axis=0), np.max([had for _, had in has], axis=0)) if fits else np.array(NO_BOUND)
        if any(limit_follows(state.vpa, pods, name) for name in names):
            most[MEMORY] = math.inf
        self._asked[state.vpa.key] = asked = np.fmin(total, most)
        for node, had in has:
            if node in left:
                left[node] = left[node] - np.fmax(0.0, asked - had) + np.fmax(0.0, before - had)
        return amounts_of(most)

    def _look(self) -> dict[str, FloatArray]:
        """What is left of the nodes of all pods, less what was asked for and is not had yet."""
        placed = {state.vpa.key: (state, _placed(state)) for state in self._states}
        nodes = {pod.node for _, pods in placed.values() for pod in pods}
        left = {node: np.array(spare) for node, spare in self._view.spare(nodes).items()}
        self._asked = {key: asked for key, asked in self._asked.items() if key in placed}
        for key, asked in self._asked.items():
            state, pods = placed[key]
            for pod in pods:
                if pod.node in left:
                    left[pod.node] -= np.fmax(0.0, asked - _has(pod, state.targets.keys()))
        return left


def _placed(state: VpaState) -> list[Pod]:
    return [pod for pod in state.selection.pods if pod.node and not pod.finished and not pod.deleting]


def _total(wanted: Sequence[ContainerRecommendation]) -> FloatArray:
    """float64 (2,): cores and bytes."""
    total: FloatArray = np.fmax(0.0, [one.target for one in wanted]).sum(axis=0) if wanted else NOTHING
    return total


def _has(pod: Pod, names: Collection[str]) -> FloatArray:
    """float64 (2,): what these containers of a pod request; 0 where nothing."""
    requests = [one.requests for one in pod.containers if one.name in names]
    has: FloatArray = np.fmax(0.0, requests).sum(axis=0) if requests else NOTHING
    return has


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
