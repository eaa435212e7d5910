"""What the nodes offer that pods may run on, and what the quotas of their namespace leave them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import Node, Quota
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.vpa import REQUESTS_AND_LIMITS, Vpa
from recommender.cluster.watching.reflector import Reflector
from recommender.policies.room import Room
from recommender.records import CPU, MEMORY

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Rooms:
    """Asked for thousands of workloads at each round, and worked out once for all that ask for the same."""

    def __init__(self, nodes: Reflector[Node], quotas: Reflector[Quota]) -> None:
        self._nodes, self._version = nodes, -1
        self._known: dict[Hashable, tuple[Pair, ...]] = {}
        self._quotas, self._quotas_version = quotas, -1
        self._by_namespace: dict[str, list[Quota]] = {}
        self._number: dict[ObjectKey, int] = {}
        self._pods: Counter[str] = Counter()

    def selected(self, vpa: ObjectKey, pods: Sequence[Pod], replicas: int) -> None:
        """A VPA has these pods from now on, and is to have so many; those of all VPAs share what quotas leave."""
        number = max(replicas, sum(not pod.finished for pod in pods))
        self._pods[vpa.namespace] += number - self._number.pop(vpa, 0)
        if number:
            self._number[vpa] = number

    def of(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        """For each of the pods of a VPA."""
        return Room(self._nodes_for(pods), self._quota_of(vpa, pods))

    def spare(self, nodes: Collection[str], pods: Iterable[Pod]) -> dict[str, Pair]:
        """What these pods leave of these nodes by their requests; only of nodes that say what they offer."""
        known = self._nodes.snapshot().values()
        spare = {node.name: node.allocatable for node in known if node.name in nodes and min(node.allocatable) > 0}
        for pod in pods:
            if pod.node in spare and not pod.finished:
                left, taken = spare[pod.node], pod.requests
                spare[pod.node] = left[CPU] - taken[CPU], left[MEMORY] - taken[MEMORY]
        return spare

    def _nodes_for(self, pods: Sequence[Pod]) -> tuple[Pair, ...]:
        """Allocatable of the nodes that any of these pods may run on, as far as selector and taints tell.

        They have one target. What one of them uses on large nodes must not be cut to the small ones of another. What
        many nodes have alike is said once.
        """
        if self._version != self._nodes.version:
            self._known, self._version = {}, self._nodes.version
        found: dict[Pair, None] = {}
        for asks, pod in {(tuple(pod.node_selector.items()), pod.tolerations): pod for pod in pods}.items():
            if asks not in self._known:
                nodes = self._nodes.snapshot().values()
                self._known[asks] = tuple({node.allocatable: None for node in nodes if _may_run(pod, node)})
            found |= dict.fromkeys(self._known[asks])
        return tuple(found)

    def _quota_of(self, vpa: Vpa, pods: Sequence[Pod]) -> Pair:
        """What each may request: together what they have, and their part of what is left.

        A replica that is just missing has its share: it could not be made again with more. Where limits go along with
        requests, what is left of limits counts by the ratio of the two.
        """
        quotas, number = self._quotas_in(vpa.key.namespace), self._number.get(vpa.key, 0)
        if not quotas or not number:
            return math.inf, math.inf
        containers = [one for pod in pods if not pod.finished for one in pod.containers]
        follow = any(vpa.policy_for(one.name).controlled_values == REQUESTS_AND_LIMITS for one in containers)
        most = [math.inf, math.inf]
        for i in (CPU, MEMORY):
            requests, limits = (_sum(one.requests[i] for one in containers), _sum(one.limits[i] for one in containers))
            part = 1.0 / self._pods[vpa.key.namespace]
            most[i] = requests / number + max(0.0, min(quota.requests_left[i] for quota in quotas)) * part
            if follow and limits > 0.0:
                limit = limits / number + max(0.0, min(quota.limits_left[i] for quota in quotas)) * part
                most[i] = min(most[i], limit * requests / limits)
        return most[CPU], most[MEMORY]

    def _quotas_in(self, namespace: str) -> Sequence[Quota]:
        if self._quotas_version != self._quotas.version:
            self._by_namespace, self._quotas_version = defaultdict(list), self._quotas.version
            for quota in self._quotas.snapshot().values():
                self._by_namespace[quota.key.namespace].append(quota)
        return self._by_namespace.get(namespace, ())


def _sum(amounts: Iterable[float]) -> float:
    """Without those that are absent."""
    return math.fsum(amount for amount in amounts if amount >= 0)


def _may_run(pod: Pod, node: Node) -> bool:
    """Whether selector and taints allow it; affinity is not looked at, so that no node is left out in error."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    return all(
        taint.effect not in KEEPS_AWAY
        or any(
            toleration.key in ("", taint.key)
            and toleration.effect in ("", taint.effect)
            and (toleration.operator == "Exists" or toleration.value == taint.value)
            for toleration in pod.tolerations
        )
        for taint in node.taints
    )
