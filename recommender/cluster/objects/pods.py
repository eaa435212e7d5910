"""Pods and their containers, as slim as ten thousand of them allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from recommender.cluster.objects.metadata import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.objects.pair import Pair, pair_of, read_pair
from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.objects.requests import extra_requests
from recommender.cluster.objects.resizability import Resizability, read_resizability
from recommender.units import parse_size

PENDING = "Pending"
"""The phase of a pod that waits for a node, or for its images."""

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
"""Condition types of a pod whose resources are being changed in place (Kubernetes 1.33)."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation: which of the pods of an Indexed Job it is."""

CHECKPOINTABLE = "phasewise.dev/checkpointable"
"""Annotation: `true` where its pod may be moved, as it saves itself on SIGTERM and goes on from that elsewhere; `false`
where a run that is interrupted begins anew."""

INPUT_SIZE = "phasewise.dev/input-size"
"""Annotation: how much its run works on, in a unit that the runs of its class share."""


@dataclass(frozen=True, slots=True)
class Termination:
    """How one run of a container ended; times in unix seconds."""

    reason: str
    started_s: float | None
    finished_s: float | None
    exit_code: int


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One of `spec.containers` and what the kubelet says of it.

    Attributes
    ----------
    image, command
        From the spec; `command` is command and arguments.
    requests, limits
        (cpu_cores, memory_bytes), NaN where absent: the actual ones once the kubelet tells them, until then the spec's.
    uses_devices
        It asks for an extended resource, as GPUs are.
    running, started_s
        Whether it runs, and since when (unix seconds).
    terminated, last_terminated
        How the present state (`state`) and the run before it (`lastState`) ended.
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


STARTUP_BOOST_PREFIX = "vpaCpuStartupBoost/"
"""Annotation of a pod, with the name of a container: there while the VPA's boost at the start lasts."""

DEFERRED = "Deferred"
"""The reason of a pod's condition PodResizePending while its node has no room."""


@dataclass(frozen=True, slots=True)
class ResizeCondition:
    """`PodResizePending` (reason `Deferred` or `Infeasible`) or `PodResizeInProgress` (`Error` or empty), true."""

    type: str
    reason: str
    message: str
    since_s: float | None


class Toleration(NamedTuple):
    """One of a pod; a tuple, since thousands are looked up by at each round."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes
    ----------
    owner
        The owner that controls it.
    generate_name
        The prefix its name was made from, empty when it was given one.
    containers
        `spec.containers` only, in their order: samples of init containers and native sidecars belong to nobody.
    extra_requests, min_requests
        (cpu_cores, memory_bytes) that it requests on top of its containers, and what it counts for if these are less.
    created_s, started_s
        Unix seconds; `created_s` NaN when the object does not say.
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

    @property
    def finished(self) -> bool:
        """It runs no more and never will."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def requests(self) -> Pair:
        """(cpu_cores, memory_bytes) that the scheduler and its kubelet count for it; nothing absent."""
        cpu_cores, memory_bytes = (
            max(
                self.min_requests[i],
                self.extra_requests[i] + sum(one.requests[i] for one in self.containers if one.requests[i] >= 0),
            )
            for i in range(len(self.min_requests))
        )
        return cpu_cores, memory_bytes

    @property
    def input_size(self) -> float:
        """How much its run works on; NaN where it tells nothing, or something else than a positive number."""
        return parse_size(self.annotations.get(INPUT_SIZE, ""))

    def is_boosted(self, container: str) -> bool:
        """Whether it has more CPU for its start than was recommended or asked for, as its VPA's `startupBoost` says."""
        return STARTUP_BOOST_PREFIX + container in self.annotations

    def container(self, name: str) -> ContainerState | None:
        return next((container for container in self.containers if container.name == name), None)


@reads("Pod")
def read_pod(raw: Fields) -> Pod:
    """A pod from its JSON."""
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    created_s = metadata.time_s("creationTimestamp")
    statuses = {status.text("name"): status for status in status.children("containerStatuses")}
    extra = extra_requests(spec)
    return Pod(
        key=read_key(metadata),
        uid=metadata.text("uid"),
        generate_name=metadata.text("generateName"),
        labels=metadata.string_map("labels"),
        annotations=short_annotations(metadata),
        owner=read_controller(metadata),
        phase=status.text("phase"),
        node=spec.text("nodeName"),
        scheduler_name=spec.text("schedulerName"),
        node_selector=spec.string_map("nodeSelector"),
        tolerations=tuple(_read_toleration(entry) for entry in spec.children("tolerations")),
        created_s=math.nan if created_s is None else created_s,
        started_s=status.time_s("startTime"),
        deleting="deletionTimestamp" in metadata,
        containers=tuple(
            _read_container(container, statuses.get(container.text("name"), Fields({})))
            for container in spec.children("containers")
        ),
        extra_requests=pair_of(extra.added),
        min_requests=pair_of(extra.minimum),
        resizes=tuple(_read_resizes(status)),
        resizability=read_resizability(spec, status.text("qosClass")),
    )


def _read_container(spec: Fields, status: Fields) -> ContainerState:
    state, resources = status.child("state"), spec.child("resources")
    running = state.child("running")
    actual = status.child("resources")  # what the kubelet has really set; spec may be ahead while a resize waits
    return ContainerState(
        name=spec.required("name"),
        image=spec.text("image"),
        command=spec.texts("command") + spec.texts("args"),
        requests=read_pair((actual if actual.raw.get("requests") else resources).child("requests")),
        limits=read_pair((actual if actual.raw else resources).child("limits")),
        uses_devices=any("/" in name for name in (*resources.child("requests").raw, *resources.child("limits").raw)),
        restart_count=status.integer("restartCount"),
        running="running" in state,
        started_s=running.time_s("startedAt"),
        terminated=_read_termination(state),
        last_terminated=_read_termination(status.child("lastState")),
    )


def _read_termination(state: Fields) -> Termination | None:
    if "terminated" not in state:
        return None
    ended = state.child("terminated")
    return Termination(
        ended.text("reason"), ended.time_s("startedAt"), ended.time_s("finishedAt"), ended.integer("exitCode")
    )


def _read_toleration(entry: Fields) -> Toleration:
    return _toleration(entry.text("key"), entry.text("operator") or "Equal", entry.text("value"), entry.text("effect"))


_toleration = lru_cache(maxsize=1024)(Toleration)
"""Every pod has the same two at least; one object serves them all."""


def _read_resizes(status: Fields) -> list[ResizeCondition]:
    return [
        ResizeCondition(c.text("type"), c.text("reason"), c.text("message"), c.time_s("lastTransitionTime"))
        for c in status.children("conditions")
        if c.text("type") in (RESIZE_PENDING, RESIZE_IN_PROGRESS) and c.text("status") == "True"
    ]
