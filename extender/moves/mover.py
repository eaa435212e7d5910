"""Periodically plans moves of training jobs, reports them as events and, if allowed, carries them out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from extender.gangs.ledger import Ledger, replacement_members, replacement_uid, with_reservations
from extender.gangs.member import COMPONENT, Member, NodeCapacity
from extender.moves.board import Board, PlannedMove, Planner
from extender.moves.gate import LATE, MOVED, MOVING, PLANNED, REFUSED, MoveEvent, MoveGate, MoveLimits
from extender.moves.store import MoveStore
from extender.pods.event import Events
from extender.watches import PeriodicTask
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials

log = logging.getLogger(__name__)

Seen = tuple[Collection[Member], Collection[NodeCapacity]]


PERIOD_S, ADVANCE_S = 30.0, 2.0
"""Between plans: SpeCon's evaluation interval, within which categories do not change; and between checks of moves in
progress."""

MAX_EVENTS = 50  # limit per plan; the rest follows with the next


class Mover:
    """Plans and carries out moves on a thread of its own, while it leads; only plans them without `limits`."""

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        cluster: Callable[[], Seen | None],
        ledger: Ledger,
        planner: Planner,
        limits: MoveLimits | None = None,
        period_s: float = PERIOD_S,
        clock: WallClock = time.time,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._leads, self._cluster, self._clock, self._monotonic = leads, cluster, clock, monotonic
        self._period_s, self._ledger = period_s, ledger
        self._store = MoveStore(api)
        self._gate = MoveGate(api, ledger, leads, self._store, limits, clock, monotonic) if limits else None
        self._planner, self._next_plan_s = planner, -math.inf
        self._texts_written: dict[str, str] = {}
        self._events = Events(api, COMPONENT, clock)
        self.loop = PeriodicTask("moves", self._reconcile_if_leading, lambda: ADVANCE_S)
        self.watches = self._store.watches
        self.planned = 0  # moves in the last plan
        self.refused = 0  # refused moves in the last plan
        self.counts = dict.fromkeys((MOVING, MOVED, LATE), 0)  # moves by event reason, since the start

    def _reconcile_if_leading(self) -> None:
        if not self._leads():
            self.planned = self.refused = 0  # the leader reports them
        elif self.watches.synced and not self.watches.failing:
            self.reconcile()

    def reconcile(self) -> None:
        """Continue moves in progress; if it is time, plan and start at most one move."""
        with self._ledger.lock:  # before anything is looked at: it is held for minutes while a large gang is admitted
            seen = self._cluster()
            if seen is None:
                return
            if self._gate is not None:
                for event in self._gate.advance(self._store.jobs().values(), seen[0], partial(self._fits, *seen)):
                    self._write_event(event)
            if self._monotonic() >= self._next_plan_s:
                self._next_plan_s = self._monotonic() + self._period_s
                self._plan(*seen)

    def _fits(self, pods: Collection[Member], nodes: Collection[NodeCapacity], pod: Member, node: str) -> bool:
        """Whether what replaces a pod that is being moved still fits on its new node: others there may have grown."""
        reservations, own = self._ledger.cached(), replacement_uid(pod.uid)
        placeholders = (each for each in replacement_members(reservations, self._clock()) if each.uid != own)
        board = Board([*with_reservations(pods, reservations), *placeholders], nodes)
        place = board.node_arrays.index.get(node)
        return place is not None and bool(board.free.pods_that_fit(self._store.known().replacement_of(pod))[place])

    def _plan(self, pods: Collection[Member], nodes: Collection[NodeCapacity]) -> None:
        now_s = self._clock()
        reservations = self._ledger.read()
        members = [*with_reservations(pods, reservations), *replacement_members(reservations, now_s)]
        inputs = self._store.known()
        moving = {(each.namespace, uid) for each in reservations if each.needs for uid in each.nodes}
        categories = {  # a pod that is being moved counts where its replacement will be
            (namespace, replacement_uid(uid) if (namespace, uid) in moving else uid): category
            for (namespace, uid), category in inputs.categories.items()
        }
        inputs = replace(inputs, categories=categories)
        late_classes = self._store.late_classes()
        plans, chosen, gate = [*self._planner.plan(members, nodes, inputs, now_s)], None, self._gate
        if gate is not None:
            refusals = [gate.refusal(plan, inputs.jobs, late_classes) if plan.node else "" for plan in plans]
            pairs = zip(plans, refusals, strict=True)
            plans = [plan._replace(node="", text=refusal) if refusal else plan for plan, refusal in pairs]
            may_start = gate.capacity_check()
            # one at a time: each changes what is best for the others
            chosen = next((plan for plan in plans if plan.node and may_start(plan.pod.key.namespace)), None)
            if chosen is not None and self._leads():
                gate.reserve(chosen, inputs.replacement_of(chosen.pod))
        self.planned = sum(1 for plan in plans if plan.node)
        self.refused = len(plans) - self.planned
        self._write_new_events([_event_of(plan) for plan in plans if plan is not chosen])
        job = None if chosen is None else inputs.job_of(chosen.pod)
        if gate is not None and chosen is not None and job is not None:
            self._next_plan_s = self._monotonic()
            for event in gate.start(chosen, job):
                self._write_event(event)

    def _write_new_events(self, plans: Collection[MoveEvent]) -> None:
        """Write the events whose text is new; moves no longer planned are forgotten."""
        written = self._texts_written
        self._texts_written = {each.uid: written[each.uid] for each in plans if each.uid in written}
        new = [each for each in plans if self._texts_written.get(each.uid) != each.text]
        for event in new[:MAX_EVENTS]:
            if not self._write_event(event):
                break
            self._texts_written[event.uid] = event.text

    def _write_event(self, event: MoveEvent) -> bool:
        """Write an event and annotate the pod's PhaseProfile; False if the event could not be written."""
        log.info("%s: %s", event.pod, event.text)
        if event.reason in self.counts:
            self.counts[event.reason] += 1
        if not self._events.write(event.pod, event.uid, event.reason, event.text, warning=event.warning):
            return False
        try:
            self._store.annotate_move(event.pod.namespace, event.uid, f"{event.pod.name} {event.text}")
        except (ApiError, BadCredentials) as error:
            log.warning("the PhaseProfile of %s could not be annotated: %s", event.pod, error)
        return True


def _event_of(plan: PlannedMove) -> MoveEvent:
    pod = plan.pod
    if plan.node:
        return MoveEvent(pod.key, pod.uid, PLANNED, f"would be moved from {pod.node} to {plan.node}: {plan.text}")
    return MoveEvent(pod.key, pod.uid, REFUSED, f"is not moved from {pod.node}: {plan.text}")
