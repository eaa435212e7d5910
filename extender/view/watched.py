"""Parsers for watch events that save CPU time (batching, caching) or record the age of the newest change."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from extender.pods.pod import Pod
from recommender.units import MonotonicClock, WallClock, format_time, parse_rfc3339_s

Given = TypeVar("Given")
Made = TypeVar("Made")
Json = Mapping[str, Any]

BATCH_S = 0.02
"""How long events that follow another one are delayed; until then, advice stands in for pods not seen bound yet."""

BURST_S = 0.002  # an event that comes sooner was already buffered


class BatchingReader(Generic[Given, Made]):
    """Parses like `read`, on the thread of one watch, but sleeps before an event that follows another one closely.

    Waking the thread for each event would double its CPU time and disturb calls. An event that comes alone, with none
    for `BATCH_S` before it, is parsed at once, and so is a list, before the watch is `watching`.
    """

    def __init__(
        self,
        read: Callable[[Given], Made],
        watching: Callable[[], bool],
        *,
        clock: MonotonicClock = time.monotonic,
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


MAX_CLOCK_SKEW_S = 60.0  # later times are ignored: clocks differ, and owners can write anything into `managedFields`


class TimestampingReader(Generic[Made]):
    """Parses like `read`, and records the time of the newest change, which tells how far we lag behind the cluster."""

    def __init__(self, read: Callable[[Json], Made], clock: WallClock = time.time) -> None:
        self._read, self._clock, self._newest = read, clock, ""

    def __call__(self, raw: Json) -> Made:
        """Parse an object; raises what `read` raises."""
        made = self._read(raw)
        latest = format_time(self._clock() + MAX_CLOCK_SKEW_S)
        self._newest = max(self._newest, changed_at(raw, latest))
        return made

    @property
    def newest_s(self) -> float:
        """Unix seconds; NaN before the first object."""
        return parse_rfc3339_s(self._newest) if self._newest else math.nan


def changed_at(raw: Json, latest: str) -> str:
    """The last change of an object not after `latest`; RFC 3339 as written by the API server, which sorts by time."""
    metadata = raw["metadata"]
    times = [metadata.get("creationTimestamp"), *(each.get("time") for each in metadata.get("managedFields") or ())]
    return max((each for each in times if each and each <= latest), default="")


MAX_CACHED = 4096  # pending pods cached; others are parsed again when they are bound

DIGESTED_METADATA = ("labels", "annotations", "ownerReferences", "generateName")
"""Parts of a pod's metadata, besides its names, that parsing depends on."""


class _CachedPod(NamedTuple):
    """A pending pod, the version of the controllers it was read with, and a digest of what binding does not change."""

    pod: Pod
    controllers: int
    digest: bytes


class CachingPodReader:
    """Parses pods like `read`, for one thread; a newly bound pod is usually derived from the cached pending one.

    `version_of`: namespace -> a number that changes with the controllers there.
    """

    def __init__(self, read: Callable[[Json], Pod], version_of: Callable[[str], int]) -> None:
        self._read, self._version_of = read, version_of
        self._cached: OrderedDict[str, _CachedPod] = OrderedDict()

    def __call__(self, raw: Json) -> Pod:
        """Parse a pod; raises what `read` raises."""
        cached = self._cached.pop(_text(raw, "metadata", "uid"), None)
        if cached is not None and (node := _newly_bound_node(raw)) and self._is_same(cached, raw):
            return cached.pod.bound_to(intern(node))
        controllers = self._version_of(_text(raw, "metadata", "namespace"))  # first, as they may change meanwhile
        pod = self._read(raw)
        if not pod.node and not pod.finished:
            self._cached[pod.uid] = _CachedPod(pod, controllers, _digest(raw))
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        return pod

    def _is_same(self, cached: _CachedPod, raw: Json) -> bool:
        return cached.controllers == self._version_of(cached.pod.namespace) and cached.digest == _digest(raw)


def _text(raw: Json, part: str, name: str) -> str:
    """A string field of `metadata` or `spec`; empty if it is missing or malformed, which `read` will report."""
    fields = raw.get(part)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, str) else ""


def _newly_bound_node(raw: Json) -> str:
    """The node of a bound pod that its kubelet has not acknowledged yet; else empty."""
    status = raw.get("status")
    if not isinstance(status, dict) or status.get("startTime") or status.get("containerStatuses"):
        return ""
    return _text(raw, "spec", "nodeName") if status.get("phase") == "Pending" else ""


def _digest(raw: Json) -> bytes:
    """Digest of everything that parsing depends on and binding does not change."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    of_spec = spec.copy()
    of_spec.pop("nodeName", None)
    kept = ([metadata.get(name) for name in DIGESTED_METADATA], of_spec)
    return blake2b(orjson.dumps(kept), digest_size=16).digest()
