"""Pods and their containers, compact enough for ten thousand of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from recommender.base.records import or_nan
from recommender.base.units import parse_size
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.objects.node import NOT_TERMINATING, PRIORITY_CLASS, TERMINATING, Taint
from recommender.cluster.objects.quantities import Pair, shared_pair
from recommender.cluster.objects.reading import Fields, first_labels, reads, short_annotations
from recommender.cluster.objects.requests import (
    RESIZE_IN_PROGRESS,
    RESIZE_PENDING,
    Amounts,
    Resizes,
    counted_amount,
    extra_requests,
    requests_in,
)
from recommender.cluster.objects.resizability import Resizability, read_resizability

PENDING = "Pending"
"""The phase of a pod that waits for a node or for its images."""

EVICTED = "Evicted"
"""The reason that a kubelet gives for a pod that it evicted, in the pod's status and in an event."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation: the index of a pod of an Indexed Job."""

CHECKPOINTABLE = "phasewise.dev/checkpointable"
"""Annotation: `true` if the pod may be moved, because it checkpoints on SIGTERM and resumes elsewhere; `false` if an
interrupted run starts over."""

INPUT_SIZE = "phasewise.dev/input-size"
"""Annotation: the size of the input of a run, in a unit common to its class."""


@dataclass(frozen=True, slots=True)
class Termination:
    """How a run of a container ended; times in Unix seconds."""

    reason: str
    started_s: float | None
    finished_s: float | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One of `spec.containers` with its status.

    Requests and limits are the actual ones once they are in the status, until then the spec's; a limit of 0 is none, as
    for the kubelet. `command` includes the arguments; `uses_devices` is for extended resources such as GPUs and
    for resource claims; times are in unix seconds.
    """

    name: str
    image: str
    command: tuple[str, ...]
    requests: Pair
    limits: Pair
    uses_devices: bool
    restart_count: int
    running: bool
    started_s: float | None
    terminated: Termination | None
    last_terminated: Termination | None


ADMITTED_BY_VPA = "vpaObservedContainers"
"""Annotation that the VPA's admission controller sets on each pod that it handles."""

STARTUP_BOOST_PREFIX = "vpaCpuStartupBoost/"
"""Prefix of an annotation, followed by a container name: set while the VPA's CPU startup boost lasts."""

DEFERRED = "Deferred"
"""Reason of the condition PodResizePending while the node lacks capacity."""

RESIZE_ERROR = "Error"
"""Reason of the condition PodResizeInProgress after an attempt has failed."""


@dataclass(frozen=True, slots=True)
class ResizeCondition:
    """A true `PodResizePending` (reason `Deferred` or `Infeasible`) or `PodResizeInProgress` (`Error` or empty)."""

    type: str
    reason: str
    message: str
    since_s: float | None


class Toleration(NamedTuple):
    """A toleration; a tuple, since thousands are used as keys in each round."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


def tolerated(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> set[Taint]:
    """Those of the taints that any of the tolerations tolerates."""
    return {taint for taint in taints if any(toleration.tolerates(taint) for toleration in tolerations)}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; times are in unix seconds.

    `evicted` is whether its kubelet evicted it.
    `containers` are `spec.containers` only, in order: samples of init containers and native sidecars are ignored. See
    `extra_requests` for `extra_requests` and `min_requests`.
    """

    key: ObjectKey
    uid: str
    generate_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: OwnerRef | None
    phase: str
    node: str
    scheduler_name: str
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    created_s: float
    started_s: float | None
    deleting: bool
    containers: tuple[ContainerState, ...]
    extra_requests: Pair
    min_requests: Pair
    resizes: tuple[ResizeCondition, ...]
    resizability: Resizability
    priority_class: str
    has_deadline: bool
    evicted: bool

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def requests(self) -> Pair:
        """(cpu_cores, memory_bytes) as the scheduler and the kubelet count them; 0 where absent."""
        cpu_cores, memory_bytes = (
            max(minimum, extra + sum(one.requests[i] for one in self.containers if one.requests[i] >= 0))
            for i, (minimum, extra) in enumerate(zip(self.min_requests, self.extra_requests, strict=True))
        )
        return counted_amount("cpu", cpu_cores), counted_amount("memory", memory_bytes)

    @property
    def scopes(self) -> Mapping[str, str]:
        """The scopes of ResourceQuotas that it is in; the value of `PriorityClass` is the name of the class."""
        priority = {PRIORITY_CLASS: self.priority_class} if self.priority_class else {}
        return {TERMINATING if self.has_deadline else NOT_TERMINATING: "", **priority}

    @property
    def input_size(self) -> float:
        """Size of the input of its run; NaN if not annotated, or not with a positive number."""
        return parse_size(self.annotations.get(INPUT_SIZE, ""))

    def is_boosted(self, container: str) -> bool:
        """Whether the container currently has extra CPU by the `startupBoost` of its VPA."""
        return STARTUP_BOOST_PREFIX + container in self.annotations

    def container(self, name: str) -> ContainerState | None:
        return next((container for container in self.containers if container.name == name), None)


@reads("Pod")
def read_pod(raw: Fields) -> Pod:
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    statuses = {one.text("name"): one for one in status.children("containerStatuses")}
    (added, minimum), labels = extra_requests(spec, Resizes(status)), first_labels(metadata)
    return Pod(
        key=read_key(metadata),
        uid=metadata.text("uid"),
        generate_name=metadata.text("generateName"),
        labels=labels,
        annotations=short_annotations(metadata),
        owner=read_controller(metadata),
        phase=status.text("phase"),
        node=spec.text("nodeName"),
        scheduler_name=spec.text("schedulerName"),
        node_selector=spec.string_map("nodeSelector"),
        tolerations=tuple(
            _toleration(one.text("key"), one.text("operator") or "Equal", one.text("value"), one.text("effect"))
            for one in spec.children("tolerations")
        ),
        created_s=or_nan(metadata.time_s("creationTimestamp")),
        started_s=status.time_s("startTime"),
        deleting="deletionTimestamp" in metadata,
        containers=tuple(
            _read_container(container, statuses.get(container.text("name"), Fields({})))
            for container in spec.children("containers")
        ),
        extra_requests=_pair_in(added),
        min_requests=_pair_in(minimum),
        resizes=tuple(
            ResizeCondition(one.text("type"), one.text("reason"), one.text("message"), one.time_s("lastTransitionTime"))
            for one in status.children("conditions")
            if one.text("type") in (RESIZE_PENDING, RESIZE_IN_PROGRESS) and one.text("status") == "True"
        ),
        resizability=read_resizability(spec, status.text("qosClass"), labels),
        priority_class=spec.text("priorityClassName"),
        has_deadline="activeDeadlineSeconds" in spec,
        evicted=status.text("reason") == EVICTED,
    )


def _pair_in(amounts: Amounts, missing: float = 0.0) -> Pair:
    return shared_pair(amounts.get("cpu", missing), amounts.get("memory", missing))


def _read_container(spec: Fields, status: Fields) -> ContainerState:
    state, resources = status.child("state"), spec.child("resources")
    actual = status.child("resources")  # as set by the kubelet; the spec is ahead while a resize is pending
    limits = (actual if actual.raw else resources).pair("limits")
    return ContainerState(
        name=spec.required("name"),
        image=spec.text("image"),
        command=spec.texts("command") + spec.texts("args"),
        requests=actual.pair("requests") if actual.raw.get("requests") else _pair_in(requests_in(resources), math.nan),
        limits=shared_pair(*(math.nan if amount == 0.0 else amount for amount in limits)),
        uses_devices=bool(resources.raw.get("claims"))
        or any("/" in name for name in (*resources.child("requests").raw, *resources.child("limits").raw)),
        restart_count=status.integer("restartCount"),
        running="running" in state,
        started_s=state.child("running").time_s("startedAt"),
        terminated=_read_termination(state),
        last_terminated=_read_termination(status.child("lastState")),
    )


def _read_termination(state: Fields) -> Termination | None:
    if "terminated" not in state:
        return None
    end = state.child("terminated")
    return Termination(end.text("reason"), end.time_s("startedAt"), end.time_s("finishedAt"), end.integer("exitCode"))


_toleration = lru_cache(maxsize=1024)(Toleration)
"""Cached: every pod has the same two default tolerations."""
