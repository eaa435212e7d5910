"""What a pod asks for, as the scheduler and the kubelet count it, of every resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields

Amounts = Mapping[str, float]
"""Resource -> cores, bytes, or pieces."""

MAX_CORES, MAX_BYTES = 2.0**20, 2.0**50
"""No pod needs more. Beside an amount without bound, which anyone may ask for, a sum in double precision would hold
nothing of the others, and when that pod is gone the node would look idle."""


class ExtraRequests(NamedTuple):
    """What a pod asks for besides `spec.containers`.

    Attributes
    ----------
    added
        On top of them: native sidecars, and the pod's overhead.
    minimum
        In place of all that where it is more: the largest step of the start, or what is said for the pod as a whole.
    """

    added: Amounts
    minimum: Amounts


def requests_of(spec: Fields, status: Fields) -> dict[str, float]:
    """What runs together, or the largest step of the start where that is more, and the overhead; nothing negative.

    Requests of the pod as a whole stand in place of those of its containers. While a resize is under way a container
    counts with the larger of what it asks for and what its node still keeps for it.
    """
    extra = extra_requests(spec)
    allocated = {
        status.text("name"): _requests(status.child("resources")) for status in status.children("containerStatuses")
    }
    running = (
        _elementwise_max(_requests(one.child("resources")), allocated.get(one.text("name"), {}))
        for one in spec.children("containers")
    )
    return _elementwise_max(_sum(extra.added, *running), extra.minimum)


def extra_requests(spec: Fields) -> ExtraRequests:
    """Of a pod's `spec`; nothing negative."""
    starting: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in spec.children("initContainers"):
        requests = _requests(container.child("resources"))
        for resource, amount in _sum(sidecars, requests).items():
            starting[resource] = max(starting.get(resource, 0.0), amount)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum(sidecars, requests)
    overhead, whole = amounts(spec.child("overhead")), starting | _requests(spec.child("resources"))
    minimum = {name: amount + overhead.get(name, 0.0) for name, amount in whole.items()}
    return ExtraRequests(_sum(sidecars, overhead), minimum)


def amounts(resources: Fields) -> dict[str, float]:
    """A resource map, such as a node's `allocatable`; nothing negative, and no more than can be added up."""
    status = ((name, resources.quantity(name) or 0.0) for name in resources.raw)
    return {name: min(max(0.0, amount), MAX_CORES if name == "cpu" else MAX_BYTES) for name, amount in status}


def extended_resources(needs: Amounts) -> dict[str, float]:
    """What of them Kubernetes calls extended resources: those of a domain of their own."""
    return {name: amount for name, amount in needs.items() if "/" in name and amount > 0.0}


def _requests(resources: Fields) -> dict[str, float]:
    return amounts(resources.child("requests")) if resources.raw else {}


def _elementwise_max(one: Amounts, other: Amounts) -> dict[str, float]:
    return {**one, **{name: max(one.get(name, 0.0), amount) for name, amount in other.items()}}


def _sum(*status: Amounts) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in status:
        for resource, amount in one.items():
            total[resource] = total.get(resource, 0.0) + amount
    return total
