"""Indices of the pods on nodes, and of pending pods."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from extender.pods.footprint import ClassKey, PodName
from extender.pods.pod import Pod
from extender.view.node_table import Entry
from recommender.base.units import MonotonicClock, WallClock

Key = TypeVar("Key", bound=Hashable)
JobKey = tuple[str, str]  # namespace and job


class Placed:
    """Every pod on a node, seen or advised there. Not thread-safe."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}  # by UID
        self.without_demand: dict[PodName, str] = {}  # UIDs of pods with neither learned demand nor full requests
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._of_class: defaultdict[ClassKey, set[str]] = defaultdict(set)
        self._jobs: defaultdict[JobKey, Counter[str]] = defaultdict(Counter)
        self._ours: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def enter(self, entry: Entry, *, without_demand: bool) -> None:
        pod = entry.pod
        self.entries[pod.uid] = entry
        self._on[entry.node].add(pod.uid)
        self._of_class[pod.namespace, pod.workload].add(pod.uid)
        if pod.of_our_scheduler:
            self._ours[pod.priority][entry.node] += 1
        if pod.job:
            self._jobs[pod.namespace, pod.job][entry.node] += 1
        if without_demand:
            self.without_demand[pod.namespace, pod.name] = pod.uid

    def remove(self, uid: str) -> Entry | None:
        """Remove a pod; returns its entry, if there is one."""
        entry = self.entries.pop(uid, None)
        if entry is None:
            return None
        pod = entry.pod
        _discard(self._on, entry.node, uid)
        _discard(self._of_class, (pod.namespace, pod.workload), uid)
        if pod.of_our_scheduler:
            _uncount(self._ours[pod.priority], entry.node)
        if pod.job:
            there = self._jobs[pod.namespace, pod.job]
            _uncount(there, entry.node)
            if not there:
                del self._jobs[pod.namespace, pod.job]
        if self.without_demand.get((pod.namespace, pod.name)) == uid:
            del self.without_demand[pod.namespace, pod.name]
        return entry

    def on(self, node: str) -> list[Entry]:
        return [self.entries[uid] for uid in self._on.get(node, ())]

    def of_class(self, key: ClassKey) -> Collection[str]:
        return self._of_class.get(key, ())

    def of_job(self, key: JobKey) -> Mapping[str, int]:
        """Node -> number of pods of the job."""
        return self._jobs.get(key, {})

    def with_lower_priority(self, priority: int) -> set[str]:
        """The nodes with a pod of our scheduler of lower priority."""
        return {node for each, nodes in self._ours.items() if each < priority for node in nodes}


def _discard(sets: dict[Key, set[str]], key: Key, uid: str) -> None:
    found = sets[key]
    found.discard(uid)
    if not found:
        del sets[key]


def _uncount(counts: Counter[Key], key: Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


AVOID_S = 300.0  # how long a node where a pod could not be bound comes last for its owner
MAX_OWNERS = 1000


class FailedNodes:
    """Nodes where pods could not be bound although nothing here spoke against it, by owner. Not thread-safe."""

    def __init__(self, monotonic: MonotonicClock) -> None:
        self._monotonic = monotonic
        self._failed_s: dict[tuple[str, str], dict[str, float]] = {}  # the owner that failed last at the end

    def put(self, pod: Pod, node: str) -> None:
        latest = {**self.of(pod), node: self._monotonic()}
        self._failed_s.pop(_owner_of(pod), None)
        self._failed_s[_owner_of(pod)] = latest
        if len(self._failed_s) > MAX_OWNERS:
            del self._failed_s[next(iter(self._failed_s))]

    def bound(self, pod: Pod) -> None:
        """Forget what failed on the node of a newly bound pod."""
        self._failed_s.get(_owner_of(pod), {}).pop(pod.node, None)

    def of(self, pod: Pod) -> Mapping[str, float]:
        """Node -> when a pod of the same owner last failed there, for `AVOID_S`."""
        since_s = self._monotonic() - AVOID_S
        return {node: at_s for node, at_s in self._failed_s.get(_owner_of(pod), {}).items() if at_s > since_s}


def _owner_of(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.job or pod.uid


class Waiting:
    """Pending pods, and since when they have been refused by every node; after a restart, by their conditions. Each
    method performs one dictionary operation at a time, so threads need no lock."""

    def __init__(self, clock: WallClock, monotonic: MonotonicClock) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._pods: dict[str, Pod] = {}
        self._since_s: dict[str, float] = {}

    def put(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        if not math.isnan(pod.refused_since_s):
            self._since_s.setdefault(pod.uid, self._monotonic() - max(0.0, self._clock() - pod.refused_since_s))

    def drop(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._since_s.pop(uid, None)

    def of(self, uid: str) -> Pod | None:
        """A pending pod as last watched; None for any other."""
        return self._pods.get(uid)

    def refused(self, uid: str) -> None:
        """Record that a pod was refused by every node, if the watch knows it; others would never be removed."""
        if uid in self._pods:
            self._since_s.setdefault(uid, self._monotonic())

    def waited_s(self, uid: str) -> float:
        """Seconds since a pod was first refused by every node; 0 if it never was."""
        since_s = self._since_s.get(uid)
        return 0.0 if since_s is None else max(0.0, self._monotonic() - since_s)
