"""Keeps the state up to date: watches of nodes, pods, PhaseProfiles and controllers, and polling of measured use."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np
import orjson

from extender.pods.footprint import PodName
from extender.pods.pod import Node, Pod, Profile, pod_reader, profile_reader, read_node
from extender.pods.reservations import CONFIG_MAP, read_reservations
from extender.settings import Settings
from extender.view.state import ClusterState
from extender.watches import PeriodicTask, Watches
from recommender.base.heap import freeze_and_trim
from recommender.base.units import MonotonicClock, WallClock, format_time, parse_rfc3339_s
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials, NotFound
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.paths import CONFIG_MAPS, NODES, PODS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.usage.metrics_api import read_usage
from recommender.cluster.watching.reflector import Reflector
from recommender.cluster.workloads.ownership import WELL_KNOWN, Workloads, workload_reader

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
        made, metadata, latest = self._read(raw), raw["metadata"], format_time(self._clock() + MAX_CLOCK_SKEW_S)
        changes = (each.get("time") for each in metadata.get("managedFields") or ())
        times = [each for each in (metadata.get("creationTimestamp"), *changes) if each and each <= latest]
        self._newest = max([self._newest, *times])  # RFC 3339 as written by the API server, which sorts by time
        return made

    @property
    def newest_s(self) -> float:
        """Unix seconds; NaN before the first object."""
        return parse_rfc3339_s(self._newest) if self._newest else math.nan


MAX_CACHED = 4096  # pending pods cached; others are parsed again when they are bound

DIGESTED_METADATA = ("labels", "annotations", "ownerReferences", "generateName")
"""Parts of a pod's metadata, besides its names, that parsing depends on."""


class CachingPodReader:
    """Parses pods like `read`, for one thread; a newly bound pod is usually derived from the cached pending one.
    `version_of`: namespace -> a number that changes with the controllers there."""

    def __init__(self, read: Callable[[Json], Pod], version_of: Callable[[str], int]) -> None:
        self._read, self._version_of = read, version_of
        # by UID: a pending pod, the version of the controllers it was read with, and a digest
        self._cached: OrderedDict[str, tuple[Pod, int, bytes]] = OrderedDict()

    def __call__(self, raw: Json) -> Pod:
        """Parse a pod; raises what `read` raises."""
        cached = self._cached.pop(_text(raw, "metadata", "uid"), None)
        if cached is not None and (node := _newly_bound_node(raw)):
            pod, controllers, digest = cached
            if controllers == self._version_of(pod.namespace) and digest == _digest(raw):
                return pod.bound_to(intern(node))
        controllers = self._version_of(_text(raw, "metadata", "namespace"))  # first, as they may change meanwhile
        pod = self._read(raw)
        if not pod.node and not pod.finished:
            self._cached[pod.uid] = pod, controllers, _digest(raw)
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        return pod


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


PERIOD_S = 60.0  # default resolution of metrics-server
RETRY_S = 5.0  # at the start and after a failure


class UsagePoller:
    """Polls the metrics API while there are pods with neither profile nor requests; `failing` (0 or 1) while it exists
    but fails."""

    def __init__(self, api: Api, state: ClusterState) -> None:
        self._api, self._state = api, state
        self._pause_s = RETRY_S
        self.loop = PeriodicTask("measuring", self.poll, lambda: self._pause_s)
        self.failing = 0

    def poll(self) -> None:
        """Poll once. Without the metrics API the use of these pods is guessed."""
        failed, self._pause_s = self.failing, RETRY_S
        without_demand = self._state.without_demand
        try:
            report = read_usage(self._api) if without_demand else None
        except NotFound:
            report = None
        except (ApiError, BadCredentials) as error:
            if not failed:
                log.warning("the use of pods is unknown: %s", error)
            self.failing = 1
            return
        except Exception:
            self.failing = 1
            raise
        self.failing, self._pause_s = 0, PERIOD_S
        if report is None:
            return
        for problem in report.broken.values():
            log.warning("not measured: %s", problem)
        use: defaultdict[PodName, dict[str, Pair]] = defaultdict(dict)
        for key, seen in report.samples:
            if (name := (key.namespace, key.pod)) in without_demand:
                use[name][key.container] = (seen.cpu_cores, seen.memory_bytes)
        self._state.put_use(use)


log = logging.getLogger(__name__)

OnBound = Callable[[Pod], None]  # called on the watch's thread with each pod when it is first seen bound; must be fast


class ClusterCache:
    """The watches of a cluster, each on a thread of its own. Pods are listed last, as their workload class depends on
    their controllers, and their demand on profiles."""

    def __init__(
        self, api: Api, state: ClusterState, settings: Settings, on_bound: OnBound, controller_namespace: str
    ) -> None:
        self._state, self._on_bound = state, on_bound
        workloads = Workloads()
        self.read_pod = pod_reader(workloads.controllers_of, settings.schedulers)
        self._profiles = Reflector(
            api, path_of(PROFILES), profile_reader(settings.grid), on_change=self._profile_changed
        )
        self._readers = (
            TimestampingReader(read_node),
            TimestampingReader(CachingPodReader(self.read_pod, workloads.version)),
        )
        self._nodes = Reflector(api, path_of(NODES), self._readers[0], on_change=self._node_changed)
        self._first = Watches(
            self._nodes,
            Reflector(
                api,
                path_of(CONFIG_MAPS, controller_namespace),
                read_reservations,
                field_selector=f"metadata.name={CONFIG_MAP}",
                on_change=lambda _, new: state.reservations.put(new or ()),
            ),
            *(
                Reflector(api, path_of(resource), workload_reader(kind), on_change=workloads.changed)
                for kind, resource in WELL_KNOWN.items()
            ),
        )
        read_watched = BatchingReader(self._readers[1], lambda: self._pods.synced)
        self._pods = Reflector(api, path_of(PODS), read_watched, on_change=self._pod_changed)
        self.needed = Watches(*self._first, self._pods)
        self.all = Watches(*self.needed, self._profiles)
        self._usage_poller = UsagePoller(api, state)
        self._ended = threading.Event()
        self._starter = threading.Thread(target=self._start_pods, name="watch pods", daemon=True)

    def start(self) -> None:
        self._first.start()
        self._profiles.start()
        self._starter.start()

    def stop(self) -> None:
        self._ended.set()
        self._starter.join()
        self.all.stop()
        self._usage_poller.loop.stop(0.0)

    def _start_pods(self) -> None:
        """Start the watch of pods once all else is listed; if profiles cannot be listed, requests are used."""
        while not self._first.synced or not (self._profiles.synced or self._profiles.problem):
            if self._ended.wait(0.02):
                return
        self._pods.start()
        self._usage_poller.loop.start()
        while not self._pods.synced:
            if self._ended.wait(0.1):
                return
        freeze_and_trim()  # what was listed stays
        log.info("ready: %d nodes listed", len(self._state.snapshot().table.index))

    @property
    def failing(self) -> int:
        """Number of watches without contact, including the metrics API; their data may be stale."""
        return self.all.failing + self._usage_poller.failing

    @property
    def newest_s(self) -> float:
        """Time of the newest processed change of a node or pod, unix seconds; NaN before the first."""
        nodes, pods = self._readers
        return float(np.fmax(nodes.newest_s, pods.newest_s))

    def staleness_s(self) -> float:
        """Seconds since the API server last sent anything about nodes or about pods, whichever is longer."""
        return max(self._nodes.staleness_s(), self._pods.staleness_s())

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._state.put_node(new)
        elif old is not None:
            self._state.drop_node(old.name)

    def _profile_changed(self, old: Profile | None, new: Profile | None) -> None:
        if new is not None:
            self._state.put_profile(new)
        elif old is not None:
            self._state.drop_profile(old)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._state.drop_pod(old.uid)
        if new is None:
            return
        self._state.put_pod(new)
        if new.node and (old is None or not old.node or old.uid != new.uid):
            self._on_bound(new)
