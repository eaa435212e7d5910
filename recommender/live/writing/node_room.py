"""What pods may be raised to where they run: no more than their nodes have left.

The kubelet puts a resize off as a whole where its node has no room for it, what there is room for as well. For that the
VPA's updater evicts the pod in mode `InPlaceOrRecreate`: after five minutes, counted from the first time that it saw a
resize of a pod of that name wait, so for the second one at once (upstream, `pkg/updater/inplace`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.engine.rails import POD_LIFETIME_THRESHOLD_S
from recommender.live.rules import IN_PLACE, limit_follows
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import MEMORY, RESOURCES, Amounts, ContainerRecommendation, FloatArray, amounts_of

NO_BOUND: Amounts = (math.inf, math.inf)
NOTHING = np.zeros(len(RESOURCES))

LEFT_ALONE_S = 300.0
"""Who may be left alone by the updater, and has not been resized for so many of its rounds of a minute, is."""

UPDATERS_LEAST = 2
"""Pods that the updater asks for before it touches any, where the VPA says nothing (`--min-replicas`, its default)."""


@dataclass(frozen=True)
class Promise:
    """What was recommended to the containers of a pod together, and is not had yet.

    Attributes
    ----------
    had
        float64 (2,): what its pods had together when it was given.
    since_s
        When it was first given; they have got nothing since.
    """

    names: frozenset[str]
    amounts: FloatArray
    had: FloatArray
    since_s: float

    def lacked_by(self, pods: Iterable[Pod]) -> FloatArray:
        """float64 (2,): what has been promised to these pods and is not had yet."""
        return sum((np.fmax(0.0, self.amounts - _has(pod, self.names)) for pod in pods), np.zeros(len(RESOURCES)))


class NodeRoom:
    """What was recommended and is not had yet counts as taken, for all others: VPAs are asked for one after the other.

    Pods that nobody lets us see leave room that is not there; on a node that is not known nothing is held back.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._states: Collection[VpaState] = ()
        self._left: dict[str, FloatArray] | None = None
        self._promises: dict[ObjectKey, Promise] = {}

    def begin(self, states: Collection[VpaState]) -> None:
        """A round begins: what nodes have left is looked at anew, once anybody wants more."""
        self._states, self._left = states, None

    def most(self, state: VpaState, wanted: Sequence[ContainerRecommendation], now_s: float) -> Amounts:
        """What the containers of a pod may be recommended together; infinite where no resize comes of it.

        Memory whose limit moves along is not held back: too little of it kills, a wait for room may not.
        """
        names, total = frozenset(one.container for one in wanted), _total(wanted)
        pods = _placed(state)
        has = np.array([_has(pod, names) for pod in pods]).reshape(-1, len(RESOURCES))
        if not _is_resized(state, pods, has, wanted, now_s):
            self._promises.pop(state.vpa.key, None)
            return NO_BOUND
        left = self._left = self._look(now_s) if self._left is None else self._left
        before = self._promises.get(state.vpa.key)
        on = {node: places for node, places in _by_node(pods).items() if node in left}
        for node, places in on.items():
            left[node] = left[node] + _counted(before, state, pods, places, now_s)
        fits = [_level(has[places], left[node]) for node, places in on.items()]
        # One target is for all of them: what another one has already is not taken from it for a full node's sake.
        most = np.fmax(np.min(fits, axis=0), np.max(has, axis=0)) if fits else np.array(NO_BOUND)
        if any(limit_follows(state.vpa, pods, name) for name in names):
            most[MEMORY] = math.inf
        had = has.sum(axis=0)
        since_s = before.since_s if before is not None and np.array_equal(before.had, had) else now_s
        promise = self._promises[state.vpa.key] = Promise(names, np.fmin(total, most), had, since_s)
        for node, places in on.items():
            left[node] = left[node] - _counted(promise, state, pods, places, now_s)
        return amounts_of(most)

    def _look(self, now_s: float) -> dict[str, FloatArray]:
        """What is left of the nodes of all pods, less what was promised and is not had yet."""
        placed = {state.vpa.key: (state, _placed(state)) for state in self._states}
        nodes = {pod.node for _, pods in placed.values() for pod in pods}
        left = {node: np.array(spare) for node, spare in self._view.spare(nodes).items()}
        self._promises = {key: promise for key, promise in self._promises.items() if key in placed}
        for key, promise in self._promises.items():
            state, pods = placed[key]
            for node, places in _by_node(pods).items():
                if node in left:
                    left[node] -= _counted(promise, state, pods, places, now_s)
        return left


def _by_node(pods: Sequence[Pod]) -> dict[str, list[int]]:
    """Which of the pods each node has, by their places."""
    on: dict[str, list[int]] = {}
    for place, pod in enumerate(pods):
        on.setdefault(pod.node, []).append(place)
    return on


def _counted(
    promise: Promise | None, state: VpaState, pods: Sequence[Pod], places: Sequence[int], now_s: float
) -> FloatArray:
    """float64 (2,): what a promise to some of the pods takes; nothing where the updater seems to leave them alone."""
    may_be_left_alone = state.vpa.min_replicas is None and len(pods) < UPDATERS_LEAST
    if promise is None or (may_be_left_alone and now_s - promise.since_s > LEFT_ALONE_S):
        return NOTHING
    return promise.lacked_by(pods[place] for place in places)


def _level(has: FloatArray, room: FloatArray) -> FloatArray:
    """float64 (2,): to what (pods, 2) can all be raised that have less, together by no more than there is room."""
    number = np.arange(1, len(has) + 1)[:, np.newaxis]
    level: FloatArray = ((np.fmax(0.0, room) + np.cumsum(np.sort(has, axis=0), axis=0)) / number).min(axis=0)
    return level


def _is_resized(
    state: VpaState, pods: Sequence[Pod], has: FloatArray, wanted: Sequence[ContainerRecommendation], now_s: float
) -> bool:
    """Whether the updater raises any of them where it runs."""
    if state.vpa.update_mode not in IN_PLACE or len(pods) < (state.vpa.min_replicas or 1):
        return False
    total = _total(wanted)
    return any((total > had).any() and _is_updated(pod, wanted, now_s) for pod, had in zip(pods, has, strict=True))


def _placed(state: VpaState) -> list[Pod]:
    return [pod for pod in state.selection.pods if pod.node and not pod.finished and not pod.deleting]


def had_by_container(state: VpaState) -> dict[str, Amounts]:
    """The most that any of its pods requests for each container name; 0 where nothing."""
    had: dict[str, Amounts] = {}
    for pod in _placed(state):
        for one in pod.containers:
            had[one.name] = amounts_of(np.fmax(had.get(one.name, NOTHING), one.requests))
    return had


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
    if pod.started_s is not None and now_s - pod.started_s >= POD_LIFETIME_THRESHOLD_S:
        return True
    requests = {one.name: one.requests for one in pod.containers}
    return any(
        not one.lower[i] <= requests[one.container][i] <= one.upper[i]
        for one in wanted
        if one.container in requests
        for i in range(len(RESOURCES))
        if one.target[i] >= 0.0
    )
