"""Pods and nodes from their JSON, for gangs."""

from __future__ import annotations

import sys
from functools import lru_cache

from extender.gangs.affinity import read_where
from extender.gangs.member import Ask, Kind, Member, Place
from extender.gangs.names import RESERVED_NODE
from extender.pods.gpus import needs_in_gpus, offer_in_gpus
from extender.pods.groups import group_of
from extender.pods.pod import PLACEMENT_ANNOTATION
from extender.pods.reading import refusal_in, refused_by_us
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.pods import CHECKPOINTABLE, COMPLETION_INDEX, Pod
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.requests import amounts, requests_of


@reads("Pod")
def read_member(raw: Fields) -> Member:
    """A pod from its JSON; BadObject where a field has the wrong form."""
    seen, spec = read_cluster_pod(raw.raw), raw.child("spec")
    needs = (*needs_in_gpus(requests_of(spec, raw.child("status")), spec).items(), ("pods", 1.0))
    gates = tuple(gate.required("name") for gate in spec.children("schedulingGates"))
    return Member(
        key=seen.key,
        uid=seen.uid,
        node=seen.node,
        phase=seen.phase,
        deleting=seen.deleting,
        created_s=seen.created_s,
        owner=seen.owner,
        ask=_ask(tuple(sorted(needs)), read_where(spec, seen.node_selector, seen.tolerations)),
        kind=_kind(seen, spec),
        gates=gates,
        native=spec.child("schedulingGroup").text("podGroupName") or spec.child("workloadRef").text("name"),
        told_node=sys.intern(seen.annotations.get(RESERVED_NODE, "")),
        checkpointable=seen.annotations.get(CHECKPOINTABLE) == "true",
        completion_index=sys.intern(seen.annotations.get(COMPLETION_INDEX, "")),
        refused=not (seen.node or gates) and refused_by_us(refusal_in(raw.child("status"))),
    )


_ask = lru_cache(maxsize=16384)(Ask)
_shared_kind = lru_cache(maxsize=16384)(Kind)


def _kind(pod: Pod, spec: Fields) -> Kind:
    words = {**pod.annotations, **pod.labels}
    name, size = group_of(words)
    return _shared_kind(name, size, spec.integer("priority"), pod.scheduler_name, words.get(PLACEMENT_ANNOTATION, ""))


@reads("Node")
def read_place(raw: Fields) -> Place:
    """A node from its JSON; BadObject where a field has the wrong form."""
    node, metadata = read_node(raw.raw), raw.child("metadata")
    allocatable = amounts(raw.child("status").child("allocatable"))
    in_gpus = offer_in_gpus(allocatable, metadata.words("labels"), metadata.words("annotations"))
    return Place(node, tuple(sorted(in_gpus.items())))
