"""Who is where, and what they will use: fed by watches and by our own advice, looked at through snapshots."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from extender.pods.footprint import Footprint, PodName, ProfileIndex, Use
from extender.pods.pod import Node, Pod, Profile
from extender.pods.reservations import Reservations
from extender.settings import Settings
from extender.view.node_table import NO_CATEGORY, Entry, NodeTable
from extender.view.placed import Placed, Waiting
from extender.view.snapshot import Floats, Snapshot

PROGRESSING = 0


class PodView(NamedTuple):
    """What one call works on: a snapshot, what it holds of the pod asked about, and how long that has been refused."""

    snapshot: Snapshot
    footprint: Footprint
    peers: Mapping[int, int]
    waited_s: float


class Resident(NamedTuple):
    """A pod on a node; `use` (2, cells) is what it will use. What is not `seen` there was only advised to go there."""

    pod: Pod
    use: Floats
    seen: bool


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
        self._table = NodeTable(settings.grid, settings.limits.variance_cells(settings.grid))
        self._table.clear_pods(settings.grid.cell(clock()))
        self._advised: set[str] = set()
        """Pods that were advised to go to a node, and not yet seen on any."""
        self._unseen_deadlines_s: OrderedDict[str, float] = OrderedDict()
        """Of these the ones that no watch has shown waiting: they may be gone without anybody saying so."""
        self._placed = Placed()
        self._profiles = ProfileIndex(settings.sizes)
        self._snapshot: Snapshot | None = None
        self.waiting = Waiting(clock, monotonic)
        self.reservations = Reservations(clock, monotonic)

    # -- what the watches say --------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node came or changed."""
        with self._lock:
            self._snapshot = None
            new = node.name not in self._table.index
            if self._table.put_node(node):
                self._rebuild_sums(self._table.base)
            elif new:
                self._table.count_all(self._table.index[node.name], self._placed.on(node.name))

    def drop_node(self, name: str) -> None:
        """A node is no more; its pods go when the watch says so."""
        with self._lock:
            self._snapshot = None
            self._table.drop_node(name)

    def put_pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        with self._lock:
            self._table.mix.see(pod.uid, pod.requests, pod.gpu)
            if not pod.node and not pod.finished:
                self.waiting.put(pod)
                if self._refused_since_advised(pod):
                    self.withdraw(pod.uid)
                self._unseen_deadlines_s.pop(pod.uid, None)
                return
            self.waiting.drop(pod.uid)
            self._forget_advice(pod.uid)
            if pod.finished:
                self._remove(pod.uid)
            else:
                self._put(pod)

    def drop_pod(self, uid: str) -> None:
        """A pod is no more."""
        with self._lock:
            self._table.mix.forget(uid)
            self.waiting.drop(uid)
            self._forget_advice(uid)
            self._remove(uid)

    def _refused_since_advised(self, pod: Pod) -> bool:
        """Whether the scheduler found no node after all, and says so in a version later than it asked about."""
        if pod.uid not in self._advised:
            return False
        asked = self._placed.entries[pod.uid].pod
        later = pod.version.isdigit() and asked.version.isdigit() and int(pod.version) > int(asked.version)
        return later and pod.refusal not in ("", asked.refusal)

    def put_use(self, use: Mapping[PodName, Use]) -> None:
        """What pods are seen to use now."""
        with self._lock:
            unmeasured = self._placed.unmeasured
            self._recount([unmeasured[name] for name in self._profiles.put_use(use) if name in unmeasured])

    def put_profile(self, profile: Profile) -> None:
        """A PhaseProfile came or changed."""
        self._update_profiles(profile, self._profiles.put)

    def drop_profile(self, profile: Profile) -> None:
        """A PhaseProfile is no more."""
        self._update_profiles(profile, self._profiles.drop)

    def _update_profiles(self, profile: Profile, take: Callable[[Profile], frozenset[str]]) -> None:
        with self._lock:
            self._snapshot = None  # pods that are not placed yet may be judged otherwise
            of_class = self._placed.of_class((profile.namespace, profile.workload)) if profile.workload else ()
            self._recount(take(profile).union(of_class))

    def _recount(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if entry := self._placed.entries.get(uid):
                self._remove(uid)
                self._add(entry.pod, entry.node, (entry.start_cell + 0.5) * self._settings.grid.step_s)

    # -- what we advise --------------------------------------------------------------------------------------------

    def advise(self, pod: Pod, node: str) -> None:
        """A pod is expected to go to a node: it counts there until the watch shows it bound, refused or gone, or until
        it is asked about again. A pod that the watch has not shown yet counts for `hold_s`."""
        with self._lock:
            if pod.uid in self._placed.entries and pod.uid not in self._advised:
                return  # it is bound already; someone asks late
            self._remove(pod.uid)
            self._forget_advice(pod.uid)
            self._advised.add(pod.uid)
            if self.waiting.of(pod.uid) is None:
                self._unseen_deadlines_s[pod.uid] = self._monotonic() + self._settings.hold_s
            self._add(pod, node, self._clock())

    def withdraw(self, uid: str) -> None:
        """What was advised to a pod counts no more: it is asked about again, so it was not placed."""
        with self._lock:
            if uid in self._advised:
                self._forget_advice(uid)
                self._remove(uid)

    def _forget_advice(self, uid: str) -> None:
        self._advised.discard(uid)
        self._unseen_deadlines_s.pop(uid, None)

    def advised_to(self, uid: str) -> str:
        """The node that a pod was advised to go to and was not yet seen on; empty for none."""
        with self._lock:
            return self._placed.entries[uid].node if uid in self._advised else ""

    @property
    def advised(self) -> int:
        """How many placements are advised and not yet seen."""
        return len(self._advised)

    # -- what a call sees ------------------------------------------------------------------------------------------

    def is_ours(self, pod: Pod) -> bool:
        """Whether to judge nodes for it: it says so, or there is a history to judge by."""
        return pod.ours or self._profiles.knows(pod)

    def view_of(self, pod: Pod) -> PodView:
        """The present snapshot, and what it holds of a pod."""
        with self._lock:
            index = self._table.index
            there = self._placed.of_job((pod.namespace, pod.job)).items() if pod.job else ()
            peers = {index[node]: number for node, number in there if node in index}
            return PodView(self.snapshot(), self._footprint(pod), peers, self.waiting.waited_s(pod.uid))

    def snapshot(self) -> Snapshot:
        """The cluster as it is now; the same one until something changes of which an answer could depend."""
        with self._lock:
            while self._unseen_deadlines_s and next(iter(self._unseen_deadlines_s.values())) <= self._monotonic():
                self.withdraw(next(iter(self._unseen_deadlines_s)))
            cell = self._settings.grid.cell(self._clock())
            if self._table.outside_window(cell):
                self._rebuild_sums(cell)
            if self._snapshot is None or self._snapshot.first_cell != cell:
                self._mark_overdue(cell)
                self._snapshot = self._table.snapshot(cell)
            return self._snapshot

    def residents(self, node: str) -> dict[str, Resident]:
        """The pods of a node by UID."""
        with self._lock:
            cell, cells = self._settings.grid.cell(self._clock()), self._settings.grid.cells
            return {
                entry.pod.uid: Resident(entry.pod, entry.use(cell, cells), entry.pod.uid not in self._advised)
                for entry in self._placed.on(node)
            }

    def evictable_on(self, pod: Pod) -> set[str]:
        """The nodes that hold a pod of our scheduler which the pod may push out."""
        with self._lock:
            return self._placed.with_lower_priority(pod.priority) if pod.may_preempt else set()

    @property
    def unmeasured(self) -> Set[PodName]:
        """The pods on nodes of which something is neither learned nor asked for."""
        with self._lock:
            return set(self._placed.unmeasured)

    @property
    def patience_s(self) -> float:
        """For how long a pod is refused at most what others will leave it."""
        return self._settings.limits.patience_s

    # -- keeping the sums ------------------------------------------------------------------------------------------

    def _footprint(self, pod: Pod) -> Footprint:
        return self._profiles.footprint(pod, self._table.largest)

    def _category(self, pod: Pod) -> int:
        """SpeCon counts what is ours; a job of which nothing is told yet is taken to be learning."""
        if not self.is_ours(pod):
            return NO_CATEGORY
        told = self._profiles.category(pod)
        return PROGRESSING if told is None else told

    def _put(self, pod: Pod) -> None:
        """Count a pod where it is bound. Mostly it is what was advised, or seen before: then nothing changes."""
        started_s = self._clock() if math.isnan(pod.started_s) else pod.started_s
        new, old = self._entry(pod, pod.node, started_s), self._placed.entries.get(pod.uid)
        if old is not None and old.counts_as(new):
            self._placed.entries[pod.uid] = new
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
        self._placed.enter(entry, unmeasured=self._profiles.lacks_demand(entry.pod))
        self._count(entry, 1)

    def _remove(self, uid: str) -> None:
        if (entry := self._placed.remove(uid)) is not None:
            self._count(entry, -1)

    def _mark_overdue(self, cell: int) -> None:  # who is still there after the expected end goes on counting
        if ended := self._placed.ended_by(cell):
            self._recount(ended)

    def _count(self, entry: Entry, sign: int) -> None:
        self._snapshot = None
        place = self._table.index.get(entry.node)
        if place is not None:
            self._table.count(place, entry, sign)

    def _rebuild_sums(self, cell: int) -> None:
        """All sums anew; with fifty thousand pods a tenth of a second, once in the grid's horizon."""
        self._snapshot = None
        self._table.clear_pods(cell)
        for node in self._placed.nodes:
            place = self._table.index.get(node)
            if place is not None:
                self._table.count_all(place, self._placed.on(node))
