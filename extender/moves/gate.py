"""The one door to the Eviction API: a training job leaves its node only here.

In this order, so that whoever is killed in between leaves nothing that could become a second move: the seat on the new
node is reserved for the pod that will take the place of this one, the Job is told, the pod is evicted by its UID. Who
comes next goes on with what the Jobs say. Disruption budgets are the API server's to keep: it refuses the eviction, and
is asked again for a while.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from extender.gangs.ledger import Ledger
from extender.gangs.member import Member
from extender.moves.board import PlannedMove
from extender.moves.job import MoveRecord, MovingJob, Outcome, with_outcome, with_record
from extender.moves.store import MoveStore
from extender.pods.reservations import Reservation
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import PODS, path_of

log = logging.getLogger(__name__)

MOVING, MOVED, LATE, PLANNED, REFUSED = "MoveStarted", "MoveDone", "MoveLate", "MovePlanned", "MoveRefused"
"""Reasons of events."""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """What an operator may turn.

    Attributes
    ----------
    at_once, at_once_in_namespace
        Jobs on their way.
    back_within_s
        A job whose next pod does not run so long after the eviction is late.
    rest_s
        From a move of a job, or one that was refused, to its next.
    evict_within_s
        For so long an eviction that was refused is asked for again. Longer than one that is under way may take.
    """

    max_active: int = 4
    max_active_in_namespace: int = 1
    return_timeout_s: float = 600.0
    cool_down_s: float = 600.0
    eviction_timeout_s: float = 60.0


class MoveEvent(NamedTuple):
    """What is to be said of a pod; `warning` for what an operator should look at."""

    pod: ObjectKey
    uid: str
    reason: str
    text: str
    warning: bool = False


class MoveGate:
    """Every method raises an `ApiError` for what could not be written, but for what concerns one Job alone; called
    again, it goes on from there.

    Parameters
    ----------
    leads
        Asked before every write.
    clock
        Unix seconds.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        leads: Callable[[], bool],
        store: MoveStore,
        limits: MoveLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._ledger, self._leads, self._store = api, ledger, leads, store
        self._limits, self._clock = limits, clock
        self._evicted: dict[str, tuple[str, float]] = {}  # namespace, and when, by the UID of a pod
        self._eviction_errors: dict[str, str] = {}
        self._failed_writes: dict[str, tuple[float, str]] = {}

    # -- what is under way ---------------------------------------------------------------------------------------------

    def advance(self, jobs: Collection[MovingJob], pods: Collection[Member]) -> Iterator[MoveEvent]:
        """Go on with all moves that are under way, and end those that have come to an end."""
        open_moves = [(job, record) for job in jobs if (record := job.under_way) is not None]
        uids = {record.uid for _, record in open_moves}
        self._release_seats(uids)
        self._evicted = {uid: evicted for uid, evicted in self._evicted.items() if uid in uids}
        oldest_s = self._clock() - self._limits.cool_down_s
        self._failed_writes = {uid: told for uid, told in self._failed_writes.items() if told[0] > oldest_s}
        if not open_moves:
            return
        by_uid = {pod.uid: pod for pod in pods}
        running = {(pod.owner.uid, pod.completion_index): pod for pod in pods if pod.owner is not None and pod.alive}
        for job, record in open_moves:
            replacement = running.get((job.uid, record.index))
            try:
                if self._leads():
                    yield from self._advance(job, record, by_uid.get(record.uid), replacement)
            except ApiError as error:  # one that may not be written to stops no other
                log.warning("%s: its move cannot go on: %s", job, error)

    def _advance(
        self, job: MovingJob, record: MoveRecord, old: Member | None, replacement: Member | None
    ) -> Iterator[MoveEvent]:
        age_s = self._clock() - record.since_s
        gone = old is None or not old.alive
        if (
            replacement is not None
            and replacement.uid != record.uid
            and replacement.node
            and replacement.phase == "Running"
        ):
            self._record_end(job, with_outcome(record, Outcome.BACK, replacement.node, age_s))
            elsewhere = "" if replacement.node == record.node else f"; {record.node} was reserved for it"
            yield MoveEvent(
                replacement.key,
                replacement.uid,
                MOVED,
                f"runs on {replacement.node} {age_s:.0f} s after it was moved{elsewhere}",
            )
        elif job.finished:
            self._record_end(job, with_outcome(record, Outcome.ENDED))
        elif not gone and record.uid in self._evicted:
            return  # the watch is behind
        elif not gone and age_s > self._limits.eviction_timeout_s:
            self._record_end(job, with_outcome(record, Outcome.REFUSED))
            why = self._eviction_errors.pop(record.uid, "it could not be asked for in time")
            yield MoveEvent(_key(job, record), record.uid, REFUSED, f"was not evicted: {why}")
        elif not gone:
            yield from self._evict(job, record)
        elif age_s > self._limits.return_timeout_s:
            self._store.bar_class(job, record)
            self._record_end(job, with_outcome(record, Outcome.LATE))
            limit_s, workload = self._limits.return_timeout_s, job.workload
            text = f"has not come back within {limit_s:.0f} s: it is moved no more, nor is its class {workload}"
            yield MoveEvent(_key(job, record), record.uid, LATE, text, warning=True)

    def _record_end(self, job: MovingJob, record: MoveRecord) -> None:
        log.info("%s: move of %s to %s: %s", job, record.pod, record.node, record.outcome)
        self._store.write(job, with_record(job.records, record))

    def _release_seats(self, uids: Collection[str]) -> None:
        """Seats of moves that are under way no more."""
        with self._ledger.lock:
            known = self._ledger.read()
            kept = [each for each in known if not each.needs or not each.nodes.keys().isdisjoint(uids)]
            if len(kept) < len(known) and self._leads():
                self._ledger.write(kept)

    # -- a new one -----------------------------------------------------------------------------------------------------

    def refusal(self, move: PlannedMove, jobs: Mapping[str, MovingJob], late_classes: Collection[ObjectKey]) -> str:
        """Why a pod must stay where it is, whatever is planned; empty where it may go."""
        pod = move.pod
        job = jobs.get(pod.owner.uid) if pod.owner is not None else None
        if job is None:
            return "only pods of Jobs are moved"
        if not pod.membership.name:
            return "it names no group, by which its next pod would be known"
        if job.obstacle:
            return job.obstacle
        failed_s, why = self._failed_writes.get(pod.uid, (-math.inf, ""))
        if self._clock() - failed_s < self._limits.cool_down_s:
            return f"its Job could not be told of it: {why}"
        if job.late or ObjectKey(job.key.namespace, job.workload) in late_classes:
            return f"a job of its class {job.workload} did not come back in time once"
        if pod.annotated_node != pod.node:
            return "it is not on a node that was reserved for it at the gate: nothing would hold one for its next pod"
        mine = [each for each in job.records if each.index == pod.completion_index]
        if sum(each.counts and each.algorithm is move.algorithm for each in mine) >= move.algorithm.most_moves:
            return "it was moved as often as it may be"
        if any(self._clock() - each.since_s < self._limits.cool_down_s for each in mine):
            return f"it rests for {self._limits.cool_down_s:.0f} s after its last move"
        return ""

    def capacity_check(self) -> Callable[[str], bool]:
        """Whether one more of a namespace may be on its way: by what is reserved, and by who was evicted here.

        What Jobs say does not count: records that are made up would keep everybody else where they are.
        """
        limits, late_s = self._limits, self._clock() - self._limits.return_timeout_s
        seated = {uid: each.namespace for each in self._ledger.cached() if each.needs for uid in each.nodes}
        evicted = {uid: namespace for uid, (namespace, at_s) in self._evicted.items() if at_s > late_s}
        away = Counter((seated | evicted).values())
        full = away.total() >= limits.max_active
        return lambda namespace: not full and away[namespace] < limits.max_active_in_namespace

    def reserve(self, move: PlannedMove) -> None:
        """A seat for the next pod. Whoever calls it has the turn since the move was planned."""
        pod, hold_s = move.pod, float(math.ceil(self._limits.return_timeout_s))
        since_s, needs = round(self._clock(), 3), dict(pod.requirements.needs)
        seat = Reservation(
            pod.key.namespace,
            pod.membership.name,
            since_s,
            hold_s,
            {pod.uid: move.node},
            needs,
            pod.membership.priority,
        )
        self._ledger.write([*self._ledger.cached(), seat])

    def start(self, move: PlannedMove, job: MovingJob) -> Iterator[MoveEvent]:
        """Move a pod for which a seat is reserved."""
        pod, since_s = move.pod, self._clock()
        record = MoveRecord(
            pod.completion_index,
            move.algorithm,
            pod.key.name,
            pod.uid,
            move.node,
            since_s,
            done_core_s=move.done_core_s,
        )
        if not self._leads():
            return
        try:
            told = self._store.write(job, with_record(job.records, record))
        except Conflict:
            raise  # it has changed: the next look sees how
        except ApiError as error:  # said with the next plan, by which its seat is given back
            self._failed_writes[pod.uid] = since_s, str(error)
            log.warning("%s: not moved: %s", pod, error)
        else:
            yield from self._evict(told, record)

    def _evict(self, job: MovingJob, record: MoveRecord) -> Iterator[MoveEvent]:
        """Nothing is evicted without a seat; what was evicted once is gone, or on its way, and no other has its UID."""
        seated = any(each.needs and record.uid in each.nodes for each in self._ledger.cached())
        if record.uid in self._evicted or not seated or not self._leads():
            return
        try:
            self._api.evict(path_of(PODS, job.key.namespace, record.pod), record.uid)
        except (NotFound, Conflict):
            log.info("%s is gone already", _key(job, record))
        except ApiError as error:
            self._eviction_errors[record.uid] = str(error)
            log.info("%s is not evicted yet: %s", _key(job, record), error)
        else:
            self._evicted[record.uid] = job.key.namespace, self._clock()
            self._eviction_errors.pop(record.uid, None)
            yield MoveEvent(_key(job, record), record.uid, MOVING, f"is moved to {record.node} ({record.algorithm})")


def _key(job: MovingJob, record: MoveRecord) -> ObjectKey:
    return ObjectKey(job.key.namespace, record.pod)
