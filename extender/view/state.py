"""Who is where, and what they will use: fed by watches and by our own advice, looked at through snapshots."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from extender.pods.footprint import Footprint
from extender.pods.learned import Learned
from extender.pods.pod import SEAT_ANNOTATION, Node, Pod, Profile
from extender.settings import Settings
from extender.view.node_table import NO_CATEGORY, Entry, NodeTable
from extender.view.overlay import Overlay
from extender.view.snapshot import Floats, Snapshot
from extender.view.waiting import Waiting

PROGRESSING = 0

SEAT_S = 300.0
"""How long a node is held for a member of a gang: as long as the controller waits for the gang to be bound."""

Key = TypeVar("Key", bound=Hashable)


class Look(NamedTuple):
    """What one call works on: a snapshot, what it holds of the pod asked about, and how long that has been refused."""

    snapshot: Snapshot
    footprint: Footprint
    peers: Mapping[int, int]
    waited_s: float


class ClusterState:
    """Every method may be called from any thread; each returns within microseconds, but for a new snapshot (a copy).

    Parameters
    ----------
    clock, monotonic
        Unix seconds for forecasts, monotonic seconds for how long advice is held and pods wait.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._settings, self._clock, self._monotonic = settings, clock, monotonic
        self._lock = threading.RLock()
        self._table = NodeTable(settings.grid, settings.limits.doubted_cells(settings.grid))
        self._table.restart(settings.grid.cell(clock()))
        self._overlay = Overlay()
        self._entries: dict[str, Entry] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._of_class: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._jobs: defaultdict[tuple[str, str], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._learned = Learned(settings.sizes)
        self._seats: dict[str, str] = {}
        self._ends: defaultdict[int, set[str]] = defaultdict(set)
        self._snapshot: Snapshot | None = None
        self.waiting = Waiting(clock, monotonic)

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
                self.waiting.put(pod)
                self._reserve(pod)
                return None  # what was advised holds until it is asked about again
            self.waiting.drop(pod.uid)
            self._seats.pop(pod.uid, None)
            advised = self._overlay.drop(pod.uid)
            if pod.finished:
                self._remove(pod.uid)
            else:
                self._put(pod)
            return advised

    def drop_pod(self, uid: str) -> None:
        """A pod is no more."""
        with self._lock:
            self.waiting.drop(uid)
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
        self._learn(profile, self._learned.put)

    def drop_profile(self, profile: Profile) -> None:
        """A PhaseProfile is no more."""
        self._learn(profile, self._learned.drop)

    def _learn(self, profile: Profile, take: Callable[[Profile], frozenset[str]]) -> None:
        with self._lock:
            self._snapshot = None  # pods that are not placed yet may be judged otherwise
            of_class = self._of_class.get((profile.namespace, profile.workload), ()) if profile.workload else ()
            self._weigh_again(take(profile).union(of_class))

    def _weigh_again(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if entry := self._entries.get(uid):
                self._remove(uid)
                self._add(entry.pod, entry.node, (entry.start_cell + 0.5) * self._settings.grid.step_s)

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
        return pod.ours or self._learned.knows(pod)

    def look(self, pod: Pod) -> Look:
        """The present snapshot, and what it holds of a pod."""
        with self._lock:
            index = self._table.index
            there: Mapping[str, int] = self._jobs.get((pod.namespace, pod.job), {}) if pod.job else {}
            peers = {index[node]: number for node, number in there.items() if node in index}
            return Look(self.snapshot(), self._footprint(pod), peers, self.waiting.waited_s(pod.uid))

    def snapshot(self) -> Snapshot:
        """The cluster as it is now; the same one until something changes of which an answer could depend."""
        with self._lock:
            for uid in self._overlay.expired(self._monotonic()):
                self._remove(uid)
            now_s = self._clock()
            cell = self._settings.grid.cell(now_s)
            if self._table.out_of_sight(cell):
                self._add_up(cell)
            if self._snapshot is None or self._snapshot.first_cell != cell:
                self._outlive(cell)
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

    def _footprint(self, pod: Pod) -> Footprint:
        return self._learned.footprint(pod, self._table.largest)

    def _category(self, pod: Pod) -> int:
        """SpeCon counts what is ours; a job of which nothing is told yet is taken to be learning."""
        if not self.is_ours(pod):
            return NO_CATEGORY
        told = self._learned.category(pod)
        return PROGRESSING if told is None else told

    def _put(self, pod: Pod) -> None:
        """Count a pod where it is bound. Mostly it is what was advised, or seen before: then nothing changes."""
        started_s = self._clock() if math.isnan(pod.started_s) else pod.started_s
        new, old = self._entry(pod, pod.node, started_s), self._entries.get(pod.uid)
        if old is not None and old.counts_as(new):
            self._entries[pod.uid] = new
        else:
            self._remove(pod.uid)
            self._enter(new)

    def _entry(self, pod: Pod, node: str, started_s: float) -> Entry:
        grid = self._settings.grid
        entry = Entry(pod, node, self._footprint(pod), grid.cell(started_s), self._category(pod))
        ended = (end_cell := entry.end_cell) is not None and end_cell <= grid.cell(self._clock())
        return replace(entry, overdue=True) if ended else entry

    def _add(self, pod: Pod, node: str, started_s: float) -> None:
        self._enter(self._entry(pod, node, started_s))

    def _enter(self, entry: Entry) -> None:
        pod, node = entry.pod, entry.node
        if (end_cell := entry.end_cell) is not None:
            self._ends[end_cell].add(pod.uid)
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
        if (end_cell := entry.end_cell) is not None:
            _discard(self._ends, end_cell, uid)
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

    def _outlive(self, cell: int) -> None:  # who is still there after the expected end goes on counting
        for end_cell in [end_cell for end_cell in self._ends if end_cell <= cell]:
            self._weigh_again(list(self._ends[end_cell]))

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
