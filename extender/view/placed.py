"""Who is where: the pods on nodes by UID, and by all that they are looked up by; and those that wait."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

from extender.pods.footprint import ClassKey, PodName
from extender.pods.pod import Pod
from extender.view.node_table import Entry

Key = TypeVar("Key", bound=Hashable)

JobKey = tuple[str, str]
"""Namespace and job."""


class Placed:
    """Every pod that is on a node, seen there or advised to go there. Not safe for several threads by itself.

    Attributes
    ----------
    entries
        By UID.
    silent
        Name -> UID, of those that were entered as having something neither learned nor asked for.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.unmeasured: dict[PodName, str] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._of_class: defaultdict[ClassKey, set[str]] = defaultdict(set)
        self._ends: defaultdict[int, set[str]] = defaultdict(set)
        self._jobs: defaultdict[JobKey, Counter[str]] = defaultdict(Counter)
        self._ours: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def enter(self, entry: Entry, *, unmeasured: bool) -> None:
        """A pod is on a node."""
        pod = entry.pod
        self.entries[pod.uid] = entry
        self._on[entry.node].add(pod.uid)
        self._of_class[pod.namespace, pod.workload].add(pod.uid)
        if pod.of_our_scheduler:
            self._ours[pod.priority][entry.node] += 1
        if (end_cell := entry.end_cell) is not None:
            self._ends[end_cell].add(pod.uid)
        if pod.job:
            self._jobs[pod.namespace, pod.job][entry.node] += 1
        if unmeasured:
            self.unmeasured[pod.namespace, pod.name] = pod.uid

    def remove(self, uid: str) -> Entry | None:
        """It is there no more; what was entered of it, if anything was."""
        entry = self.entries.pop(uid, None)
        if entry is None:
            return None
        pod = entry.pod
        _discard(self._on, entry.node, uid)
        _discard(self._of_class, (pod.namespace, pod.workload), uid)
        if pod.of_our_scheduler:
            _uncount(self._ours[pod.priority], entry.node)
        if (end_cell := entry.end_cell) is not None:
            _discard(self._ends, end_cell, uid)
        if pod.job:
            there = self._jobs[pod.namespace, pod.job]
            _uncount(there, entry.node)
            if not there:
                del self._jobs[pod.namespace, pod.job]
        if self.unmeasured.get((pod.namespace, pod.name)) == uid:
            del self.unmeasured[pod.namespace, pod.name]
        return entry

    @property
    def nodes(self) -> Collection[str]:
        """Those that hold anything."""
        return self._on.keys()

    def on(self, node: str) -> list[Entry]:
        """The pods of a node."""
        return [self.entries[uid] for uid in self._on.get(node, ())]

    def of_class(self, key: ClassKey) -> Collection[str]:
        """The UIDs of a workload class."""
        return self._of_class.get(key, ())

    def of_job(self, key: JobKey) -> Mapping[str, int]:
        """Node -> how many pods of the job are there."""
        return self._jobs.get(key, {})

    def ended_by(self, cell: int) -> list[str]:
        """The UIDs of those that were expected to have ended by then."""
        return [uid for end_cell, uids in self._ends.items() if end_cell <= cell for uid in uids]

    def with_lower_priority(self, priority: int) -> set[str]:
        """The nodes on which a pod of our scheduler has a lower priority."""
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


class Waiting:
    """Each method does one thing to one dictionary, so that threads need no lock.

    A restart loses nothing: what a pod's condition says of its refusal counts for those that were refused before.

    Parameters
    ----------
    clock, monotonic
        Unix seconds for what conditions say, monotonic seconds for what is seen here.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._pods: dict[str, Pod] = {}
        self._since_s: dict[str, float] = {}

    def put(self, pod: Pod) -> None:
        """A pod is there, and on no node."""
        self._pods[pod.uid] = pod
        if not math.isnan(pod.refused_since_s):
            self._since_s.setdefault(pod.uid, self._monotonic() - max(0.0, self._clock() - pod.refused_since_s))

    def drop(self, uid: str) -> None:
        """It is bound, has ended or is no more."""
        self._pods.pop(uid, None)
        self._since_s.pop(uid, None)

    def of(self, uid: str) -> Pod | None:
        """A pod as the watch last showed it, if it is not bound yet."""
        return self._pods.get(uid)

    def refused(self, uid: str) -> None:
        """It was refused every node it was asked about; one that the watch does not know would never be forgotten."""
        if uid in self._pods:
            self._since_s.setdefault(uid, self._monotonic())

    def waited_s(self, uid: str) -> float:
        """Seconds since it was first refused every node; 0 when it never was."""
        since_s = self._since_s.get(uid)
        return 0.0 if since_s is None else max(0.0, self._monotonic() - since_s)
