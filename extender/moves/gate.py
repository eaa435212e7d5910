"""The only place that calls the Eviction API to move training jobs.

A move has three steps: reserve capacity on the new node for the replacement pod, record the move on the Job, evict the
pod by its UID. In this order a crash between steps cannot lead to a second move; the next leader continues from the
records. The API server enforces disruption budgets: a refused eviction is retried for a while.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from extender.gangs.ledger import Ledger
from extender.gangs.member import Member, Requirements
from extender.moves.board import PlannedMove
from extender.moves.job import Algorithm, MoveRecord, MovingJob, Outcome, with_record
from extender.moves.phasewise import MAX_MOVES
from extender.moves.store import MoveStore
from extender.pods.reservations import Reservation
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, Conflict, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import PODS, path_of

log = logging.getLogger(__name__)

MOVING, MOVED, LATE, PLANNED, REFUSED = "MoveStarted", "MoveDone", "MoveLate", "MovePlanned", "MoveRefused"
"""Event reasons."""

MIN_RETRY_S, MAX_RETRY_S = 2.0, 300.0
"""Pauses before a move that could not continue is tried again: its Job may never accept a record, as its owner decides
how full its annotations are."""

CONFIRM_S = 10.0
"""A job is late once it has been overdue for so long: after an outage the first look may be at what was before it."""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits that an operator sets."""

    # max_active, max_active_in_namespace: moves in progress at a time
    max_active: int = 4
    max_active_in_namespace: int = 1
    return_timeout_s: float = 600.0  # a job whose replacement pod does not run so long after the eviction is late
    cool_down_s: float = 600.0  # from a move of a job, made or refused, to its next
    eviction_timeout_s: float = 60.0  # how long a refused eviction is retried. Longer than a single request may take


class MoveEvent(NamedTuple):
    """An event on a pod; `warning` if an operator should look at it."""

    pod: ObjectKey
    uid: str
    reason: str
    text: str
    warning: bool = False


def _backoff() -> Backoff:
    return Backoff(MIN_RETRY_S, MAX_RETRY_S, random.Random())  # noqa: S311  jitter


@dataclass(slots=True)
class _UnderWay:
    """What we know of a move in progress; times are monotonic, so that no step of the clock changes its age."""

    namespace: str
    # began_s, seen_s: when it began, by the clock if an earlier controller began it; and when we first saw it
    began_s: float
    seen_s: float
    evicted_s: float = -math.inf
    overdue_s: float = math.inf  # first seen overdue
    not_evicted: str = "it could not be requested in time"
    backoff: Backoff = field(default_factory=_backoff)
    retry_s: float = -math.inf  # time of the next attempt

    @property
    def evicted(self) -> bool:
        return self.evicted_s > -math.inf


class MoveGate:
    """Carries out moves. Methods raise `ApiError` if a write fails, unless it concerns a single Job; called again, they
    continue from there. The caller holds the ledger's lock. `leads` is called before every write."""

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        leads: Callable[[], bool],
        store: MoveStore,
        limits: MoveLimits,
        clock: WallClock = time.time,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._api, self._ledger, self._leads, self._store = api, ledger, leads, store
        self._limits, self._clock, self._monotonic = limits, clock, monotonic
        self._under_way: dict[tuple[str, str], _UnderWay] = {}  # by UID of the Job and of the pod
        self._failed_writes: dict[str, tuple[float, str]] = {}  # pod UID -> time and reason

    def advance(
        self, jobs: Collection[MovingJob], pods: Collection[Member], fits: Callable[[Member, str], bool]
    ) -> Iterator[MoveEvent]:
        """Continue all moves in progress and record those that have ended. `fits`: whether the replacement of a pod
        still fits on the node reserved for it."""
        open_moves = [(job, record) for job in jobs if (record := job.under_way) is not None]
        uids, reserved = {record.uid for _, record in open_moves}, self._ledger.read()
        kept = [each for each in reserved if not each.needs or not each.nodes.keys().isdisjoint(uids)]
        if len(kept) < len(reserved) and self._leads():
            self._ledger.write(kept)  # without those of moves that have ended
        moves = {(job.uid, record.uid) for job, record in open_moves}
        self._under_way = {move: known for move, known in self._under_way.items() if move in moves}
        oldest_s = self._monotonic() - self._limits.cool_down_s
        self._failed_writes = {uid: each for uid, each in self._failed_writes.items() if each[0] > oldest_s}
        if not open_moves:
            return
        by_uid, jobs_moving = {pod.uid: pod for pod in pods}, {job.uid for job, _ in open_moves}
        running: defaultdict[str, dict[str, Member]] = defaultdict(dict)
        for pod in pods:
            if pod.owner is not None and pod.owner.uid in jobs_moving and pod.alive:
                running[pod.owner.uid][pod.completion_index] = pod
        for job, record in open_moves:
            known = self._known(job, record)
            if self._monotonic() < known.retry_s:
                continue
            try:
                if self._leads():
                    yield from self._advance(job, record, by_uid.get(record.uid), running[job.uid], fits)
            except ApiError as error:  # of one Job must not stop the others
                log.warning("%s: its move cannot continue: %s", job, error)
                known.retry_s = self._monotonic() + known.backoff.next_s()
            else:
                known.backoff.reset()

    def _advance(
        self,
        job: MovingJob,
        record: MoveRecord,
        old: Member | None,
        running: Mapping[str, Member],
        fits: Callable[[Member, str], bool],
    ) -> Iterator[MoveEvent]:
        """Continue one move; `running` are the pods of the Job by completion index."""
        known = self._known(job, record)
        age_s = self._monotonic() - known.began_s
        staying = old if old is not None and old.alive else None
        replacement = running.get(record.index)
        new = replacement if replacement is not None and replacement.uid != record.uid else None
        at_next_index = staying is None and replacement is None and bool(running)
        if new is not None and new.node and new.phase == "Running":
            self._record_end(job, replace(record, outcome=Outcome.BACK, node=new.node, downtime_s=age_s))
            elsewhere = "" if new.node == record.node else f"; {record.node} was reserved for it"
            yield MoveEvent(new.key, new.uid, MOVED, f"runs on {new.node} {age_s:.0f} s after it was moved{elsewhere}")
        elif job.finished or at_next_index:  # the pod or its replacement has succeeded
            self._record_end(job, replace(record, outcome=Outcome.ENDED))
        elif staying is not None and known.evicted:
            return  # the watch lags behind
        elif staying is not None:
            full = "" if fits(staying, record.node) else f"{record.node} has no room any more for what replaces it"
            if full or age_s > self._limits.eviction_timeout_s:
                self._record_end(job, replace(record, outcome=Outcome.REFUSED))
                text = f"was not evicted: {full or known.not_evicted}"
                yield MoveEvent(_key(job, record), record.uid, REFUSED, text)
            else:
                yield from self._evict(job, record)
        elif self._monotonic() - known.seen_s > self._limits.return_timeout_s:
            known.overdue_s = min(known.overdue_s, self._monotonic())
            if self._monotonic() - known.overdue_s < CONFIRM_S:
                return
            self._store.bar_class(job, record)
            self._record_end(job, replace(record, outcome=Outcome.LATE))
            within = f"within {self._limits.return_timeout_s:.0f} s"
            text = f"did not run again {within}: neither it nor its class {job.workload} will be moved again"
            yield MoveEvent(_key(job, record), record.uid, LATE, text, warning=True)

    def _known(self, job: MovingJob, record: MoveRecord) -> _UnderWay:
        now_s = self._monotonic()
        began_s = now_s - max(0.0, self._clock() - record.since_s)
        return self._under_way.setdefault((job.uid, record.uid), _UnderWay(job.key.namespace, began_s, now_s))

    def _record_end(self, job: MovingJob, record: MoveRecord) -> None:
        log.info("%s: move of %s to %s: %s", job, record.pod, record.node, record.outcome)
        self._store.write(job, with_record(job.records, record))
        self._under_way.pop((job.uid, record.uid), None)  # the pod may soon be moved again

    def refusal(self, move: PlannedMove, jobs: Mapping[str, MovingJob], late_classes: Collection[ObjectKey]) -> str:
        """Why a planned move must not be made; empty if it may."""
        pod = move.pod
        job = jobs.get(pod.owner.uid) if pod.owner is not None else None
        if job is None:
            return "only pods of Jobs are moved"
        if not pod.membership.name:
            return "it names no group by which to recognise its replacement"
        if job.obstacle:
            return job.obstacle
        failed_s, why = self._failed_writes.get(pod.uid, (-math.inf, ""))
        if self._monotonic() - failed_s < self._limits.cool_down_s:
            return f"its Job could not be annotated: {why}"
        if job.late or ObjectKey(job.key.namespace, job.workload) in late_classes:
            return f"a job of its class {job.workload} once did not run again in time"
        if pod.annotated_node != pod.node:
            return "it did not get its node by a reservation at the gate, and its replacement would not either"
        earlier = [each for each in job.records if each.index == pod.completion_index]
        most = MAX_MOVES if move.algorithm is Algorithm.SOONER else 1
        if sum(each.counts and each.algorithm is move.algorithm for each in earlier) >= most:
            return "it has been moved as often as allowed"
        if any(self._clock() - each.since_s < self._limits.cool_down_s for each in earlier):
            return f"its last move was less than {self._limits.cool_down_s:.0f} s ago"
        return ""

    def capacity_check(self) -> Callable[[str], bool]:
        """A function that tells whether one more move may start in a namespace, by reservations and our own evictions.
        Records on Jobs do not count: forged ones would block all moves."""
        limits, late_s = self._limits, self._monotonic() - self._limits.return_timeout_s
        reserved = {uid: each.namespace for each in self._ledger.cached() if each.needs for uid in each.nodes}
        evicted = {uid: move.namespace for (_, uid), move in self._under_way.items() if move.evicted_s > late_s}
        active = Counter((reserved | evicted).values())
        full = active.total() >= limits.max_active
        return lambda namespace: not full and active[namespace] < limits.max_active_in_namespace

    def reserve(self, move: PlannedMove, needed: Requirements) -> None:
        """Reserve what the replacement pod needs."""
        pod, hold_s = move.pod, float(math.ceil(self._limits.return_timeout_s))
        reservation = Reservation(
            pod.key.namespace, pod.membership.name, round(self._clock(), 3), hold_s, {pod.uid: move.node},
            dict(needed.needs), pod.membership.priority, dict(needed.extended),
        )  # fmt: skip
        self._ledger.write([*self._ledger.cached(), reservation])

    def start(self, move: PlannedMove, job: MovingJob) -> Iterator[MoveEvent]:
        """Record the move on the Job and evict the pod, whose replacement has a reservation."""
        pod = move.pod
        record = MoveRecord(
            pod.completion_index, move.algorithm, pod.key.name, pod.uid, move.node, self._clock(),
            done_core_s=move.done_core_s,
        )  # fmt: skip
        if not self._leads():
            return
        try:
            annotated = self._store.write(job, with_record(job.records, record))
        except Conflict:
            raise  # the Job has changed: decide again in the next run
        except ApiError as error:  # the next plan reports it, and its reservation is released
            self._failed_writes[pod.uid] = self._monotonic(), str(error)
            log.warning("%s: not moved: %s", pod, error)
        else:
            yield from self._evict(annotated, record)

    def _evict(self, job: MovingJob, record: MoveRecord) -> Iterator[MoveEvent]:
        """Evict the pod once, and only with a reservation for its replacement."""
        known = self._known(job, record)
        reserved = any(each.needs and record.uid in each.nodes for each in self._ledger.cached())
        if known.evicted or not reserved or not self._leads():
            return
        try:
            self._api.evict(path_of(PODS, job.key.namespace, record.pod), record.uid)
        except (NotFound, Conflict):
            log.info("%s is gone already", _key(job, record))
        except ApiError as error:
            known.not_evicted = str(error)
            log.info("%s is not evicted yet: %s", _key(job, record), error)
        else:
            known.evicted_s = self._monotonic()
            text = f"is being moved to {record.node} ({record.algorithm})"
            yield MoveEvent(_key(job, record), record.uid, MOVING, text)


def _key(job: MovingJob, record: MoveRecord) -> ObjectKey:
    return ObjectKey(job.key.namespace, record.pod)
