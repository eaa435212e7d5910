"""Effective requests of a pod for every resource, as the scheduler and the kubelet count them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from recommender.cluster.objects.reading import Fields

Amounts = Mapping[str, float]
"""Resource -> cores, bytes, or units."""

MAX_CORES, MAX_BYTES = 2.0**20, 2.0**50
"""No pod needs more. Anyone may request an absurd amount; a double-precision sum would lose the other requests beside
it, and the node would look idle once that pod is gone."""


RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
"""Condition types of a pod whose resources are being changed in place (Kubernetes 1.33)."""

INFEASIBLE = "Infeasible"
"""Reason of the condition PodResizePending: the node can never do the resize."""

DEVICE_CLASSES = "deviceclass.resource.kubernetes.io/"
"""Prefix of extended resources that stand for a claim of devices of a class (DRA, Kubernetes 1.36)."""


class Resizes:
    """What a pod counts with while it is resized in place: the largest of what is requested, allocated and in force; a
    request that its node can never grant does not count."""

    def __init__(self, status: Fields) -> None:
        self._pod = status

    @cached_property
    def _containers(self) -> Mapping[str, Fields]:
        statuses = (*self._pod.children("initContainerStatuses"), *self._pod.children("containerStatuses"))
        return {one.text("name"): one for one in statuses}

    @cached_property
    def _infeasible(self) -> bool:
        return any(
            one.text("type") == RESIZE_PENDING and one.text("reason") == INFEASIBLE
            for one in self._pod.children("conditions")
        )

    def requests_of(self, container: Fields) -> Amounts:
        """The requests of a container that count."""
        requested = requests_in(container.child("resources"))
        status = self._containers.get(container.text("name"))
        return requested if status is None else self._counted(requested, status)

    def of_pod(self, requested: Amounts) -> Amounts:
        """The pod-level requests that count, with the overhead."""
        return self._counted(requested, self._pod)

    def _counted(self, requested: Amounts, status: Fields) -> Amounts:
        in_force, allocated = status.child("resources").child("requests"), status.child("allocatedResources")
        present = _maximum(_declared(in_force), _declared(allocated))
        without, larger = {**requested, **present}, _maximum(requested, present)
        return without if larger != without and self._infeasible else larger


def requests_of(spec: Fields, status: Fields) -> dict[str, float]:
    """Sum of the containers, or the largest init step if larger, plus the overhead; nothing negative.

    Pod-level requests replace those of the containers. Devices of `DEVICE_CLASSES` are left out: no node lists them as
    allocatable.
    """
    resizes = Resizes(status)
    added, minimum = extra_requests(spec, resizes)
    running = (resizes.requests_of(one) for one in spec.children("containers"))
    total = _maximum(_sum(added, *running), minimum)
    return {name: counted_amount(name, amount) for name, amount in total.items() if not name.startswith(DEVICE_CLASSES)}


def extra_requests(spec: Fields, resizes: Resizes) -> tuple[Amounts, Amounts]:
    """Requests of a pod besides those of `spec.containers`; nothing negative, but possibly absurd amounts.

    The first are added to them: native sidecars and the overhead. The second replace the sum where larger: the largest
    init step, or pod-level requests, with the overhead.
    """
    starting: dict[str, float] = {}
    sidecars: dict[str, float] = {}
    for container in spec.children("initContainers"):
        requests = resizes.requests_of(container)
        for resource, amount in _sum(sidecars, requests).items():
            starting[resource] = max(starting.get(resource, 0.0), amount)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum(sidecars, requests)
    overhead, of_pod = _declared(spec.child("overhead")), requests_in(spec.child("resources"))
    minimum = {name: amount + overhead.get(name, 0.0) for name, amount in (starting | of_pod).items()}
    return _sum(sidecars, overhead), resizes.of_pod(minimum) if of_pod else minimum


def requests_in(resources: Fields) -> dict[str, float]:
    """The requests of a container or pod; a missing one is its limit, as the API server writes into pods, but not into
    templates."""
    return _declared(resources.child("limits")) | _declared(resources.child("requests"))


def amounts(resources: Fields) -> dict[str, float]:
    """A resource map, such as a node's `allocatable`, clipped to 0 and the maximum."""
    return {name: _clipped(name, amount) for name, amount in _declared(resources).items()}


def counted_amount(resource: str, amount: float) -> float:
    """What a pod counts for that requests this amount in total.

    From 2^63 millicores, bytes or units on it counts as nothing: the integers of the scheduler and the kubelet overflow
    there, so that the pod runs on any node. Counted in full, one such pod per node would make the cluster look full.
    """
    overflow = 2.0**63 / 1000.0 if resource == "cpu" else 2.0**63
    return 0.0 if amount >= overflow else _clipped(resource, amount)


def extended_resources(needs: Amounts) -> dict[str, float]:
    """The extended resources, whose names have a domain prefix."""
    return {name: amount for name, amount in needs.items() if "/" in name and amount > 0.0}


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
