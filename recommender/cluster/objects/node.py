"""A node: what it offers, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.objects.pair import Pair, read_pair
from recommender.cluster.objects.reading import Fields, reads


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node; `allocatable` in (cpu_cores, memory_bytes)."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Pair
    ready: bool
    unschedulable: bool


@reads("Node")
def read_node(raw: Fields) -> Node:
    """A node from its JSON."""
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    return Node(
        name=metadata.required("name"),
        labels=metadata.words("labels"),
        taints=tuple(Taint(t.required("key"), t.text("value"), t.text("effect")) for t in spec.children("taints")),
        allocatable=read_pair(status.child("allocatable")),
        ready=any(c.text("type") == "Ready" and c.text("status") == "True" for c in status.children("conditions")),
        unschedulable=spec.flag("unschedulable"),
    )
