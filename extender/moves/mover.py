"""Looks at the cluster now and then, plans moves of training jobs, tells of them, and has them made where it may."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.gangs.ledger import Ledger, next_of, seats, with_reservations
from extender.gangs.member import COMPONENT, Member, Place
from extender.moves.board import PlannedMove, Planner
from extender.moves.book import MoveBook
from extender.moves.gate import LATE, MOVED, MOVING, PLANNED, REFUSED, MoveGate, MoveLimits, News
from extender.moves.job import MovingJob
from extender.pods.event import Events
from extender.pods.reservations import Reservation
from extender.watches import Repeating
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.cluster.objects.metadata import ObjectKey
from recommender.growth import Category

log = logging.getLogger(__name__)

Seen = tuple[Collection[Member], Collection[Place]]


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
    follow_s: float = 2.0
    most_events: int = 50


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
        self._book = MoveBook(api)
        self._gate = MoveGate(api, ledger, leads, self._book, limits, clock) if limits else None
        self._planner, self._plan_again_s = planner, -math.inf
        self._told: dict[str, str] = {}
        self._events = Events(api, COMPONENT, clock)
        self._looking = Repeating("moves", self._look_if_it_may, lambda: self._options.follow_s)
        self.watches = self._book.watches
        self.planned = 0
        """Moves planned when last looked."""
        self.refused = 0
        """Moves that would have been made and that are not planned, when last looked."""
        self.counts = dict.fromkeys((MOVING, MOVED, LATE), 0)
        """Moves by what was said of them, since the start."""

    def start(self) -> None:
        """Begin to watch and to plan; returns at once."""
        self.watches.start()
        self._looking.start()

    def stop(self) -> None:
        """Plan no more; what is on its way is left to whoever comes next."""
        self._looking.stop()
        self.watches.stop()

    def _look_if_it_may(self) -> None:
        if self.watches.synced and not self.watches.failing and self._leads():
            self.look()

    def look(self) -> None:
        """Go on with what is on its way; plan, when it is time to, and begin one move at most."""
        seen = self._cluster()
        if seen is None:
            return
        if self._gate is not None:
            for news in self._gate.follow(self._book.jobs().values(), seen[0]):
                self._say(news)
        if self._monotonic() >= self._plan_again_s:
            self._plan_again_s = self._monotonic() + self._options.period_s
            self._plan(*seen)

    def _plan(self, pods: Collection[Member], places: Collection[Place]) -> None:
        now_s = self._clock()
        with self._ledger.turn:
            reservations = self._ledger.read()
            everybody = [*with_reservations(pods, reservations), *seats(reservations, now_s)]
            known = self._book.known()
            known = replace(known, categories=at_their_seats(known.categories, reservations))
            late_classes = self._book.late_classes()
            planned = self._planner.plan(everybody, places, known, now_s)
            plans = [self._judged(plan, known.jobs, late_classes) for plan in planned]
            begun = self._first(plans)
            if begun is not None and self._gate is not None and self._leads():
                self._gate.reserve(begun)
        self.planned = sum(1 for plan in plans if plan.node)
        self.refused = len(plans) - self.planned
        self._tell([_news(plan) for plan in plans if plan is not begun])
        if begun is not None and begun.pod.owner is not None and self._gate is not None:
            self._plan_again_s = self._monotonic()
            for news in self._gate.begin(begun, known.jobs[begun.pod.owner.uid]):
                self._say(news)

    def _judged(
        self, plan: PlannedMove, jobs: Mapping[str, MovingJob], late_classes: Collection[ObjectKey]
    ) -> PlannedMove:
        """A plan, refused where it would not be carried out."""
        if self._gate is None or not plan.node:
            return plan
        refusal = self._gate.refusal(plan, jobs, late_classes)
        return plan._replace(node="", text=refusal) if refusal else plan

    def _first(self, plans: Iterable[PlannedMove]) -> PlannedMove | None:
        """The next to be moved. One at a time: each move changes what is best for the others."""
        if self._gate is None:
            return None
        room = self._gate.room_in()
        return next((plan for plan in plans if plan.node and room(plan.pod.key.namespace)), None)

    def _tell(self, plans: Collection[News]) -> None:
        """Those that were not told with these words before; what is planned no more may be told again."""
        self._told = {each.uid: self._told[each.uid] for each in plans if each.uid in self._told}
        new = [each for each in plans if self._told.get(each.uid) != each.text]
        for news in new[: self._options.most_events]:
            if not self._say(news):
                break
            self._told[news.uid] = news.text

    def _say(self, news: News) -> bool:
        """By an event, and on the pod's profile, where people look; False when the event could not be written."""
        log.info("%s: %s", news.pod, news.text)
        if news.reason in self.counts:
            self.counts[news.reason] += 1
        if not self._events.write(news.pod, news.uid, news.reason, news.text, warning=news.warning):
            return False
        try:
            self._book.tell(news.uid, f"{news.pod.name} {news.text}")
        except (ApiError, BadCredentials) as error:
            log.warning("the profile of %s does not tell: %s", news.pod, error)
        return True


def at_their_seats(categories: Mapping[str, Category], reservations: Iterable[Reservation]) -> dict[str, Category]:
    """By pod UID, those of jobs on their way where these will be: else the next move would go by what is over."""
    moving = {uid for each in reservations if each.needs for uid in each.nodes}
    return {next_of(uid) if uid in moving else uid: category for uid, category in categories.items()}


def _news(plan: PlannedMove) -> News:
    pod = plan.pod
    if plan.node:
        return News(pod.key, pod.uid, PLANNED, f"would be moved from {pod.node} to {plan.node}: {plan.text}")
    return News(pod.key, pod.uid, REFUSED, f"is not moved from {pod.node}: {plan.text}")
