"""What a pod asks for, as the scheduler counts it, of every resource."""

from __future__ import annotations

from collections.abc import Mapping

from extender.pods.curves import MOST_BYTES, MOST_CORES
from recommender.cluster.objects.reading import Fields

Amounts = Mapping[str, float]
"""Resource -> cores, bytes, or pieces."""


def requests_of(spec: Fields) -> dict[str, float]:
    """What runs together, or the largest step of the start where that is more, and the overhead; nothing negative.

    Requests of the pod as a whole stand in place of those of its containers.
    """
    running: dict[str, float] = {}
    starting: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in spec.children("initContainers"):
        asked = _asked(container.child("resources"))
        for resource, amount in _sum(sidecars, asked).items():
            starting[resource] = max(starting.get(resource, 0.0), amount)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
    for container in spec.children("containers"):
        running = _sum(running, _asked(container.child("resources")))
    needs = _sum(running, sidecars)
    for resource, amount in starting.items():
        needs[resource] = max(needs.get(resource, 0.0), amount)
    needs |= _asked(spec.child("resources"))
    return _sum(needs, amounts(spec.child("overhead")))


def amounts(resources: Fields) -> dict[str, float]:
    """A resource map, such as a node's `allocatable`; nothing negative, and no more than can be added up."""
    told = ((name, resources.quantity(name) or 0.0) for name in resources.raw)
    return {name: min(max(0.0, amount), MOST_CORES if name == "cpu" else MOST_BYTES) for name, amount in told}


def extended_of(needs: Amounts) -> dict[str, float]:
    """What of them Kubernetes calls extended resources: those of a domain of their own."""
    return {name: amount for name, amount in needs.items() if "/" in name and amount > 0.0}


def _asked(resources: Fields) -> dict[str, float]:
    return amounts(resources.child("requests")) if resources.raw else {}


def _sum(one: Amounts, other: Amounts) -> dict[str, float]:
    total = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0.0) + amount
    return total
