"""A pod and a node as gangs need them: slim, as the pods of the whole cluster are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from extender.gangs.affinity import NodeConstraints
from extender.pods.pod import PREFIX
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.node import Node

COMPONENT = "phasewise-controller"
"""Who writes the events."""

GATE = f"{PREFIX}gang"
"""The scheduling gate that holds a member back until all may go."""

RESERVED_NODE = f"{PREFIX}gang-node"
"""Annotation of the controller on a pod whose gate it has opened: the node that was reserved for it. For people; nobody
acts on it, as whoever may make a pod could write it."""

ENDLESS_OWNERS = ("DaemonSet", "Node", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose pods run until somebody deletes them: no gang may count on their end."""


Needs = tuple[tuple[str, float], ...]
"""(resource, amount), sorted by name; `pods` is one of them."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a pod asks of a node. Pods of one gang share the object."""

    needs: Needs
    constraints: NodeConstraints


@dataclass(frozen=True, slots=True)
class GangMembership:
    """To which gang a pod belongs, and what its members must have in common.

    Attributes
    ----------
    name
        Unique within the namespace; empty for a pod that belongs to none.
    told_size
        How many pods the gang takes, as the pod says: empty when it does not.
    priority, scheduler
        As in its spec.
    placement
        `spread` where its pods want to be apart, `pack` where they want to be together; empty where it says nothing.
    """

    name: str = ""
    declared_size: str = ""
    priority: int = 0
    scheduler: str = ""
    placement: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """Any pod of the cluster.

    Attributes
    ----------
    phase, node
        As the API has them; `node` is empty while it is not bound.
    created_s
        Unix seconds.
    owner
        What controls it.
    gates
        Its scheduling gates in their order.
    native
        The name of its PodGroup of Kubernetes itself (1.36); empty for none.
    told_node
        The node that the controller wrote on it when it opened its gate; empty for none. It proves nothing.
    checkpointable, completion_index
        It says that it goes on elsewhere from its checkpoint; which of the pods of an Indexed Job it is.
    refused
        It waits because the extender refused it nodes.
    reserved_node, admitted_s
        The node that is reserved for it and since when, unix seconds; empty and NaN for none. Not from the pod.
    """

    key: ObjectKey
    uid: str
    node: str
    phase: str
    deleting: bool
    created_s: float
    owner: OwnerRef | None
    requirements: Requirements
    membership: GangMembership = GangMembership()
    gates: tuple[str, ...] = ()
    native: str = ""
    annotated_node: str = ""
    checkpointable: bool = False
    completion_index: str = ""
    refused: bool = field(default=False, compare=False)
    reserved_node: str = ""
    reserved_since_s: float = math.nan

    @property
    def finished(self) -> bool:
        """It needs nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def alive(self) -> bool:
        """It runs, or may run one day."""
        return not self.finished and not self.deleting

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node, and what it has to give: (resource, amount), sorted by name."""

    node: Node
    allocatable: Needs
