"""The gang controller: a loop that reconciles gated pods with free capacity.

All decisions are persisted in the reservations and on the pods. The state kept here only avoids needless work (gates
removed that the watch does not show yet, back-off after failed writes, events already written), and says whose turn it
is.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from extender.gangs.decide import ADMITTED, WAITING, Note, Timeouts, decide
from extender.gangs.gang import gangs_of
from extender.gangs.ledger import (
    Admitter,
    Ledger,
    hand_over_reservations,
    replacement_members,
    still_needed,
    with_kept,
    with_reservations,
)
from extender.gangs.member import COMPONENT, GATE, Member, NodeCapacity, read_member, read_node_capacity
from extender.gangs.sizes import JobSizes
from extender.gangs.turns import Turns
from extender.pods.event import Events
from extender.watches import PeriodicTask, Watches
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, BadCredentials, Conflict, Forbidden, NotFound
from recommender.cluster.paths import NODES, PODS, path_of
from recommender.cluster.watching.reflector import Reflector

log = logging.getLogger(__name__)

MIN_PAUSE_FACTOR = 3.0
"""Shortest pause between runs, as a multiple of the CPU time of the last one. Its requests, thousands for a large gang,
mostly wait for our rate limit or the server."""


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    # min_pause_s, period_s: shortest and longest time between two runs; changes of pods and nodes trigger one
    min_pause_s: float = 0.1
    period_s: float = 5.0
    watch_lag_s: float = 10.0  # how long to wait for the watch to show what we, or a former leader, wrote
    # repeat_event_s, changed_event_s: how long until an event is repeated with the same text, and with another text
    repeat_event_s: float = 600.0
    changed_event_s: float = 10.0
    pods_with_events: int = 8  # events are written on at most so many pods of a gang
    max_events: int = 50  # limit per run; the rest follows in later runs
    # size_ttl_s, no_size_ttl_s: how long the size read from a job is cached, and how long the lack of one
    size_ttl_s: float = 300.0
    no_size_ttl_s: float = 30.0
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True, slots=True)
class _Failure:
    backoff: Backoff
    until_s: float
    why: str


class Controller:
    """Admits gangs on a thread of its own, while it leads, with the reservations in `namespace`."""

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        controller_options: ControllerOptions | None = None,
        *,
        namespace: str = "kube-system",
        clock: WallClock = time.time,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._api, self._leads, self._options = api, leads, controller_options or ControllerOptions()
        self._clock, self._monotonic = clock, monotonic
        self._jitter = random.Random()  # noqa: S311
        # Changes come in bursts, and in a large cluster the controller must not be busy all the time.
        self.loop = PeriodicTask(
            "gangs",
            self._reconcile_if_leading,
            max_pause_s=lambda: self._options.period_s,
            min_pause_s=lambda: max(self._options.min_pause_s, MIN_PAUSE_FACTOR * self._last_run_cpu_s),
        )
        self._pods = Reflector(api, path_of(PODS), read_member, on_change=lambda *_: self.loop.wake())
        self._nodes = Reflector(api, path_of(NODES), read_node_capacity, on_change=lambda *_: self.loop.wake())
        self.watches = Watches(self._pods, self._nodes)
        self._events = Events(api, COMPONENT, clock)
        self.ledger = Ledger(api, namespace, clock, monotonic)  # the reservations; other writers must hold its lock
        self._admitter = Admitter(api, self.ledger, leads, self._gate_removed)
        self._gates_removed: dict[str, float] = {}
        self._failures: dict[tuple[str, str], _Failure] = {}
        self._events_written: dict[tuple[str, str], tuple[str, float]] = {}
        self._sizes = JobSizes(api, self._options.size_ttl_s, self._options.no_size_ttl_s, monotonic)
        self._turns = Turns()
        self._last_run_cpu_s = 0.0
        self.admitted = 0  # gangs admitted since the start
        self.waiting = 0  # gated gangs at the last run

    def not_ready(self) -> str:
        """Why it could not act even as leader; empty if it could."""
        return self.watches.waiting_for or self.ledger.problem

    def cluster(self) -> tuple[Collection[Member], Collection[NodeCapacity]] | None:
        """All pods and nodes as last watched; None until they are listed and while a watch has no contact."""
        known = self.watches.synced and not self.watches.failing
        return (self._pods.snapshot().values(), self._nodes.snapshot().values()) if known else None

    def refused(self) -> Iterable[Member]:
        """Pods that wait because the extender refused nodes."""
        return [pod for pod in self._pods.snapshot().values() if pod.refused]

    def _reconcile_if_leading(self) -> None:
        if not self._leads():
            self.waiting, self.ledger.problem = 0, ""  # the leader reports them; we may be able to lead again
        elif self.watches.synced:
            self.reconcile()

    def reconcile(self) -> None:
        """Decide once, act, then write events, which nothing waits for."""
        if self._watch_is_behind(self._pods.snapshot().values()):
            return
        began_s = time.thread_time()
        try:
            self._sizes.begin_run()
            with self.ledger.lock:
                notes = self._reconcile(self._pods.snapshot().values())
        finally:
            self._last_run_cpu_s = time.thread_time() - began_s
        self._write_events(notes)
        self._prune(notes)

    def _reconcile(self, pods: Collection[Member]) -> Sequence[Note]:
        """Decide and act; the notes to write as events, the most urgent first."""
        now_s, timeouts = self._clock(), self._options.timeouts
        try:
            stored = self.ledger.read()
        except (NotFound, Forbidden) as error:  # until somebody mends it
            return self._reconcile_without_reservations(pods, f"nodes cannot be reserved: {error}")
        if self._watch_is_behind_another_controller(pods):
            return ()
        reservations = hand_over_reservations(stored, pods, now_s, math.ceil(timeouts.bind_within_s))
        self._admitter.write(reservations)
        with_reservation = list(with_reservations(pods, reservations))
        members = [*with_reservation, *replacement_members(reservations, now_s)]
        nodes = self._nodes.snapshot().values()
        decision = decide(members, nodes, self._sizes.of, now_s, timeouts, self._backed_off(), self._turns)
        self._turns = decision.turns
        waiting = [note for note in decision.notes if note.reason != ADMITTED]
        self.waiting = sum(1 for note in waiting if note.gang.gated)
        needed = still_needed(reservations, with_reservation, decision.stale, now_s)
        if (kept := decision.kept) is not None:
            needed = with_kept(needed, kept.gang, kept.nodes, now_s, timeouts.bind_within_s)
        self._admitter.write(needed)
        self._ungate(decision.native)
        if (gang := decision.admit) is None:
            return waiting
        began_s, hold_s = self._clock(), timeouts.bind_within_s  # gates of others may have taken long
        admit = partial(self._admitter.admit, gang, decision.reserved_nodes, began_s, hold_s)
        if not self._attempt(gang.key, admit):
            return [Note(gang, WAITING, self._failures[gang.key].why), *waiting]
        self.admitted += 1
        return [note for note in decision.notes if note.reason == ADMITTED] + waiting

    def _reconcile_without_reservations(self, pods: Collection[Member], why: str) -> Sequence[Note]:
        """Admit no gang, and say why; native PodGroups need no reservation."""
        log.warning("no gang is admitted: %s", why)
        held = {gang.key: why for gang in gangs_of(pods, self._sizes.of)}
        nodes, now_s = self._nodes.snapshot().values(), self._clock()
        decision = decide(pods, nodes, self._sizes.of, now_s, self._options.timeouts, held)
        self.waiting = sum(1 for note in decision.notes if note.gang.gated)
        self._ungate(decision.native)
        return decision.notes

    def _watch_is_behind(self, pods: Any) -> bool:
        """Whether the watch does not show all removed gates yet: the same gang would be admitted twice."""
        if not self._gates_removed:
            return False
        now_s, removed = self._monotonic(), self._gates_removed
        gated = {pod.uid for pod in pods if pod.uid in removed and GATE in pod.gates}
        self._gates_removed = {uid: end_s for uid, end_s in removed.items() if uid in gated and now_s < end_s}
        return bool(self._gates_removed)

    def _watch_is_behind_another_controller(self, pods: Collection[Member]) -> bool:
        """Whether the watch does not show all pods yet for which another controller has reserved nodes: their gang
        would lose the nodes, to pods or gangs that do not know of it."""
        found = self.ledger.found_within(self._options.watch_lag_s)
        reserved = {uid for each in found if not each.needs for uid in each.nodes}  # a moved pod is deleted
        return bool(reserved) and not reserved <= {pod.uid for pod in pods}

    def _ungate(self, native: Iterable[Member]) -> None:
        """Remove our gate from pods of native PodGroups."""
        backed_off = self._backed_off()
        for pod in native:
            if (key := (pod.key.namespace, f"native={pod.key.name}")) not in backed_off:
                self._attempt(key, partial(self._admitter.remove_gate, pod))

    def _backed_off(self) -> dict[tuple[str, str], str]:
        return {key: each.why for key, each in self._failures.items() if self._monotonic() < each.until_s}

    def _attempt(self, key: tuple[str, str], do: Callable[[], None]) -> bool:
        """Whether `do` succeeded; if not, back off from this gang or pod. `Conflict` if another controller has written
        reservations: then this was decided without them, and the gang may have some."""
        try:
            do()
        except Conflict:
            raise
        except (ApiError, BadCredentials) as error:
            backoff = self._failures[key].backoff if key in self._failures else Backoff(1.0, 60.0, self._jitter)
            wait_s, why = backoff.next_s(), f"admission failed part-way: {error}"
            self._failures[key] = _Failure(backoff, self._monotonic() + wait_s, why)
            log.warning("%s/%s: %s; retry in %.0f s", *key, why, wait_s)
            return False
        self._failures.pop(key, None)
        return True

    def _gate_removed(self, member: Member) -> None:
        self._gates_removed[member.uid] = self._monotonic() + self._options.watch_lag_s

    def _write_events(self, notes: Sequence[Note]) -> None:
        """Write events on some pods of each gang, if the text is new or due to be repeated; the longest due first."""
        left = self._options.max_events
        for note in sorted(notes, key=lambda note: self._last_event(note)[1]):
            pods = (note.gang.gated or note.gang.members)[: self._options.pods_with_events]
            (text, written_s), now_s = self._last_event(note), self._monotonic()
            pause_s = self._options.repeat_event_s if text == note.text else self._options.changed_event_s
            if now_s - written_s < pause_s:
                continue
            if (left := left - len(pods)) < 0:
                return
            self._events_written[_event_key(note)] = (note.text, now_s)
            if note.reason == ADMITTED:
                log.info("%s: %s", note.gang, note.message)
            warning, text = note.reason not in (ADMITTED, WAITING), f"gang {note.gang.short_name}: {note.message}"
            for pod in pods:
                if not self._events.write(pod.key, pod.uid, note.reason, text, warning=warning):
                    break

    def _last_event(self, note: Note) -> tuple[str, float]:
        """Text and time of the last event for this reason."""
        return self._events_written.get(_event_key(note), ("", -math.inf))

    def _prune(self, notes: Sequence[Note]) -> None:
        """Drop expired state, but keep the events and the back-off of gangs that are still waiting."""
        noted, now_s, repeat_s = {note.gang.key for note in notes}, self._monotonic(), self._options.repeat_event_s
        written, texts = self._events_written, {_event_key(note) for note in notes}
        self._events_written = {
            key: each for key, each in written.items() if key in texts or now_s - each[1] < repeat_s
        }
        self._failures = {key: each for key, each in self._failures.items() if key in noted or each.until_s > now_s}


def _event_key(note: Note) -> tuple[str, str]:
    return note.gang.members[0].uid, note.reason
