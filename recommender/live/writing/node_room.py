"""How far pods can be raised in place: no further than their nodes have free capacity.

The kubelet defers a resize as a whole when its node lacks room for any part of it. In mode `InPlaceOrRecreate` the
VPA's updater then evicts the pod: after five minutes from when it first saw a deferred resize of a pod of that name, so
at once for a second one (upstream, `pkg/updater/inplace`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.base.records import MEMORY, RESOURCES, Amounts, ContainerRecommendation, FloatArray, amounts_of
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.engine.rails import POD_LIFETIME_THRESHOLD_S
from recommender.live.rules import limit_follows
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState

UNBOUNDED: Amounts = (math.inf, math.inf)
NOTHING = np.zeros(len(RESOURCES))

UNTOUCHED_AFTER_S = 300.0
"""A pod that the updater may skip counts as skipped once it has not been resized for five rounds of the updater."""

UPDATER_MIN_REPLICAS = 2
"""Live pods that the updater requires before it acts, where the VPA does not say (`--min-replicas`, its default)."""


@dataclass(frozen=True)
class PendingIncrease:
    """A recommendation for the containers of a pod together that has not been applied yet.

    `amounts`, float64 (2,), are recommended for each pod, `requested` by all its pods together when it was first
    published at `since_s`; no request has changed since.
    """

    names: frozenset[str]
    amounts: FloatArray
    requested: FloatArray
    since_s: float


class NodeRoom:
    """Free capacity of nodes, less increases that were recommended to other VPAs and are not applied yet.

    Pods that we may not list make nodes look emptier than they are; on unknown nodes nothing is limited.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._states: Collection[VpaState] = ()
        self._free: dict[str, FloatArray] = {}
        self._is_read = False
        self._pending: dict[ObjectKey, PendingIncrease] = {}

    def begin(self, states: Collection[VpaState]) -> None:
        """Start a round: the free capacity is read again once a VPA wants more."""
        self._states, self._is_read = states, False

    def limit(self, state: VpaState, wanted: Sequence[ContainerRecommendation], now_s: float) -> Amounts:
        """The most to recommend to the containers of a pod together; infinite where it causes no resize in place.

        Memory whose limit moves with its request is not limited: too little of it kills, a deferred resize may not.
        """
        names, total = frozenset(each.container for each in wanted), _sum([each.target for each in wanted])
        pods = _running_pods(state)
        requests = np.array([_requested(pod, names) for pod in pods]).reshape(-1, len(RESOURCES))
        if not _is_resized(state, pods, requests, wanted, now_s):
            self._pending.pop(state.vpa.key, None)
            return UNBOUNDED
        if not self._is_read:
            self._read_free(now_s)
        before = self._pending.get(state.vpa.key)
        if before is not None:
            self._claim(before, state, pods, now_s, share=-1.0)  # what it claims is room for itself
        rows_on: dict[str, list[int]] = defaultdict(list)
        for row, pod in enumerate(pods):
            rows_on[pod.node].append(row)
        fits = [_water_level(requests[rows], self._free[node]) for node, rows in rows_on.items() if node in self._free]
        # All pods have one target: a full node must not reduce what another of them already requests.
        most = np.fmax(np.min(fits, axis=0), np.max(requests, axis=0)) if fits else np.array(UNBOUNDED)
        if any(limit_follows(state.vpa, pods, name, MEMORY) for name in names):
            most[MEMORY] = math.inf
        requested = requests.sum(axis=0)
        unchanged = before is not None and np.array_equal(before.requested, requested)
        since_s = min(before.since_s, now_s) if before is not None and unchanged else now_s
        increase = self._pending[state.vpa.key] = PendingIncrease(names, np.fmin(total, most), requested, since_s)
        self._claim(increase, state, pods, now_s)
        return amounts_of(most)

    def _read_free(self, now_s: float) -> None:
        """Read the free capacity of the nodes of all pods, less all pending increases."""
        running = {state.vpa.key: (state, _running_pods(state)) for state in self._states}
        nodes = {pod.node for _, pods in running.values() for pod in pods}
        self._free = {node: np.array(spare) for node, spare in self._view.spare(nodes).items()}
        self._is_read = True
        self._pending = {key: increase for key, increase in self._pending.items() if key in running}
        for key, increase in self._pending.items():
            self._claim(increase, *running[key], now_s)

    def _claim(
        self, increase: PendingIncrease, state: VpaState, pods: Sequence[Pod], now_s: float, share: float = 1.0
    ) -> None:
        """Take what pods are to get beyond their requests off their nodes, unless the updater seems to skip them."""
        may_be_skipped = state.vpa.min_replicas is None and len(pods) < UPDATER_MIN_REPLICAS
        if may_be_skipped and now_s - increase.since_s > UNTOUCHED_AFTER_S:
            return
        for pod in pods:
            if pod.node in self._free:
                missing = np.fmax(0.0, increase.amounts - _requested(pod, increase.names))
                self._free[pod.node] -= share * missing


def _water_level(requests: FloatArray, room: FloatArray) -> FloatArray:
    """float64 (2,): the level to which all requests (pods, 2) below it can be raised with this much room in total."""
    number = np.arange(1, len(requests) + 1)[:, np.newaxis]
    level: FloatArray = ((np.fmax(0.0, room) + np.cumsum(np.sort(requests, axis=0), axis=0)) / number).min(axis=0)
    return level


def _is_resized(
    state: VpaState, pods: Sequence[Pod], requests: FloatArray, wanted: Sequence[ContainerRecommendation], now_s: float
) -> bool:
    """Whether the updater raises any of the pods in place."""
    if not state.vpa.resizes_in_place or len(pods) < (state.vpa.min_replicas or 1):
        return False
    total = _sum([each.target for each in wanted])
    return any(
        (total > requested).any() and _updater_acts(pod, wanted, now_s)
        for pod, requested in zip(pods, requests, strict=True)
    )


def _running_pods(state: VpaState) -> list[Pod]:
    return [pod for pod in state.selection.pods if pod.node and not pod.finished and not pod.deleting]


def requested_by_container(state: VpaState) -> dict[str, Amounts]:
    """The largest request of any of its pods for each container name; 0 where there is none."""
    largest: dict[str, Amounts] = {}
    for pod in _running_pods(state):
        for container in pod.containers:
            largest[container.name] = amounts_of(np.fmax(largest.get(container.name, NOTHING), container.requests))
    return largest


def _requested(pod: Pod, names: Collection[str]) -> FloatArray:
    """float64 (2,): what these containers of a pod request."""
    return _sum([container.requests for container in pod.containers if container.name in names])


def _sum(amounts: Sequence[Amounts]) -> FloatArray:
    """float64 (2,): sum of cores and of bytes; a missing amount counts as 0."""
    return np.fmax(0.0, amounts).sum(axis=0) if amounts else NOTHING


def _updater_acts(pod: Pod, wanted: Sequence[ContainerRecommendation], now_s: float) -> bool:
    """Whether the updater acts on a pod: its requests are out of bounds, or it is so old that any difference counts."""
    if pod.started_s is not None and now_s - pod.started_s >= POD_LIFETIME_THRESHOLD_S:
        return True
    requests = {container.name: container.requests for container in pod.containers}
    return any(
        not each.lower[i] <= requests[each.container][i] <= each.upper[i]
        for each in wanted
        if each.container in requests
        for i in range(len(RESOURCES))
        if each.target[i] >= 0.0
    )
