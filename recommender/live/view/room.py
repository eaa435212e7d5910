"""What the nodes offer that pods may run on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from recommender.cluster.objects.node import Node
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import Pod
from recommender.cluster.watching.reflector import Reflector

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Room:
    """Asked for thousands of workloads at each round, and worked out once for all that ask for the same."""

    def __init__(self, nodes: Reflector[Node]) -> None:
        self._nodes, self._version = nodes, -1
        self._known: dict[Hashable, Sequence[Pair]] = {}

    def of(self, pods: Sequence[Pod]) -> Sequence[Pair]:
        """Allocatable of the nodes that the first of these pods may run on, as far as selector and taints tell.

        What many nodes have alike is said once.
        """
        if not pods:
            return ()
        if self._version != self._nodes.version:
            self._known, self._version = {}, self._nodes.version
        asks = tuple(pods[0].node_selector.items()), pods[0].tolerations
        if asks not in self._known:
            nodes = self._nodes.snapshot().values()
            self._known[asks] = tuple({node.allocatable: None for node in nodes if _may_run(pods[0], node)})
        return self._known[asks]


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
