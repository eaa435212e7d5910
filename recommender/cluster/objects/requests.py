"""Effective requests of a pod for every resource, as the scheduler and the kubelet count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields

Amounts = Mapping[str, float]
"""Resource -> cores, bytes, or units."""

MAX_CORES, MAX_BYTES = 2.0**20, 2.0**50
"""No pod needs more. Anyone may request an absurd amount; a double-precision sum would lose the other requests beside
it, and the node would look idle once that pod is gone."""


INFEASIBLE = "Infeasible"
"""Reason of the condition PodResizePending: the node can never do the resize."""


class ExtraRequests(NamedTuple):
    """Requests of a pod besides those of `spec.containers`.

    `added` to them are native sidecars and the overhead; `minimum` replaces the sum if larger: the largest init step,
    or pod-level requests, with the overhead.
    """

    added: Amounts
    minimum: Amounts


def requests_of(spec: Fields, status: Fields) -> dict[str, float]:
    """Sum of the containers, or the largest init step if larger, plus the overhead; nothing negative.

    Pod-level requests replace those of the containers. During a resize a container counts with the larger of what it
    requests and what is still allocated to it; with the latter alone once its node has found the resize infeasible.
    """
    extra = extra_requests(spec)
    infeasible = any(one.text("reason") == INFEASIBLE for one in status.children("conditions"))
    allocated = {one.text("name"): _requests(one.child("resources")) for one in status.children("containerStatuses")}
    running = []
    for container in spec.children("containers"):
        wanted, has = _requests(container.child("resources")), allocated.get(container.text("name"), {})
        running.append(has if infeasible and has else _maximum(wanted, has))
    total = _maximum(_sum(extra.added, *running), extra.minimum)
    return {name: counted(name, amount) for name, amount in total.items()}


def extra_requests(spec: Fields) -> ExtraRequests:
    """The extra requests in a pod's `spec`; nothing negative, but possibly absurd amounts."""
    starting: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in spec.children("initContainers"):
        requests = _requests(container.child("resources"))
        for resource, amount in _sum(sidecars, requests).items():
            starting[resource] = max(starting.get(resource, 0.0), amount)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum(sidecars, requests)
    overhead, whole = _declared(spec.child("overhead")), starting | _requests(spec.child("resources"))
    minimum = {name: amount + overhead.get(name, 0.0) for name, amount in whole.items()}
    return ExtraRequests(_sum(sidecars, overhead), minimum)


def amounts(resources: Fields) -> dict[str, float]:
    """A resource map, such as a node's `allocatable`, clipped to 0 and the maximum."""
    return {name: _clipped(name, amount) for name, amount in _declared(resources).items()}


def counted(resource: str, amount: float) -> float:
    """What a pod counts for that requests this amount in total.

    From 2^63 millicores, bytes or units on it counts as nothing: the integers of the scheduler and the kubelet overflow
    there, so that the pod runs on any node. Counted in full, one such pod per node would make the cluster look full.
    """
    overflow = 2.0**63 / 1000.0 if resource == "cpu" else 2.0**63
    return 0.0 if amount >= overflow else _clipped(resource, amount)


def extended_resources(needs: Amounts) -> dict[str, float]:
    """The extended resources, whose names have a domain prefix."""
    return {name: amount for name, amount in needs.items() if "/" in name and amount > 0.0}


def _requests(resources: Fields) -> dict[str, float]:
    return _declared(resources.child("requests")) if resources.raw else {}


def _declared(resources: Fields) -> dict[str, float]:
    return {name: max(0.0, resources.quantity(name) or 0.0) for name in resources.raw}


def _clipped(resource: str, amount: float) -> float:
    return min(amount, MAX_CORES if resource == "cpu" else MAX_BYTES)


def _maximum(one: Amounts, other: Amounts) -> dict[str, float]:
    return {**one, **{name: max(one.get(name, 0.0), amount) for name, amount in other.items()}}


def _sum(*parts: Amounts) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0.0) + amount
    return total
