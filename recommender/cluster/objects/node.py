"""Nodes and ResourceQuotas: the capacity available to pods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from recommender.base.records import RESOURCES
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.selectors import EXISTS, LabelSelector, Requirement

QUOTAS = ("v1", "resourcequotas")

TERMINATING, NOT_TERMINATING, PRIORITY_CLASS = "Terminating", "NotTerminating", "PriorityClass"
SCOPES = (TERMINATING, NOT_TERMINATING, PRIORITY_CLASS)
"""Scopes of quotas that are respected. Others are ignored: at worst we request less than allowed."""


HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep pods off a node."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node; `allocatable` and `capacity` in (cpu_cores, memory_bytes)."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Pair
    capacity: Pair
    ready: bool
    unschedulable: bool


@reads("Node")
def read_node(raw: Fields) -> Node:
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    return Node(
        name=metadata.required("name"),
        labels=metadata.string_map("labels"),
        taints=tuple(Taint(t.required("key"), t.text("value"), t.text("effect")) for t in spec.children("taints")),
        allocatable=status.pair("allocatable"),
        capacity=status.pair("capacity"),
        ready=any(c.text("type") == "Ready" and c.text("status") == "True" for c in status.children("conditions")),
        unschedulable=spec.flag("unschedulable"),
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: what of its requests and limits is left, negative if exceeded, infinite if not limited.

    `scopes` selects the pods that it is for, by `Pod.scopes`.
    """

    key: ObjectKey
    requests_left: Pair
    limits_left: Pair
    scopes: LabelSelector = field(default_factory=LabelSelector)


@reads("ResourceQuota")
def read_quota(raw: Fields) -> Quota | None:
    """Read a quota; None if it limits neither requests nor limits, or applies to BestEffort pods, which have none."""
    spec, status = raw.child("spec"), raw.child("status")
    hard, used = spec.child("hard"), status.child("used")
    requests = _remaining(hard, used, "", "requests.")  # `cpu` and `requests.cpu` are the same
    limits = _remaining(hard, used, "limits.")
    scopes = [
        *(Requirement(name, EXISTS) for name in spec.texts("scopes")),
        *(
            Requirement(one.required("scopeName"), one.required("operator"), frozenset(one.texts("values")))
            for one in spec.child("scopeSelector").children("matchExpressions")
        ),
    ]
    if any(one.key == "BestEffort" for one in scopes) or min(*requests, *limits) == math.inf:
        return None
    known = LabelSelector(tuple(one for one in scopes if one.key in SCOPES))
    return Quota(read_key(raw.child("metadata")), requests, limits, known)


def _remaining(hard: Fields, used: Fields, *prefixes: str) -> Pair:
    """The remaining amounts; with several names of a resource, the smallest."""
    cpu_cores, memory_bytes = (
        min(
            (
                most - (used.quantity(prefix + resource) or 0.0)
                for prefix in prefixes
                if (most := hard.quantity(prefix + resource)) is not None
            ),
            default=math.inf,
        )
        for resource in RESOURCES
    )
    return cpu_cores, memory_bytes
