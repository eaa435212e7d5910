"""What the nodes that can run a pod offer, and what the quotas of its namespace leave for it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from recommender.base.records import CPU, MEMORY
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import HARD_EFFECTS, Node, Quota
from recommender.cluster.objects.pods import Pod, tolerated
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.vpa import REQUESTS_AND_LIMITS, Vpa
from recommender.cluster.watching.reflector import Reflector
from recommender.policies.constraints import Room

MIN_KEPT_CONSTRAINTS = 1000
"""Node selectors and tolerations of so many pods are kept in any case: each job may have its own."""


class Rooms:
    """Computes the room of thousands of workloads in each round, once for all that have the same constraints."""

    def __init__(self, nodes: Reflector[Node], quotas: Reflector[Quota]) -> None:
        self._nodes, self._nodes_version = nodes, -1
        self._allocatable_of: dict[str, Pair] = {}
        self._allocatable: dict[Hashable, tuple[Pair, ...]] = {}
        self._quotas, self._quotas_version = quotas, -1
        self._by_namespace: dict[str, list[Quota]] = {}
        self._replicas: dict[ObjectKey, int] = {}
        self._replicas_in: Counter[str] = Counter()

    def set_pods(self, vpa: ObjectKey, pods: Sequence[Pod], replicas: int) -> None:
        """Register the pods of a VPA and its replicas; the pods of all VPAs share what quotas leave."""
        number = max(replicas, sum(not pod.finished for pod in pods))
        self._replicas_in[vpa.namespace] += number - self._replicas.pop(vpa, 0)
        if number:
            self._replicas[vpa] = number

    def of(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        """The room for each of the pods of a VPA."""
        nodes = self._nodes_for(pods)
        if vpa.resizes_in_place:  # they stay where they are, also on a node that is cordoned by now
            names = {pod.node for pod in pods if not pod.finished}
            here = [self._allocatable_of[name] for name in sorted(names & self._allocatable_of.keys())]
            nodes = tuple(dict.fromkeys((*nodes, *here)))
        return Room(nodes, self._quota_of(vpa, pods))

    def spare(self, nodes: Collection[str], pods: Iterable[Pod]) -> dict[str, Pair]:
        """Allocatable capacity of these nodes that these pods, in any order, do not request; known nodes only."""
        known = self._nodes.snapshot().values()
        parts = {node.name: [node.allocatable] for node in known if node.name in nodes and min(node.allocatable) > 0}
        for pod in pods:
            if pod.node in parts and not pod.finished:
                cpu_cores, memory_bytes = pod.requests
                parts[pod.node].append((-cpu_cores, -memory_bytes))
        return {name: (math.fsum(p[CPU] for p in of), math.fsum(p[MEMORY] for p in of)) for name, of in parts.items()}

    def memory_bytes(self, node: str) -> float:
        """Memory of a node, reserved or not; that of the largest where it is unknown, infinite without any."""
        known = self._nodes.snapshot().values()
        nodes = [one for one in known if one.name == node] or known
        amounts = (amount for one in nodes for amount in (one.capacity[MEMORY], one.allocatable[MEMORY]))
        return max((amount for amount in amounts if amount > 0.0), default=math.inf)

    def _nodes_for(self, pods: Sequence[Pod]) -> tuple[Pair, ...]:
        """Distinct allocatable of the nodes that any of these pods can run on, by node selector and taints.

        All the pods have one target: use of a pod on a large node must not be capped to the small node of another.
        """
        if self._nodes_version != self._nodes.version:
            self._allocatable, self._nodes_version = {}, self._nodes.version
            self._allocatable_of = {node.name: node.allocatable for node in self._nodes.snapshot().values()}
        found: dict[Pair, None] = {}
        for constraints, pod in {(tuple(pod.node_selector.items()), pod.tolerations): pod for pod in pods}.items():
            if constraints not in self._allocatable:
                if len(self._allocatable) > 2 * self._replicas_in.total() + MIN_KEPT_CONSTRAINTS:
                    self._allocatable.clear()  # most are of pods that are gone
                self._allocatable[constraints] = self._allocatable_for(pod)
            found |= dict.fromkeys(self._allocatable[constraints])
        return tuple(found)

    def _allocatable_for(self, pod: Pod) -> tuple[Pair, ...]:
        """Distinct allocatable of the nodes that node selector and taints allow; affinity might exclude more."""
        nodes = self._nodes.snapshot().values()
        # A pod may have thousands of tolerations: each is compared with each taint once, not on every node.
        hard = {taint for node in nodes for taint in node.taints if taint.effect in HARD_EFFECTS}
        forbidden, selector = hard - tolerated(hard, pod.tolerations), pod.node_selector.items()
        return tuple(
            dict.fromkeys(
                node.allocatable
                for node in nodes
                if forbidden.isdisjoint(node.taints) and all(node.labels.get(key) == value for key, value in selector)
            )
        )

    def _quota_of(self, vpa: Vpa, pods: Sequence[Pod]) -> Pair:
        """What each pod may request: its part of what all have, and its part of what the quotas leave.

        A replica that is missing just now keeps its share, else it could not be recreated. Where limits move with
        requests, the remaining quota of limits counts by their ratio.
        """
        quotas = [quota for quota in self._quotas_in(vpa.key.namespace) if _is_for(quota, pods)]
        replicas = self._replicas.get(vpa.key, 0)
        if not quotas or not replicas:
            return math.inf, math.inf
        containers = [container for pod in pods if not pod.finished for container in pod.containers]
        limits_follow = any(vpa.policy_for(each.name).controlled_values == REQUESTS_AND_LIMITS for each in containers)
        part = 1.0 / self._replicas_in[vpa.key.namespace]
        most = [math.inf, math.inf]
        for i in (CPU, MEMORY):
            requests = _sum(each.requests[i] for each in containers)
            limits = _sum(each.limits[i] for each in containers)
            most[i] = requests / replicas + max(0.0, min(quota.requests_left[i] for quota in quotas)) * part
            if limits_follow and limits > 0.0:
                limit = limits / replicas + max(0.0, min(quota.limits_left[i] for quota in quotas)) * part
                most[i] = min(most[i], limit * requests / limits)
        return most[CPU], most[MEMORY]

    def _quotas_in(self, namespace: str) -> Sequence[Quota]:
        if self._quotas_version != self._quotas.version:
            self._by_namespace, self._quotas_version = defaultdict(list), self._quotas.version
            for quota in self._quotas.snapshot().values():
                self._by_namespace[quota.key.namespace].append(quota)
        return self._by_namespace.get(namespace, ())


def _is_for(quota: Quota, pods: Sequence[Pod]) -> bool:
    """Whether any of these pods is in the scope of a quota, or it has none; true where there are no pods."""
    everything = not (pods and quota.scopes.requirements)
    return everything or any(quota.scopes.matches(pod.scopes) for pod in pods)


def _sum(amounts: Iterable[float]) -> float:
    """Sum without missing amounts."""
    return math.fsum(amount for amount in amounts if amount >= 0)
