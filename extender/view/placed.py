"""Who is where: the pods on nodes by UID, and by all that they are looked up by."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from extender.pods.learned import ClassKey, PodName
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
        self.silent: dict[PodName, str] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._of_class: defaultdict[ClassKey, set[str]] = defaultdict(set)
        self._ends: defaultdict[int, set[str]] = defaultdict(set)
        self._jobs: defaultdict[JobKey, Counter[str]] = defaultdict(Counter)
        self._ours: defaultdict[int, Counter[str]] = defaultdict(Counter)

    def enter(self, entry: Entry, *, silent: bool) -> None:
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
        if silent:
            self.silent[pod.namespace, pod.name] = pod.uid

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
        if self.silent.get((pod.namespace, pod.name)) == uid:
            del self.silent[pod.namespace, pod.name]
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

    def below(self, priority: int) -> set[str]:
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
