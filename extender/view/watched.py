"""What watches bring, read sparingly: a few events at a time, and no pod twice; and how old the newest of it is."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from extender.pods.pod import Pod

Given = TypeVar("Given")
Made = TypeVar("Made")
Json = Mapping[str, Any]

BATCH_S = 0.02
"""Events that are no further apart wait for one another so long; the overlay stands in for pods not yet seen bound."""

BURST_S = 0.002
"""What comes sooner was there already."""


class BatchingReader(Generic[Given, Made]):
    """Reads as `read` does, on the thread of one watch, which rests before it reads what it had to wait for.

    A thread that is woken for each event takes twice as long, and each time it is in the way of calls. It does not rest
    for an event that comes alone: nothing came for `BATCH_S` before it, and it is read at once.

    Parameters
    ----------
    watching
        Whether what comes are events by now; a list is read without a rest.
    clock, sleep
        Monotonic seconds, and how to let them pass.
    """

    def __init__(
        self,
        read: Callable[[Given], Made],
        watching: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._watching, self._clock, self._sleep = read, watching, clock, sleep
        self._latest_s = -BATCH_S

    def __call__(self, given: Given) -> Made:
        if BURST_S < self._clock() - self._latest_s < BATCH_S and self._watching():
            self._sleep(BATCH_S)
        try:
            return self._read(given)
        finally:
            self._latest_s = self._clock()


MAX_CLOCK_SKEW_S = 60.0
"""So far the clock of the API server may be ahead of ours. Owners can write what they like into `managedFields`."""


class TimestampingReader(Generic[Made]):
    """Reads objects as `read` does, and remembers when the newest of them was changed (unix seconds): how far what is
    known lies behind the cluster."""

    def __init__(self, read: Callable[[Json], Made], clock: Callable[[], float] = time.time) -> None:
        self._read, self._clock, self._newest = read, clock, ""

    def __call__(self, raw: Json) -> Made:
        """The object; raises what `read` raises."""
        made = self._read(raw)
        latest = datetime.fromtimestamp(self._clock() + MAX_CLOCK_SKEW_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._newest = max(self._newest, changed_at(raw, latest))
        return made

    @property
    def newest_s(self) -> float:
        """NaN before the first object."""
        return datetime.fromisoformat(self._newest).timestamp() if self._newest else math.nan


def changed_at(raw: Json, latest: str) -> str:
    """When an object was changed last, of what is not after `latest`: RFC 3339 as the API server writes it, so that
    texts compare as times do."""
    metadata = raw["metadata"]
    told = [metadata.get("creationTimestamp"), *(each.get("time") for each in metadata.get("managedFields") or ())]
    return max((each for each in told if each and each <= latest), default="")


MAX_CACHED = 4096
"""Waiting pods remembered; the others are read again when they are bound."""

DIGESTED_METADATA = ("labels", "annotations", "ownerReferences", "generateName")
"""What a pod is read from beside its names and its spec."""


class _CachedPod(NamedTuple):
    """A waiting pod, the state of the controllers it was read by, and the digest of all that binding leaves alone."""

    pod: Pod
    controllers: int
    digest: bytes


class CachingPodReader:
    """Reads pods as `read` does, for one thread. One that is bound is what it was while it waited, and a node: mostly
    it need not be read again.

    Parameters
    ----------
    read
        Makes a pod of its JSON.
    version_of
        Namespace -> another number after every change of the controllers there.
    """

    def __init__(self, read: Callable[[Json], Pod], version_of: Callable[[str], int]) -> None:
        self._read, self._version_of = read, version_of
        self._cached: OrderedDict[str, _CachedPod] = OrderedDict()

    def __call__(self, raw: Json) -> Pod:
        """The pod; raises what `read` raises."""
        cached = self._cached.pop(_text(raw, "metadata", "uid"), None)
        if cached is not None and (node := _newly_bound_node(raw)) and self._is_same(cached, raw):
            return cached.pod.bound_to(intern(node))
        pod = self._read(raw)
        if not pod.node and not pod.finished:
            self._cached[pod.uid] = _CachedPod(pod, self._version_of(pod.namespace), _digest(raw))
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        return pod

    def _is_same(self, cached: _CachedPod, raw: Json) -> bool:
        return cached.controllers == self._version_of(cached.pod.namespace) and cached.digest == _digest(raw)


def _text(raw: Json, part: str, name: str) -> str:
    """A field of `metadata` or `spec`; empty where there is none, which others may complain about."""
    fields = raw.get(part)
    told = fields.get(name) if isinstance(fields, dict) else None
    return told if isinstance(told, str) else ""


def _newly_bound_node(raw: Json) -> str:
    """Where a pod is bound of which its kubelet has not said anything yet; else empty."""
    status = raw.get("status")
    if not isinstance(status, dict) or status.get("startTime") or status.get("containerStatuses"):
        return ""
    return _text(raw, "spec", "nodeName") if status.get("phase") == "Pending" else ""


def _digest(raw: Json) -> bytes:
    """Of a pod that could be read, or of one that may be the same."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    of_spec = spec.copy()
    of_spec.pop("nodeName", None)
    kept = ([metadata.get(name) for name in DIGESTED_METADATA], of_spec)
    return blake2b(orjson.dumps(kept), digest_size=16).digest()
