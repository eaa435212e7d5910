"""Whether a pod can be resized in place: QoS class and resize policies, of pods and of pod templates.

The API server refuses any resize that would change the QoS class.

Source: kubernetes/kubernetes, `pkg/apis/core/v1/helper/qos`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from recommender.base.records import RESOURCES
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.reading import BadField, Fields

BEST_EFFORT, BURSTABLE, GUARANTEED = "BestEffort", "Burstable", "Guaranteed"

RESTART_CONTAINER = "RestartContainer"

KUEUE_POD, KUEUE_GROUP = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/pod-group-name"
"""Labels of pods that Kueue admits one by one, and of those that it admits as a group."""

QUEUED = "Kueue admits its pods one by one, and deletes an admitted one whose requests change"

POD_LEVEL = "its pods have pod-level resources: the API server refuses any whose containers request more than these"


class Resizability(NamedTuple):
    """What decides on in-place resizes of a pod, or of the pods of a template.

    `limits_only`: a container has limits but no requests, so that its requests default to its limits. `restarts`: the
    resources whose resize restarts a container, by its `resizePolicy`. `pod_level`: the pod has requests or limits of
    its own, which those of its containers must not exceed. `windows`: it runs on Windows. `queued`: Kueue admits it by
    itself.
    """

    qos: str = BURSTABLE
    limits_only: bool = False
    restarts: frozenset[str] = frozenset()
    pod_level: bool = False
    windows: bool = False
    queued: bool = False


def resize_refusal(pods: Collection[Resizability]) -> str:
    """Why these pods cannot be resized without a restart or recreation; empty if they can."""
    if any(pod.qos == BEST_EFFORT for pod in pods):
        return "its pods are BestEffort: requests would change their QoS class, which the API server refuses"
    if any(pod.limits_only for pod in pods):
        return "a container has limits but no requests, so that setting requests may change the pod's QoS class"
    if any(pod.restarts for pod in pods):
        return f"a container's resizePolicy is {RESTART_CONTAINER}: each resize restarts it"
    if any(pod.pod_level for pod in pods):
        return POD_LEVEL
    if any(pod.windows for pod in pods):
        return "its pods run on Windows: the API server refuses to resize them"
    if any(pod.queued for pod in pods):
        return QUEUED
    return ""


def read_resizability(spec: Fields, qos: str = "", labels: Mapping[str, str] | None = None) -> Resizability:
    """Read the spec of a pod or a template; `qos`, the `qosClass` in the status, and `labels` are those of a pod."""
    containers = [container.child("resources") for container in spec.children("containers")]
    initial = [container.child("resources") for container in spec.children("initContainers")]
    return _shared(
        qos or _qos_of([_requests_and_limits(resources) for resources in (*containers, *initial)]),
        any("limits" in resources and not resources.child("requests").raw for resources in containers),
        frozenset(
            policy.text("resourceName")
            for container in spec.children("containers")
            for policy in container.children("resizePolicy")
            if policy.text("restartPolicy") == RESTART_CONTAINER
        ),
        any(spec.child("resources").raw.get(part) for part in ("requests", "limits")),
        "windows" in (spec.child("os").text("name"), spec.child("nodeSelector").text("kubernetes.io/os")),
        labels is not None and labels.get(KUEUE_POD) == "true" and KUEUE_GROUP not in labels,
    )


_shared = lru_cache(maxsize=64)(Resizability)


def _requests_and_limits(resources: Fields) -> tuple[Pair, Pair]:
    """Requests, defaulted to the limits as the API server does, and limits."""
    requests, limits = resources.pair("requests"), resources.pair("limits")
    cpu_cores, memory_bytes = (
        request if request > 0 else limit for request, limit in zip(requests, limits, strict=True)
    )
    return (cpu_cores, memory_bytes), limits


def _qos_of(containers: Collection[tuple[Pair, Pair]]) -> str:
    """Guaranteed if all containers have both limits and equal requests; BestEffort if none has any."""
    indices = range(len(RESOURCES))
    if not any(requests[i] > 0 for requests, _ in containers for i in indices):
        return BEST_EFFORT
    guaranteed = all(requests[i] == limits[i] for requests, limits in containers for i in indices)
    return GUARANTEED if guaranteed else BURSTABLE


NO_REQUESTS: Mapping[str, Pair] = MappingProxyType({})


class Templates(NamedTuple):
    """What the pod templates of a controller say; a training job has one per role.

    `declared` are requests by container name; a name with different ones in different templates is left out.
    """

    resizability: frozenset[Resizability] = frozenset()
    declared: Mapping[str, Pair] = NO_REQUESTS


NO_TEMPLATES = Templates()


def read_templates(spec: Fields) -> Templates:
    """Read all pod templates anywhere in the spec of a controller; malformed ones are skipped."""
    found, declared = set(), dict[str, set[Pair]]()
    for raw in _templates_in(spec.raw):
        template = Fields(raw, "template.spec")
        try:
            resizability = read_resizability(template)
            requests = [
                (container.text("name"), container.child("resources").pair("requests"))
                for container in template.children("containers")
            ]
        except BadField:
            continue
        found.add(resizability)
        for name, pair in requests:
            declared.setdefault(name, set()).add(pair)
    return _shared_templates(
        frozenset(found), tuple(sorted((name, *pairs) for name, pairs in declared.items() if len(pairs) == 1))
    )


@lru_cache(maxsize=256)
def _shared_templates(resizability: frozenset[Resizability], declared: tuple[tuple[str, Pair], ...]) -> Templates:
    """Cached, since thousands of controllers have equal templates."""
    return Templates(resizability, MappingProxyType(dict(declared)))


def _templates_in(raw: Any) -> Iterator[Any]:
    """The pod specs of all templates below; they are not nested."""
    if isinstance(raw, list):
        for each in raw:
            yield from _templates_in(each)
    elif isinstance(raw, dict):
        template = raw.get("template")
        spec = template.get("spec") if isinstance(template, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield spec
            return
        for each in raw.values():
            yield from _templates_in(each)
