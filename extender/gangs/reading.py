"""Pods and nodes from their JSON, for gangs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from math import nan

from extender.gangs.affinity import read_where
from extender.gangs.member import Ask, Kind, Member, Place
from extender.gangs.names import ADMITTED, GROUPS, SIZE
from extender.pods.pod import PLACEMENT_ANNOTATION, SEAT_ANNOTATION
from extender.pods.requests import amounts, requests_of
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from recommender.cluster.objects.reading import Fields, reads


@reads("Pod")
def read_member(raw: Fields) -> Member:
    """A pod from its JSON; BadObject where a field has the wrong form."""
    seen, spec = read_cluster_pod(raw.raw), raw.child("spec")
    needs = (*requests_of(spec).items(), ("pods", 1.0))
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
        gates=tuple(gate.required("name") for gate in spec.children("schedulingGates")),
        native=spec.child("schedulingGroup").text("podGroupName") or spec.child("workloadRef").text("name"),
        seat=seen.annotations.get(SEAT_ANNOTATION, ""),
        admitted_s=_moment(seen.annotations.get(ADMITTED, "")),
    )


_ask = lru_cache(maxsize=16384)(Ask)
_shared_kind = lru_cache(maxsize=16384)(Kind)


def _kind(pod: Pod, spec: Fields) -> Kind:
    words = {**pod.annotations, **pod.labels}
    name, size = group_of(words)
    return _shared_kind(
        name, size, spec.integer("priority"), pod.scheduler_name, words.get(PLACEMENT_ANNOTATION) == "spread"
    )


def group_of(words: Mapping[str, str]) -> tuple[str, str]:
    """(name, size) of the group that a pod's labels and annotations tell of; empty where they do not."""
    for named, sized in GROUPS:
        if name := words.get(named):
            return f"{named}={name}", words.get(SIZE) or words.get(sized, "")
    return "", words.get(SIZE, "")


def _moment(text: str) -> float:
    """Unix seconds; NaN where it is no time: somebody else wrote it."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return nan


@reads("Node")
def read_place(raw: Fields) -> Place:
    """A node from its JSON; BadObject where a field has the wrong form."""
    allocatable = amounts(raw.child("status").child("allocatable"))
    return Place(read_node(raw.raw), tuple(sorted(allocatable.items())))
