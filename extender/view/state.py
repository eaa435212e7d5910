"""The state of the cluster: pods on nodes and their expected use, from watches and our own advice."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from extender.pods.curves import LATER
from extender.pods.footprint import Footprint, PodName, ProfileIndex, Use
from extender.pods.pod import Node, Pod, Profile, is_ours
from extender.pods.reservations import Reservations
from extender.settings import Settings
from extender.view.devices import Floats
from extender.view.node_table import NO_CATEGORY, Entry, NodeTable
from extender.view.placed import FailedNodes, Placed, Waiting
from extender.view.snapshot import Snapshot
from recommender.base.records import MEMORY
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.objects.quantities import Pair

PROGRESSING = 0


class Resident(NamedTuple):
    """A pod on a node, and what its eviction `frees`, see `Entry.frees`; if not `seen`, only advised there."""

    pod: Pod
    frees: Floats
    seen: bool


class ClusterState:
    """The state of the cluster. Thread-safe; methods take microseconds, except for building a new snapshot."""

    def __init__(self, settings: Settings, clock: WallClock, monotonic: MonotonicClock) -> None:
        self._settings, self.limits, self._clock, self._monotonic = settings, settings.limits, clock, monotonic
        self._lock = threading.RLock()
        limits, grid = self.limits, settings.grid
        self._table = NodeTable(grid, 0 if limits.cpu_overload is None else grid.cells_of(limits.cycle_s))
        self._advised: set[str] = set()  # pods with advice that are not seen on a node yet
        # expiry of advice for pods that the watch has never shown, as their deletion would go unnoticed
        self._unseen_deadlines_s: OrderedDict[str, float] = OrderedDict()
        self._placed = Placed()
        self._profiles = ProfileIndex(settings.sizes)
        self._snapshot: Snapshot | None = None
        self._marked_cell = grid.cell(clock())
        self.waiting = Waiting(clock, monotonic)
        self._failed_nodes = FailedNodes(monotonic)
        self.reservations = Reservations(clock, monotonic)

    @property
    def _cell(self) -> int:
        return self._settings.grid.cell(self._clock())

    def put_node(self, node: Node) -> None:
        with self._lock:
            self._snapshot = None
            former, largest = self._table.node(node.name), self._table.largest
            if self._table.put_node(node):
                self._renew_sums(list(self._table.index), self._cell)
            elif former is None:
                self._renew_sums([node.name], self._cell)
            if former is not None and former.gpus != node.gpus:  # as while its device plugin restarts
                self._recount([entry.pod.uid for entry in self._placed.on(node.name) if entry.pod.gpu.number])
            self._recount_if_changed(largest)

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods stay until the watch removes them."""
        with self._lock:
            self._snapshot = None
            largest = self._table.largest
            for entry in self._placed.on(name):
                self._count(entry, -1)
            self._table.drop_node(name)
            self._recount_if_changed(largest)

    def _recount_if_changed(self, largest: Pair) -> None:
        """Count pods again whose learned demand the largest node, if it has changed, can now hold or no longer can."""
        if self._table.largest == largest:
            return
        entries = self._placed.entries.items()
        self._recount([uid for uid, entry in entries if self._footprint(entry.pod).source != entry.footprint.source])

    def put_pod(self, pod: Pod) -> None:
        with self._lock:
            self._table.mix.see(pod.uid, pod.requests, pod.gpu)
            if not pod.node and not pod.finished:
                self.waiting.put(pod)
                if self._placed_otherwise_since_advised(pod):
                    self.came_back(pod)
                self._unseen_deadlines_s.pop(pod.uid, None)
                self.hold_nominated(pod)
                return
            if self.waiting.of(pod.uid) is not None:
                self._failed_nodes.bound(pod)
            self.waiting.drop(pod.uid)
            self._forget_advice(pod.uid)
            if pod.finished:
                self._remove(pod.uid)
            else:
                self._put(pod)

    def drop_pod(self, uid: str) -> None:
        with self._lock:
            self._table.mix.forget(uid)
            self.waiting.drop(uid)
            self._forget_advice(uid)
            self._remove(uid)

    def _placed_otherwise_since_advised(self, pod: Pod) -> bool:
        """Whether a newer version of the pod says that the scheduler found no node after our advice, or another."""
        if pod.uid not in self._advised:
            return False
        asked = self._placed.entries[pod.uid].pod
        later = pod.version.isdecimal() and asked.version.isdecimal() and int(pod.version) > int(asked.version)
        return later and (pod.refusal not in ("", asked.refusal) or pod.nominated_node != asked.nominated_node)

    def put_use(self, use: Mapping[PodName, Use]) -> None:
        with self._lock:
            without_demand = self._placed.without_demand
            self._recount([without_demand[name] for name in self._profiles.put_use(use) if name in without_demand])

    def put_profile(self, profile: Profile) -> None:
        self._update_profiles(profile, self._profiles.put)

    def drop_profile(self, profile: Profile) -> None:
        self._update_profiles(profile, self._profiles.drop)

    def _update_profiles(self, profile: Profile, take: Callable[[Profile], Set[str]]) -> None:
        with self._lock:
            self._snapshot = None  # footprints of pending pods may have changed
            of_class = self._placed.of_class((profile.namespace, profile.workload)) if profile.workload else ()
            self._recount({*take(profile), *of_class})

    def _recount(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if entry := self._placed.entries.get(uid):
                self._remove(uid)
                self._add(entry.pod, entry.node, (entry.start_cell + 0.5) * self._settings.grid.step_s)

    def advise(self, pod: Pod, node: str) -> None:
        """Count a pod on the advised node until the watch shows it bound, refused or deleted, or the scheduler asks
        again; for `hold_s` if the watch has not shown the pod yet."""
        with self._lock:
            if pod.uid in self._placed.entries and pod.uid not in self._advised:
                return  # already bound
            self._remove(pod.uid)
            self._forget_advice(pod.uid)
            self._advised.add(pod.uid)
            if self.waiting.of(pod.uid) is None:
                self._unseen_deadlines_s[pod.uid] = self._monotonic() + self._settings.hold_s
            self._add(pod, node, self._clock())

    def came_back(self, pod: Pod) -> None:
        """Drop the advice for a pod that was not placed. The node is remembered if the pod's condition says that the
        reason is not ours, and if it does not wait there for the end of those that it preempts."""
        with self._lock:
            node = self.advised_to(pod.uid)
            if node and pod.refusal and not is_ours(pod.refusal) and pod.nominated_node != node:
                self._failed_nodes.put(pod, node)
            self.withdraw(pod.uid)

    def failed_nodes(self, pod: Pod) -> Mapping[str, float]:
        """Node -> when a pod of the same owner last could not be bound there, in the last minutes."""
        with self._lock:
            return self._failed_nodes.of(pod)

    def withdraw(self, uid: str) -> None:
        """Drop the advice for a pod."""
        with self._lock:
            if uid in self._advised:
                self._forget_advice(uid)
                self._remove(uid)

    def hold_nominated(self, pod: Pod) -> None:
        """Count a pod on the node that its preemption frees, or others could take the memory as its victims end; but
        not by nominations of other schedulers, which may be forgotten, and which our scheduler ignores, too."""
        if pod.nominated_node and pod.of_our_scheduler and pod.uid not in self._advised:
            self.advise(pod, pod.nominated_node)

    def _forget_advice(self, uid: str) -> None:
        self._advised.discard(uid)
        self._unseen_deadlines_s.pop(uid, None)

    def advised_to(self, uid: str) -> str:
        """The advised node of a pod that is not seen there yet; empty for none."""
        with self._lock:
            return self._placed.entries[uid].node if uid in self._advised else ""

    @property
    def advised(self) -> int:
        return len(self._advised)

    def is_ours(self, pod: Pod) -> bool:
        """Whether to filter and score nodes for a pod: it is ours, or has a history."""
        return pod.ours or self._profiles.knows(pod)

    def view_of(self, pod: Pod) -> tuple[Snapshot, Footprint, Mapping[str, int], float]:
        """The present snapshot; and the pod's footprint, peers by node, and seconds since its refusal."""
        with self._lock:
            peers = dict(self._placed.of_job((pod.namespace, pod.job))) if pod.job else {}
            return self.snapshot(), self._footprint(pod), peers, self.waiting.waited_s(pod.uid)

    def snapshot(self) -> Snapshot:
        """The present snapshot; the same object until something relevant changes."""
        with self._lock:
            while self._unseen_deadlines_s and next(iter(self._unseen_deadlines_s.values())) <= self._monotonic():
                self.withdraw(next(iter(self._unseen_deadlines_s)))
            cell = self._cell
            if self._snapshot is None or self._snapshot.first_cell != cell:
                self._renew_sums(self._table.outdated(cell), cell)
                self._mark_overdue(cell)
                self._snapshot = self._table.snapshot(cell)
            return self._snapshot

    def has_soft_taint(self, node: str) -> bool:
        """Whether pods avoid a node where possible, by a taint."""
        with self._lock:
            known = self._table.node(node)
            return known is not None and known.soft_taint

    def residents(self, node: str) -> dict[str, Resident]:
        with self._lock:
            cell, cells = self._cell, self._settings.grid.cells
            return {
                entry.pod.uid: Resident(entry.pod, entry.frees(cell, cells), entry.pod.uid not in self._advised)
                for entry in self._placed.on(node)
            }

    def memory_beside(self, namespace: str, first_cell: int, nodes: Sequence[str]) -> Floats:
        """(cells + `LATER`, nodes): bytes forecast for the pods on each node, without guesses; for those of other
        namespaces no more than they request or their owners declared."""
        with self._lock:
            cells = self._settings.grid.cells
            found = np.zeros((cells + LATER, len(nodes)))
            for number, node in enumerate(nodes):
                for entry in self._placed.on(node):
                    most = math.inf if entry.pod.namespace == namespace else self._profiles.granted_bytes(entry.pod)
                    found[:, number] += np.minimum(entry.frees(first_cell, cells)[MEMORY], most)
            return found

    def pods_on(self, node: str) -> list[Pod]:
        """The pods on a node, and those advised to go there."""
        with self._lock:
            return [entry.pod for entry in self._placed.on(node)]

    def evictable_on(self, pod: Pod) -> set[str]:
        """The nodes with pods of our scheduler that a pod may preempt."""
        with self._lock:
            return self._placed.with_lower_priority(pod.priority) if pod.may_preempt else set()

    @property
    def without_demand(self) -> Set[PodName]:
        with self._lock:
            return set(self._placed.without_demand)

    def _footprint(self, pod: Pod) -> Footprint:
        return self._profiles.footprint(pod, self._table.largest)

    def _category(self, pod: Pod) -> int:
        """The category that SpeCon counts: none if the pod is not ours, progressing if it is unknown."""
        if not self.is_ours(pod):
            return NO_CATEGORY
        category = self._profiles.category(pod)
        return PROGRESSING if category is None else category

    def _put(self, pod: Pod) -> None:
        """Count a pod on its node; no sum changes if it was already counted there the same way, as is usual."""
        started_s = self._clock() if math.isnan(pod.started_s) else pod.started_s
        new, old = self._entry(pod, pod.node, started_s), self._placed.entries.get(pod.uid)
        if old is not None and old.counts_as(new):
            self._placed.entries[pod.uid] = new
        else:
            self._remove(pod.uid)
            self._enter(new)

    def _entry(self, pod: Pod, node: str, started_s: float) -> Entry:
        footprint, start_cell = self._footprint(pod), self._settings.grid.cell(started_s)
        overdue = footprint.curve.ended(self._cell - start_cell)
        return Entry(pod, node, footprint, start_cell, self._category(pod), overdue)

    def _add(self, pod: Pod, node: str, started_s: float) -> None:
        self._enter(self._entry(pod, node, started_s))

    def _enter(self, entry: Entry) -> None:
        self._placed.enter(entry, without_demand=self._profiles.lacks_demand(entry.pod, entry.footprint))
        self._count(entry, 1)

    def _remove(self, uid: str) -> None:
        if (entry := self._placed.remove(uid)) is not None:
            self._count(entry, -1)

    def _mark_overdue(self, cell: int) -> None:
        """Recount pods that should have ended by now, and those that should not, after the clock was set back."""
        if cell == self._marked_cell:
            return
        entries, self._marked_cell = self._placed.entries.items(), cell
        self._recount([uid for uid, e in entries if e.overdue != e.footprint.curve.ended(cell - e.start_cell)])

    def _count(self, entry: Entry, sign: int) -> None:
        self._snapshot = None
        place = self._table.index.get(entry.node)
        if place is not None:
            self._table.count(place, entry, sign)

    def _renew_sums(self, nodes: Sequence[str], cell: int) -> None:
        """Sum up all pods of these nodes anew. That of all nodes takes half a second with fifty thousand pods."""
        for node in nodes:
            self._table.renew(node, cell, self._placed.on(node))
