"""Pods and nodes as the gang controller needs them: small records, as it keeps one for every pod of the cluster."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from functools import lru_cache

from extender.gangs.affinity import NodeConstraints, read_constraints
from extender.pods.footprint import PodKey
from extender.pods.gpus import allocatable_in_gpus, requests_in_gpus
from extender.pods.pod import PLACEMENT_ANNOTATION, PREFIX, group_of, refusal_in, refused_by_us
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.node import Node, read_node
from recommender.cluster.objects.pods import ADMITTED_BY_VPA, CHECKPOINTABLE, COMPLETION_INDEX
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.requests import Amounts, amounts, extended_resources, requests_of

COMPONENT = "phasewise-controller"  # source component of events
GATE = f"{PREFIX}gang"  # the scheduling gate that holds a member back until its whole gang is admitted

RESERVED_NODE = f"{PREFIX}gang-node"
"""Annotation that the controller sets when it removes a pod's gate: the node reserved for it. Informational; no code
relies on it, as anyone who may create pods can set it."""

ENDLESS_OWNERS = ("DaemonSet", "Node", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose pods run until they are deleted: no gang may count on their end."""

CAPACITY_REASONS = ("Insufficient ", "Too many pods")
"""In kube-scheduler's message on a pod that found no node: free capacity would help it."""

Needs = tuple[tuple[str, float], ...]  # (resource, amount), sorted by name; `pods` is one of them


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a pod requires of a node. Pods of one gang share the object."""

    needs: Needs  # with shares of GPUs counted in GPUs
    constraints: NodeConstraints
    extended: Needs = ()  # extended resources as requested


@dataclass(frozen=True, slots=True)
class GangMembership:
    """The gang of a pod, and what all members must have in common."""

    name: str = ""  # unique within the namespace; empty for a pod without a gang
    declared_size: str = ""  # size of the gang as declared on the pod, unparsed; empty if it is not
    # priority, scheduler: as in the pod's spec
    priority: int = 0
    scheduler: str = ""
    placement: str = ""  # `spread`, `pack`, or empty if the pod states no preference


@dataclass(frozen=True, slots=True)
class Member:
    key: ObjectKey
    uid: str
    node: str
    # phase, node: as in the API; `node` is empty until the pod is bound
    phase: str
    deleting: bool
    created_s: float  # unix seconds
    owner: OwnerRef | None  # its controller
    requirements: Requirements
    membership: GangMembership = GangMembership()
    gates: tuple[str, ...] = ()  # its scheduling gates, in order
    native: str = ""  # name of its Kubernetes PodGroup (1.36); empty for none
    annotated_node: str = ""  # value of `RESERVED_NODE`; empty for none. Not to be trusted
    # checkpointable, completion_index: whether it claims to resume from a checkpoint on another node; its index in an
    # Indexed Job
    checkpointable: bool = False
    completion_index: str = ""
    admitted_by_vpa: bool = False  # whether the VPA's admission controller handled it
    refused: bool = field(default=False, compare=False)  # whether it waits because the extender refused it nodes
    # whether the scheduler found no node for it, for a reason that is neither ours nor a lack of capacity
    unplaceable: bool = False
    # reserved_node, reserved_since_s: the node reserved for it and since when, unix seconds; empty and NaN for none.
    # From the reservations
    reserved_node: str = ""
    reserved_since_s: float = math.nan

    @property
    def identity(self) -> PodKey:
        """By which PhaseProfiles name it."""
        return self.key.namespace, self.uid

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def alive(self) -> bool:
        return not self.finished and not self.deleting

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    node: Node
    allocatable: Needs


@reads("Pod")
def read_member(raw: Fields) -> Member:
    seen, spec = read_cluster_pod(raw.raw), raw.child("spec")
    requests = requests_of(spec, raw.child("status"))
    needs, extended = {**requests_in_gpus(requests, spec), "pods": 1.0}, extended_resources(requests)
    constraints = read_constraints(spec, seen.node_selector, seen.tolerations)
    metadata = {**seen.annotations, **seen.labels}
    gates = tuple(gate.required("name") for gate in spec.children("schedulingGates"))
    refusal = Fields({}) if seen.node or gates else refusal_in(raw.child("status"))
    refused = refused_by_us(refusal)
    return Member(
        key=seen.key,
        uid=seen.uid,
        node=seen.node,
        phase=seen.phase,
        deleting=seen.deleting,
        created_s=seen.created_s,
        owner=seen.owner,
        requirements=_shared_requirements(_sorted(needs), constraints, _sorted(extended)),
        membership=_shared_membership(
            *group_of(metadata),
            priority=spec.integer("priority"),
            scheduler=seen.scheduler_name,
            placement=metadata.get(PLACEMENT_ANNOTATION, ""),
        ),
        gates=gates,
        native=spec.child("schedulingGroup").text("podGroupName") or spec.child("workloadRef").text("name"),
        annotated_node=sys.intern(seen.annotations.get(RESERVED_NODE, "")),
        checkpointable=seen.annotations.get(CHECKPOINTABLE) == "true",
        completion_index=sys.intern(seen.annotations.get(COMPLETION_INDEX, "")),
        admitted_by_vpa=ADMITTED_BY_VPA in seen.annotations,
        refused=refused,
        unplaceable=not refused and _names_another_reason(refusal),
    )


def _names_another_reason(refusal: Fields) -> bool:
    """Whether a condition tells of an attempt, and of no lack of capacity. That of a gate may be seen after its end."""
    message = refusal.text("message")
    attempted = bool(message) and refusal.text("reason") != "SchedulingGated"
    return attempted and not any(reason in message for reason in CAPACITY_REASONS)


def _sorted(needs: Amounts) -> Needs:
    return tuple(sorted(needs.items()))


_shared_requirements = lru_cache(maxsize=16384)(Requirements)
_shared_membership = lru_cache(maxsize=16384)(GangMembership)


@reads("Node")
def read_node_capacity(raw: Fields) -> NodeCapacity:
    node, metadata = read_node(raw.raw), raw.child("metadata")
    allocatable = amounts(raw.child("status").child("allocatable"))
    in_gpus = allocatable_in_gpus(allocatable, metadata.string_map("labels"), metadata.string_map("annotations"))
    return NodeCapacity(node, _sorted(in_gpus))
