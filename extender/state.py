"""Who is where, and what they will use: fed by watches and by our own advice, looked at through snapshots."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from extender.curves import Curve
from extender.footprint import Footprint, footprint_of
from extender.node_table import NO_CATEGORY, Entry, NodeTable
from extender.overlay import Overlay
from extender.pod import SEAT_ANNOTATION, Node, Pod, Profile
from extender.settings import Settings
from extender.snapshot import Floats, Snapshot

PROGRESSING = 0

SEAT_S = 300.0
"""How long a node is held for a member of a gang: as long as the controller waits for the gang to be bound."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Look:
    """What one call works on: a snapshot, and what it holds of the pod asked about."""

    snapshot: Snapshot
    footprint: Footprint
    peers: Mapping[int, int]


class ClusterState:
    """Every method may be called from any thread; each returns within microseconds, but for a new snapshot (a copy).

    Parameters
    ----------
    clock, monotonic
        Unix seconds for forecasts, monotonic seconds for how long advice is held.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._settings, self._clock, self._monotonic = settings, clock, monotonic
        self._lock = threading.RLock()
        self._table = NodeTable(settings.grid)
        self._table.restart(settings.grid.cell(clock()))
        self._overlay = Overlay()
        self._entries: dict[str, Entry] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._of_class: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._jobs: defaultdict[tuple[str, str], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._classes: dict[tuple[str, str], Profile] = {}
        self._profiles: dict[str, Profile] = {}
        self._named_by: dict[tuple[str, str], frozenset[str]] = {}
        self._seats: dict[str, str] = {}
        self._snapshot: Snapshot | None = None

    # -- what the watches say --------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node came or changed."""
        with self._lock:
            self._snapshot = None
            new = node.name not in self._table.index
            if self._table.put_node(node):
                self._add_up(self._table.base)
            elif new:
                there = [self._entries[uid] for uid in self._on.get(node.name, ())]
                self._table.count_all(self._table.index[node.name], there)

    def drop_node(self, name: str) -> None:
        """A node is no more; its pods go when the watch says so."""
        with self._lock:
            self._snapshot = None
            self._table.drop_node(name)

    def put_pod(self, pod: Pod) -> str | None:
        """A pod came or changed; the node it had been advised to go to when this is the first time it is seen bound."""
        with self._lock:
            if not pod.node and not pod.finished:
                self._reserve(pod)
                return None  # what was advised holds until it is asked about again
            self._seats.pop(pod.uid, None)
            advised = self._overlay.drop(pod.uid)
            self._remove(pod.uid)
            if not pod.finished:
                self._add(pod, pod.node, self._clock() if math.isnan(pod.started_s) else pod.started_s)
            return advised

    def drop_pod(self, uid: str) -> None:
        """A pod is no more."""
        with self._lock:
            self._seats.pop(uid, None)
            self._overlay.drop(uid)
            self._remove(uid)

    def _reserve(self, pod: Pod) -> None:
        """Hold the seat that the gang controller wrote on a waiting pod, once; give it up when that was taken off."""
        seat, held = pod.words.get(SEAT_ANNOTATION, ""), self._seats.get(pod.uid, "")
        if seat == held:
            return
        self.withdraw(pod.uid)
        self._seats.pop(pod.uid, None)
        if seat:
            self._seats[pod.uid] = seat
            self.advise(pod, seat, SEAT_S)

    def put_profile(self, profile: Profile) -> None:
        """A PhaseProfile came or changed."""
        with self._lock:
            affected = set(profile.categories)
            if profile.workload:
                key = (profile.namespace, profile.workload)
                self._classes[key] = profile
                affected |= self._of_class.get(key, set())
            affected |= self._forget(profile)
            self._profiles.update(dict.fromkeys(profile.categories, profile))
            self._named_by[profile.namespace, profile.name] = frozenset(profile.categories)
            self._weigh_again(affected)

    def drop_profile(self, profile: Profile) -> None:
        """A PhaseProfile is no more."""
        with self._lock:
            affected = self._forget(profile)
            key = (profile.namespace, profile.workload)
            if profile.workload and key in self._classes:
                del self._classes[key]
                affected |= self._of_class.get(key, set())
            self._weigh_again(affected)

    def _forget(self, profile: Profile) -> frozenset[str]:
        """Drop what a profile of this name said of single pods; names them."""
        name = (profile.namespace, profile.name)
        uids = self._named_by.pop(name, frozenset())
        for uid in uids:
            held = self._profiles.get(uid)
            if held is not None and (held.namespace, held.name) == name:
                del self._profiles[uid]
        return uids

    def _weigh_again(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if entry := self._entries.get(uid):
                self._remove(uid)
                self._add(entry.pod, entry.node, entry.start_cell * self._settings.grid.step_s)

    # -- what we advise --------------------------------------------------------------------------------------------

    def advise(self, pod: Pod, node: str, hold_s: float | None = None) -> None:
        """A pod is expected to go to a node: it counts there until it is seen, withdrawn, or `hold_s` is over."""
        with self._lock:
            if pod.uid in self._entries and pod.uid not in self._overlay:
                return  # it is bound already; someone asks late
            self._remove(pod.uid)
            held_s = self._settings.hold_s if hold_s is None else hold_s
            self._overlay.put(pod.uid, node, self._monotonic() + held_s)
            self._add(pod, node, self._clock())

    def withdraw(self, uid: str) -> None:
        """What was advised to a pod counts no more: it is asked about again, so it was not placed."""
        with self._lock:
            if self._overlay.drop(uid) is not None:
                self._remove(uid)

    @property
    def seated(self) -> frozenset[str]:
        """The nodes on which room is held for members of gangs."""
        if not self._seats:
            return frozenset()
        with self._lock:
            return frozenset(node for uid, node in self._seats.items() if uid in self._overlay)

    @property
    def advised(self) -> int:
        """How many placements are advised and not yet seen."""
        return len(self._overlay)

    # -- what a call sees ------------------------------------------------------------------------------------------

    def is_ours(self, pod: Pod) -> bool:
        """Whether to judge nodes for it: it says so, or there is a history to judge by."""
        return pod.ours or (pod.namespace, pod.workload) in self._classes or pod.uid in self._profiles

    def look(self, pod: Pod) -> Look:
        """The present snapshot, and what it holds of a pod."""
        with self._lock:
            index = self._table.index
            there: Mapping[str, int] = self._jobs.get((pod.namespace, pod.job), {}) if pod.job else {}
            peers = {index[node]: number for node, number in there.items() if node in index}
            return Look(self.snapshot(), self._footprint(pod), peers)

    def snapshot(self) -> Snapshot:
        """The cluster as it is now; the same one until something changes."""
        with self._lock:
            for uid in self._overlay.expired(self._monotonic()):
                self._remove(uid)
            now_s = self._clock()
            cell = self._settings.grid.cell(now_s)
            if self._table.out_of_sight(cell):
                self._add_up(cell)
            if self._snapshot is None or self._snapshot.first_cell != cell:
                self._snapshot = self._table.snapshot(cell, now_s)
            return self._snapshot

    def use_of(self, node: str, uids: Iterable[str]) -> Floats | None:
        """(2, cells): what these pods of a node will use; None when one of them is not known to be there."""
        with self._lock:
            cell = self._settings.grid.cell(self._clock())
            use = np.zeros((2, self._settings.grid.cells))
            for uid in uids:
                entry = self._entries.get(uid)
                if entry is None or entry.node != node:
                    return None
                use += entry.use(cell, self._settings.grid.cells)
            return use

    # -- keeping the sums ------------------------------------------------------------------------------------------

    def _known(self, pod: Pod) -> Mapping[str, Curve]:
        own = self._profiles.get(pod.uid)
        if own is not None and own.curves:
            return own.curves
        of_class = self._classes.get((pod.namespace, pod.workload))
        return of_class.curves if of_class is not None else {}

    def _footprint(self, pod: Pod) -> Footprint:
        return footprint_of(pod, self._known(pod), self._settings.sizes, self._table.largest)

    def _category(self, pod: Pod) -> int:
        """SpeCon counts what is ours; a job of which nothing is told yet is taken to be learning."""
        if not self.is_ours(pod):
            return NO_CATEGORY
        profile = self._profiles.get(pod.uid)
        told = profile.categories.get(pod.uid) if profile is not None else None
        return PROGRESSING if told is None else told

    def _add(self, pod: Pod, node: str, started_s: float) -> None:
        entry = Entry(pod, node, self._footprint(pod), self._settings.grid.cell(started_s), self._category(pod))
        self._entries[pod.uid] = entry
        self._on[node].add(pod.uid)
        self._of_class[pod.namespace, pod.workload].add(pod.uid)
        if pod.job:
            self._jobs[pod.namespace, pod.job][node] += 1
        self._count(entry, 1)

    def _remove(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        pod = entry.pod
        _discard(self._on, entry.node, uid)
        _discard(self._of_class, (pod.namespace, pod.workload), uid)
        if pod.job:
            there = self._jobs[pod.namespace, pod.job]
            there[entry.node] -= 1
            if not there[entry.node]:
                del there[entry.node]
            if not there:
                del self._jobs[pod.namespace, pod.job]
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self._snapshot = None
        place = self._table.index.get(entry.node)
        if place is not None:
            self._table.count(place, entry, sign)

    def _add_up(self, cell: int) -> None:
        """All sums anew; with fifty thousand pods a tenth of a second, once in the grid's horizon."""
        self._snapshot = None
        self._table.restart(cell)
        for node, uids in self._on.items():
            place = self._table.index.get(node)
            if place is not None:
                self._table.count_all(place, [self._entries[uid] for uid in uids])


def _discard(sets: dict[Key, set[str]], key: Key, uid: str) -> None:
    found = sets[key]
    found.discard(uid)
    if not found:
        del sets[key]
