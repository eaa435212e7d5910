"""Looks at the cluster now and then, plans moves of training jobs, tells of them, and has them made where it may."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.gangs.ledger import Ledger, replacement_uid, seats, with_reservations
from extender.gangs.member import COMPONENT, Member, NodeCapacity
from extender.moves.board import PlannedMove, Planner
from extender.moves.gate import LATE, MOVED, MOVING, PLANNED, REFUSED, MoveEvent, MoveGate, MoveLimits
from extender.moves.job import MovingJob
from extender.moves.store import MoveStore
from extender.pods.event import Events
from extender.pods.reservations import Reservation
from extender.watches import PeriodicTask
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.cluster.objects.metadata import ObjectKey
from recommender.growth import Category

log = logging.getLogger(__name__)

Seen = tuple[Collection[Member], Collection[NodeCapacity]]


@dataclass(frozen=True, slots=True)
class MoverOptions:
    """How often.

    Attributes
    ----------
    period_s
        Between two plans: SpeCon's interval of judging, within which categories do not change.
    follow_s
        Between two looks at what is on its way.
    most_events
        Of one plan; the rest is told with the next.
    """

    period_s: float = 30.0
    advance_s: float = 2.0
    max_events: int = 50


class Mover:
    """Acts while it leads, on a thread of its own.

    Parameters
    ----------
    cluster
        All pods and nodes; None while they are not known.
    ledger
        Where seats are reserved.
    planner
        The policy.
    limits
        Of what is moved; None to plan alone.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        cluster: Callable[[], Seen | None],
        ledger: Ledger,
        planner: Planner,
        limits: MoveLimits | None = None,
        mover_options: MoverOptions | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leads, self._cluster, self._clock = leads, cluster, clock
        self._monotonic = monotonic
        self._options, self._ledger = mover_options or MoverOptions(), ledger
        self._store = MoveStore(api)
        self._gate = MoveGate(api, ledger, leads, self._store, limits, clock) if limits else None
        self._planner, self._next_plan_s = planner, -math.inf
        self._texts_written: dict[str, str] = {}
        self._events = Events(api, COMPONENT, clock)
        self._loop = PeriodicTask("moves", self._reconcile_if_leading, lambda: self._options.advance_s)
        self.watches = self._store.watches
        self.planned = 0
        """Moves planned when last looked."""
        self.refused = 0
        """Moves that would have been made and that are not planned, when last looked."""
        self.counts = dict.fromkeys((MOVING, MOVED, LATE), 0)
        """Moves by what was said of them, since the start."""

    def start(self) -> None:
        """Begin to watch and to plan; returns at once."""
        self.watches.start()
        self._loop.start()

    def stop(self) -> None:
        """Plan no more; what is on its way is left to whoever comes next."""
        self._loop.stop()
        self.watches.stop()

    def _reconcile_if_leading(self) -> None:
        if self.watches.synced and not self.watches.failing and self._leads():
            self.reconcile()

    def reconcile(self) -> None:
        """Go on with what is on its way; plan, when it is time to, and begin one move at most."""
        seen = self._cluster()
        if seen is None:
            return
        if self._gate is not None:
            for news in self._gate.advance(self._store.jobs().values(), seen[0]):
                self._write_event(news)
        if self._monotonic() >= self._next_plan_s:
            self._next_plan_s = self._monotonic() + self._options.period_s
            self._plan(*seen)

    def _plan(self, pods: Collection[Member], places: Collection[NodeCapacity]) -> None:
        now_s = self._clock()
        with self._ledger.lock:
            reservations = self._ledger.read()
            members = [*with_reservations(pods, reservations), *seats(reservations, now_s)]
            known = self._store.known()
            known = replace(known, categories=keyed_by_replacement(known.categories, reservations))
            late_classes = self._store.late_classes()
            planned = self._planner.plan(members, places, known, now_s)
            plans = [self._with_refusal(plan, known.jobs, late_classes) for plan in planned]
            chosen = self._next_move(plans)
            if chosen is not None and self._gate is not None and self._leads():
                self._gate.reserve(chosen)
        self.planned = sum(1 for plan in plans if plan.node)
        self.refused = len(plans) - self.planned
        self._write_new_events([_event_of(plan) for plan in plans if plan is not chosen])
        if chosen is not None and chosen.pod.owner is not None and self._gate is not None:
            self._next_plan_s = self._monotonic()
            for news in self._gate.start(chosen, known.jobs[chosen.pod.owner.uid]):
                self._write_event(news)

    def _with_refusal(
        self, plan: PlannedMove, jobs: Mapping[str, MovingJob], late_classes: Collection[ObjectKey]
    ) -> PlannedMove:
        """A plan, refused where it would not be carried out."""
        if self._gate is None or not plan.node:
            return plan
        refusal = self._gate.refusal(plan, jobs, late_classes)
        return plan._replace(node="", text=refusal) if refusal else plan

    def _next_move(self, plans: Iterable[PlannedMove]) -> PlannedMove | None:
        """The next to be moved. One at a time: each move changes what is best for the others."""
        if self._gate is None:
            return None
        may_start = self._gate.capacity_check()
        return next((plan for plan in plans if plan.node and may_start(plan.pod.key.namespace)), None)

    def _write_new_events(self, plans: Collection[MoveEvent]) -> None:
        """Those that were not told with these words before; what is planned no more may be told again."""
        self._texts_written = {
            each.uid: self._texts_written[each.uid] for each in plans if each.uid in self._texts_written
        }
        new = [each for each in plans if self._texts_written.get(each.uid) != each.text]
        for news in new[: self._options.max_events]:
            if not self._write_event(news):
                break
            self._texts_written[news.uid] = news.text

    def _write_event(self, news: MoveEvent) -> bool:
        """By an event, and on the pod's profile, where people look; False when the event could not be written."""
        log.info("%s: %s", news.pod, news.text)
        if news.reason in self.counts:
            self.counts[news.reason] += 1
        if not self._events.write(news.pod, news.uid, news.reason, news.text, warning=news.warning):
            return False
        try:
            self._store.annotate_move(news.uid, f"{news.pod.name} {news.text}")
        except (ApiError, BadCredentials) as error:
            log.warning("the profile of %s does not tell: %s", news.pod, error)
        return True


def keyed_by_replacement(
    categories: Mapping[str, Category], reservations: Iterable[Reservation]
) -> dict[str, Category]:
    """By pod UID, those of jobs on their way where these will be: else the next move would go by what is over."""
    moving = {uid for each in reservations if each.needs for uid in each.nodes}
    return {replacement_uid(uid) if uid in moving else uid: category for uid, category in categories.items()}


def _event_of(plan: PlannedMove) -> MoveEvent:
    pod = plan.pod
    if plan.node:
        return MoveEvent(pod.key, pod.uid, PLANNED, f"would be moved from {pod.node} to {plan.node}: {plan.text}")
    return MoveEvent(pod.key, pod.uid, REFUSED, f"is not moved from {pod.node}: {plan.text}")
