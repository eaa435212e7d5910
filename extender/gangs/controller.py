"""The gang controller: looks at pods and nodes as the watches show them, decides, acts, looks again.

What was decided stands in the ledger of reservations and on the pods. Kept here is only what spares others: which gates
were just opened (the watch is behind), how long to leave a gang alone after a failed write, and which events were
written.
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

from extender.gangs.decide import ADMITTED, WAITING, Note, Patience, decide
from extender.gangs.gang import Gang
from extender.gangs.ledger import Admitter, Ledger, handed_over, lasting, seats, with_reservations
from extender.gangs.member import COMPONENT, GATE, Member, Place
from extender.gangs.plan import Assignment
from extender.gangs.reading import path_of_job, read_member, read_place, size_of_job
from extender.pods.event import Events
from extender.watches import Repeating, Watches
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, BadCredentials, BadObject
from recommender.cluster.paths import NODES, PODS, path_of
from recommender.cluster.watching.reflector import Reflector

log = logging.getLogger(__name__)

RESTS = 3.0
"""Times as long as the last look took."""


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How often it does what.

    Attributes
    ----------
    pause_s, period_s
        The shortest and the longest time between two looks; changes of pods and nodes wake it in between.
    caught_up_s
        For the watch to show a gate that was just opened.
    told_again_s, told_anew_s
        An event is written again after so long; and after so long when its words, but not its reason, have changed.
    told_pods
        On so many pods of a gang at most.
    most_events
        In one look; the rest is told in the next ones.
    size_s, no_size_s
        How long the size read from a job is believed, and for how long a job that tells none is not asked again.
    """

    pause_s: float = 0.1
    period_s: float = 5.0
    caught_up_s: float = 10.0
    told_again_s: float = 600.0
    told_anew_s: float = 10.0
    told_pods: int = 8
    most_events: int = 50
    size_s: float = 300.0
    no_size_s: float = 30.0
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class _Failure:
    backoff: Backoff
    until_s: float
    why: str


class Controller:
    """Acts while it leads.

    Parameters
    ----------
    leads
        Asked before every write.
    namespace
        Where the ConfigMap of the reservations lies.
    clock, monotonic
        Unix seconds for what is written, monotonic seconds for pauses.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        controller_options: ControllerOptions | None = None,
        *,
        namespace: str = "kube-system",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._api, self._leads, self._options = api, leads, controller_options or ControllerOptions()
        self._clock, self._monotonic = clock, monotonic
        self._chance = chance or random.Random()  # noqa: S311  # jitter
        # Changes come in crowds; and in a large cluster looking must not become all that it does.
        self._looking = Repeating(
            "gangs",
            self._look_if_it_may,
            pause_s=lambda: self._options.period_s,
            rest_s=lambda: max(self._options.pause_s, RESTS * self._look_s),
        )
        self._pods = Reflector(api, path_of(PODS), read_member, on_change=self._changed)
        self._nodes = Reflector(api, path_of(NODES), read_place, on_change=self._changed)
        self.watches = Watches(self._pods, self._nodes)
        self._events = Events(api, COMPONENT, clock)
        self.ledger = Ledger(api, namespace, monotonic)
        """What is reserved; whoever else writes it takes turns."""
        self._admitter = Admitter(api, self.ledger, leads, self._was_opened)
        self._opened: dict[str, float] = {}
        self._failed: dict[tuple[str, str], _Failure] = {}
        self._told: dict[tuple[str, str], tuple[str, float]] = {}
        self._sizes: dict[tuple[str, str], tuple[int | None, float]] = {}
        self._look_s = 0.0
        self.admitted = 0
        """Gangs let in since the start."""
        self.waiting = 0
        """Gangs at the gate when last looked."""

    def start(self) -> Controller:
        """Begin to watch and to act; returns at once."""
        self.watches.start()
        self._looking.start()
        return self

    def stop(self) -> None:
        """Act no more; what is being written is finished."""
        self._looking.stop()
        self.watches.stop()

    def not_ready(self) -> str:
        """Why it cannot act, were it to lead; empty when it can."""
        return self.watches.waiting_for or self.ledger.problem

    def cluster(self) -> tuple[Collection[Member], Collection[Place]] | None:
        """All pods and nodes as the watches show them; None before they do, and while one of them has no contact."""
        known = self.watches.synced and not self.watches.failing
        return (self._pods.snapshot().values(), self._nodes.snapshot().values()) if known else None

    def refused(self) -> Iterable[Member]:
        """Pods that wait because the extender refused nodes."""
        return [pod for pod in self._pods.snapshot().values() if pod.refused]

    def _changed(self, old: Any, new: Any) -> None:
        self._looking.wake()

    def _look_if_it_may(self) -> None:
        if self.watches.synced and self._leads():
            self.look()

    def look(self) -> None:
        """Decide once, do it, and say why. Nobody waits for what is said."""
        pods = self._pods.snapshot()
        if self._behind(pods.values()):
            return
        began_s = self._monotonic()
        try:
            with self.ledger.turn:
                notes = self._act_on(pods.values())
        finally:
            self._look_s = self._monotonic() - began_s
        self._tell(notes)
        self._forget(notes)

    def _act_on(self, pods: Collection[Member]) -> Sequence[Note]:
        """What is to be said of it, the most urgent first."""
        now_s, patience = self._clock(), self._options.patience
        reservations = handed_over(self.ledger.read(), pods, now_s, math.ceil(patience.bind_within_s))
        self._admitter.keep(reservations)
        with_reservation = list(with_reservations(pods, reservations))
        everybody = [*with_reservation, *seats(reservations, now_s)]
        left_alone = {key: each.why for key, each in self._failed.items() if self._monotonic() < each.until_s}
        places = self._nodes.snapshot().values()
        decision = decide(everybody, places, self._size_of, now_s, patience, left_alone)
        waiting = [note for note in decision.notes if note.reason != ADMITTED]
        self.waiting = sum(1 for note in waiting if note.gang.gated)
        self._admitter.keep(lasting(reservations, with_reservation, decision.stale, now_s))
        for pod in decision.native:
            if (key := (pod.key.namespace, f"native={pod.key.name}")) not in left_alone:
                self._tried(key, partial(self._admitter.open, pod))
        if (gang := decision.admit) is None:
            return waiting
        if not self._admit(gang, decision.reserved_nodes):
            return [Note(gang, WAITING, self._failed[gang.key].why), *waiting]
        return [note for note in decision.notes if note.reason == ADMITTED] + waiting

    def _behind(self, pods: Any) -> bool:
        """Whether the watch has yet to show gates that we opened; deciding on those would be deciding twice."""
        if not self._opened:
            return False
        now_s = self._monotonic()
        shut = {pod.uid for pod in pods if pod.uid in self._opened and GATE in pod.gates}
        self._opened = {uid: until_s for uid, until_s in self._opened.items() if uid in shut and until_s > now_s}
        return bool(self._opened)

    # -- acting ----------------------------------------------------------------------------------------------------

    def _admit(self, gang: Gang, reserved_nodes: Assignment) -> bool:
        hold_s = self._options.patience.bind_within_s
        done = self._tried(gang.key, lambda: self._admitter.admit(gang, reserved_nodes, self._clock(), hold_s))
        self.admitted += done
        return done

    def _tried(self, key: tuple[str, str], do: Callable[[], None]) -> bool:
        """Whether it could be done; whom it could not be done for is left alone for a while, longer each time."""
        try:
            do()
        except (ApiError, BadCredentials) as error:
            backoff = self._failed[key].backoff if key in self._failed else Backoff(1.0, 60.0, self._chance)
            wait_s, why = backoff.next_s(), f"not all of it could be let in: {error}"
            self._failed[key] = _Failure(backoff, self._monotonic() + wait_s, why)
            log.warning("%s/%s: %s; again in %.0f s", *key, why, wait_s)
            return False
        self._failed.pop(key, None)
        return True

    def _was_opened(self, member: Member) -> None:
        self._opened[member.uid] = self._monotonic() + self._options.caught_up_s

    def _size_of(self, member: Member) -> int | None:
        """The size that the job of a pod tells; asked for once in a while, and when it is made anew."""
        path = path_of_job(member)
        if path is None:
            return None
        key = (path, member.owner.uid if member.owner is not None else "")
        size, until_s = self._sizes.get(key, (None, 0.0))
        if self._monotonic() >= until_s:
            try:
                size = size_of_job(self._api.get(path))
            except (ApiError, BadObject) as error:
                log.warning("the size of a gang cannot be told: %s", error)
                size = None
            believed_s = self._options.size_s if size else self._options.no_size_s
            self._sizes[key] = (size, self._monotonic() + believed_s)
        return size

    # -- saying why ------------------------------------------------------------------------------------------------

    def _tell(self, notes: Sequence[Note]) -> None:
        """Events on some pods of each gang, where there is something new to say."""
        left = self._options.most_events
        for note in notes:
            pods = (note.gang.gated or note.gang.members)[: self._options.told_pods]
            key, now_s = (note.gang.members[0].uid, note.reason), self._monotonic()
            text, told_s = self._told.get(key, ("", -math.inf))
            rest_s = self._options.told_again_s if text == note.text else self._options.told_anew_s
            if now_s - told_s < rest_s:
                continue
            if (left := left - len(pods)) < 0:
                return
            self._told[key] = (note.text, now_s)
            self._write(note, pods)

    def _write(self, note: Note, pods: Sequence[Member]) -> None:
        warning = note.reason not in (ADMITTED, WAITING)
        if note.reason == ADMITTED:
            log.info("%s: %s", note.gang, note.words)
        words = f"gang {note.gang.name.rpartition('=')[2]}: {note.words}"
        for pod in pods:
            if not self._events.write(pod.key, pod.uid, note.reason, words, warning=warning):
                return

    def _forget(self, notes: Sequence[Note]) -> None:
        """Drop what is kept of gangs that are gone, and what is too old to spare anybody anything."""
        spoken, now_s, again_s = {note.gang.key for note in notes}, self._monotonic(), self._options.told_again_s
        self._told = {key: told for key, told in self._told.items() if now_s - told[1] < again_s}
        self._failed = {key: each for key, each in self._failed.items() if key in spoken or each.until_s > now_s}
        self._sizes = {key: size for key, size in self._sizes.items() if size[1] > now_s}
