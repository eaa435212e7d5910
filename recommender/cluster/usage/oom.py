"""OOM kills, detected from pods and events.

The status of a pod is written by its kubelet alone, but anybody with the role `edit` may write events. So an eviction
counts once the status of its pod shows it; the event only adds how much memory the pod used.

Runs of a container are numbered by its restart count, so that a kill counts once, however often and in whichever state
(terminated, waiting for a restart, running again) the pod is seen. Init containers are ignored.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/input/oom` and `model/container.go`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from recommender.base.records import MEMORY
from recommender.base.units import WallClock
from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import EVICTED, ContainerState, Pod, Termination
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.objects.reading import BadField, Fields, reads

OOM_KILLED = "OOMKilled"
EVICTIONS = f"involvedObject.kind=Pod,reason={EVICTED}"
"""Field selector of the events for `read_eviction`."""

CONFIRMED_WITHIN_S = 600.0
"""A kubelet writes the event, ends the pod, which has a grace period, and then writes the pod's status."""


@dataclass(frozen=True, slots=True)
class OomObservation:
    """An OOM kill, or an eviction for memory usage, at a time in unix seconds.

    `memory_bytes` is its request, or its usage when `evicted`, as an event claims; 0 without a request. `most_bytes` is
    what its limit and its node allow.
    """

    pod: ObjectKey
    container: str
    when_s: float
    memory_bytes: float
    evicted: bool = False
    most_bytes: float = math.inf


def ooms_of_change(old: Pod | None, new: Pod | None, seen_s: float) -> Iterator[OomObservation]:
    """Yield the OOM kills of runs that ended with a change of a pod, at `seen_s` where the status gives no time.

    None from the first sight of a pod: its last kill may be days old, and already in the checkpoint.
    """
    if old is None or new is None or old.uid != new.uid:
        return
    for container in new.containers:
        before = old.container(container.name)
        if before is None:
            continue
        ended_before = _ended_runs(before)
        for number, end in _ended_runs(container).items():
            if number not in ended_before and end.reason == OOM_KILLED:
                # The request now if the run has just ended, or the former one if the next run has already started.
                request = (container if container.terminated is end else before).requests[MEMORY]
                when_s = seen_s if end.finished_s is None else end.finished_s
                yield OomObservation(new.key, container.name, when_s, request if request >= 0 else 0.0)


def _ended_runs(container: ContainerState) -> dict[int, Termination]:
    """The ended runs in a container's status by number, in order; the restart count is that of the latest run."""
    waiting = container.terminated is None and not container.running
    last, count = container.restart_count - (0 if waiting else 1), container.restart_count
    runs = ((last, container.last_terminated), (count, container.terminated))
    return {number: end for number, end in runs if end is not None}


@reads("Event")
def read_eviction(raw: Fields) -> tuple[OomObservation, ...] | None:
    """The containers that used too much memory, by an `Evicted` event; None without any, or without the details."""
    metadata, involved = raw.child("metadata"), raw.child("involvedObject")
    if raw.text("reason") != EVICTED or involved.text("kind") != "Pod":
        return None
    annotations = metadata.string_map("annotations")
    containers, used, starved = (
        annotations.get(name, "").split(",")
        for name in ("offending_containers", "offending_containers_usage", "starved_resource")
    )
    if not len(containers) == len(used) == len(starved):
        return None
    pod = ObjectKey(involved.text("namespace"), involved.required("name"))
    when_s = metadata.time_s("creationTimestamp") or 0.0
    ooms = tuple(
        OomObservation(pod, container, when_s, _bytes(usage, metadata), evicted=True)
        for container, usage, resource in zip(containers, used, starved, strict=True)
        if resource == "memory"
    )
    return ooms or None


def _bytes(usage: str, metadata: Fields) -> float:
    try:
        return parse_quantity(usage)
    except BadQuantity as error:
        raise BadField(metadata.at("annotations.offending_containers_usage"), str(error)) from error


class OomQueue:
    """A queue of OOM kills between the watching threads and the round.

    Beyond `max_length` the oldest of a namespace are dropped, not those of others: anybody can write events. Evictions
    from before the queue was created are already in the checkpoint; others wait until the status of their pod shows
    them.
    """

    def __init__(self, clock: WallClock = time.time, max_length: int = 1000) -> None:
        self._clock, self._since_s, self._max_length = clock, clock(), max_length
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, bool], deque[OomObservation]] = {}  # by namespace, and for evictions
        self._evicted_s: dict[ObjectKey, float] = {}  # pods that were evicted, and when their status showed it

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        now_s = self._clock()
        if new is not None and new.evicted and (old is None or not old.evicted):
            with self._lock:
                self._evicted_s[new.key] = now_s
        self._add(ooms_of_change(old, new, now_s))

    def eviction_changed(self, old: Collection[OomObservation] | None, new: Collection[OomObservation] | None) -> None:
        """Change handler for the events selected by `EVICTIONS`, including their expiry."""
        self._add(oom for oom in new or () if oom.when_s >= self._since_s and oom not in (old or ()))

    def drain(self) -> list[OomObservation]:
        """Remove and return the kills since the last call, those of a namespace in order of observation."""
        oldest_s, sure = self._clock() - CONFIRMED_WITHIN_S, []
        with self._lock:
            queues, self._queues = self._queues, {}
            self._evicted_s = {pod: when_s for pod, when_s in self._evicted_s.items() if when_s >= oldest_s}
            for oom in (oom for queue in queues.values() for oom in queue):
                if not oom.evicted or oom.pod in self._evicted_s:
                    sure.append(oom)
                elif oom.when_s >= oldest_s:
                    self._queue(oom)
        return sure

    def _add(self, ooms: Iterable[OomObservation]) -> None:
        with self._lock:
            for oom in ooms:
                self._queue(oom)

    def _queue(self, oom: OomObservation) -> None:
        queue = self._queues.setdefault((oom.pod.namespace, oom.evicted), deque(maxlen=self._max_length))
        queue.append(oom)
