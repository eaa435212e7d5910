"""One look at all gangs: which one may go now, where its members go, and what is to be said to the others.

One gang at a time, by priority, then age. Pure: everything that was ever decided stands on the pods themselves (their
gates, the node reserved for each and when), so that a controller that dies at any moment is followed by one that sees
the same.

- A gang of which some are past the gate and some are not (a controller died, or a pod was made anew) comes first.
- While an admitted gang is not wholly bound, nobody else is admitted, until `bind_within_s` is over.
- The head is the first that the nodes could hold at all. While it does not fit, smaller gangs go before it only where
  it will still fit once those that were there before it have ended: what came later, and what never ends (pods of
  Deployments, DaemonSets and the like), counts as staying. So the head is delayed by nobody who came after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from extender.gangs.gang import Gang, SizeOf, gangs_of
from extender.gangs.member import Member, Place
from extender.gangs.names import ENDLESS_OWNERS, GATE
from extender.gangs.plan import Plan, guess, plan
from extender.gangs.room import Land, Room

ADMITTED, WAITING, NEVER_FITS, INCOMPLETE, INVALID, UNBOUND = (
    "GangAdmitted",
    "GangWaiting",
    "GangNeverFits",
    "GangIncomplete",
    "GangInvalid",
    "GangNotBound",
)
"""Reasons of events."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited.

    Attributes
    ----------
    incomplete_s
        For missing members to be made, before anything is said of it.
    bind_within_s
        For an admitted gang to be bound wholly, and for the rest of a gang to fit; then others go on.
    """

    incomplete_s: float = 10.0
    bind_within_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Note:
    """What is to be said of a gang; the text stays the same while nothing changes."""

    gang: Gang
    reason: str
    text: str


@dataclass(frozen=True)
class Decision:
    """What is to be done now.

    Attributes
    ----------
    admit, seats
        The gang whose members may all go, and the node reserved for each of those at the gate.
    native
        Pods at our gate that belong to a PodGroup of Kubernetes itself: the scheduler's own business.
    stale
        Pods at the gate with a seat that is theirs no more.
    """

    admit: Gang | None = None
    seats: Plan = field(default_factory=dict)
    notes: Sequence[Note] = ()
    native: Sequence[Member] = ()
    stale: Sequence[Member] = ()


def decide(
    pods: Iterable[Member], places: Iterable[Place], size_of: SizeOf, now_s: float, patience: Patience
) -> Decision:
    """Look at everything anew.

    Parameters
    ----------
    pods, places
        All of the cluster.
    now_s
        Unix seconds.
    """
    pods = list(pods)
    native = [pod for pod in pods if pod.native and pod.alive and GATE in pod.gates]
    gangs = gangs_of(pods, size_of)
    if not any(gang.gated for gang in gangs):
        return Decision(native=native, notes=[note for gang in gangs if (note := _overdue(gang, now_s, patience))])
    round_ = _Round(gangs, _settled(pods, now_s, patience), Land(places), now_s, patience)
    admit, seats = round_.choose()
    stale = [
        pod for gang in gangs if gang is not admit and not gang.free for pod in gang.gated if pod.seat
    ]  # a controller died before it had opened any gate
    return Decision(admit, seats, round_.notes, native, stale)


@dataclass(frozen=True, slots=True)
class _Settled:
    """A pod that takes room, and where; `node` is empty where that is for the scheduler to choose."""

    pod: Member
    node: str

    @property
    def came_s(self) -> float:
        return max(self.pod.created_s, -math.inf if math.isnan(self.pod.admitted_s) else self.pod.admitted_s)

    @property
    def ends(self) -> bool:
        return self.pod.owner is None or self.pod.owner.kind not in ENDLESS_OWNERS


def _settled(pods: Iterable[Member], now_s: float, patience: Patience) -> list[_Settled]:
    """Whoever holds room, or is about to: all but the finished and those at a gate.

    A pod that the scheduler has not placed for long is expected no more where it wishes for what is not judged here;
    else one that waits for its volume would keep the gangs from what it looks as if it could use.
    """
    found = []
    for pod in pods:
        if pod.finished or (not pod.node and pod.gates):
            continue
        each = _Settled(pod, pod.node)
        if not pod.node:
            late = now_s - each.came_s >= patience.bind_within_s
            if late and pod.ask.where.blind:
                continue
            each = _Settled(pod, "" if late else pod.seat)
        found.append(each)
    return found


def _overdue(gang: Gang, now_s: float, patience: Patience) -> Note | None:
    if not gang.gated and gang.unbound and now_s - gang.admitted_s >= patience.bind_within_s:
        text = f"{len(gang.unbound)} of {len(gang.members)} pods are not bound in time; others go on"
        return Note(gang, UNBOUND, text)
    return None


class _Round:
    """What one decision knows. The room holds whoever is settled; those without a node where they fit first."""

    def __init__(
        self, gangs: list[Gang], settled: list[_Settled], land: Land, now_s: float, patience: Patience
    ) -> None:
        self._gangs, self._now_s, self._patience = gangs, now_s, patience
        self._land, self._room = land, Room(land)
        self._settled: list[_Settled] = []
        self.notes: list[Note] = []
        for each in settled:
            if each.node:
                self._room.take(each.node, each.pod.ask.needs)
        beside = self._room.copy()
        for member in (member for gang in gangs if self._under_way(gang) for member in gang.gated):
            beside.take(member.seat, member.ask.needs)
        guesses = guess([each.pod for each in settled if not each.node], beside)
        for each in settled:
            if node := each.node or guesses.get(each.pod.uid, ""):
                self._settled.append(_Settled(each.pod, node))
            if not each.node and node:
                self._room.take(node, each.pod.ask.needs)

    def choose(self) -> tuple[Gang | None, Plan]:
        """The gang to admit, with its seats."""
        ready = [gang for gang in self._gangs if gang.gated and self._may_go(gang)]
        begun = [gang for gang in ready if gang.free]
        for gang in filter(self._under_way, ready):
            if (seats := self._rest_of(gang)) is not None:
                return self._admitted(gang, seats, "the rest of it fits now")
        if holder := self._holder(begun):
            self._all_wait(ready, f"{holder} is being placed")
            return None, {}
        return self._from_queue([gang for gang in ready if not gang.free])

    def _under_way(self, gang: Gang) -> bool:
        """Seats were written for all of it; what was not yet done is done by those."""
        return bool(gang.free) or gang.seated(self._now_s, self._patience.bind_within_s)

    def _may_go(self, gang: Gang) -> bool:
        if gang.problem:
            self._note(gang, INVALID, gang.problem)
        elif gang.missing:
            there = len(gang.members) + gang.done
            if self._now_s - gang.complete_s >= self._patience.incomplete_s:
                self._note(gang, INCOMPLETE, f"{there} of {gang.size} pods are there")
        elif gang.other_gates:
            self._note(gang, WAITING, f"other gates hold it: {', '.join(gang.other_gates)}")
        else:
            return True
        return False

    def _rest_of(self, gang: Gang) -> Plan | None:
        """Seats for those of a gang under way that are still at the gate: their old ones where these still hold."""
        room = self._room.copy()
        kept: dict[str, str] = {}
        for member in gang.gated:
            node = room.land.index.get(member.seat)
            if node is None or not room.fitting(member.ask)[node]:
                there = [member.node or member.seat for member in gang.free]
                return plan(gang.gated, self._room, there) if there else None
            room.take(member.seat, member.ask.needs)
            kept[member.uid] = member.seat
        return kept

    def _holder(self, begun: Sequence[Gang]) -> Gang | None:
        """The gang that everybody has to wait for: admitted, and not wholly bound."""
        holder: Gang | None = None
        for gang in self._gangs:
            rest = any(gang is each for each in begun)
            if rest:
                self._note(gang, WAITING, f"{self._shortage(gang)}; the others of it are past the gate")
            since_s = max(gang.admitted_s, gang.complete_s) if rest else gang.admitted_s
            if (rest or gang.unbound) and self._now_s - since_s < self._patience.bind_within_s:
                holder = holder or gang
            elif note := _overdue(gang, self._now_s, self._patience):
                self.notes.append(note)
        return holder

    def _from_queue(self, queue: Sequence[Gang]) -> tuple[Gang | None, Plan]:
        lasting = self._room_of(each for each in self._settled if not each.ends)
        head: Gang | None = None
        beside: Room | None = None
        for gang in queue:
            if head is None:
                if (seats := plan(gang.gated, self._room)) is not None:
                    return self._admitted(gang, seats, "all its pods fit")
                if plan(gang.gated, lasting) is None:
                    self._note(gang, NEVER_FITS, f"even when all jobs have ended, {self._shortage(gang, lasting)}")
                else:
                    head, beside = gang, self._beside(gang)
                    self._note(gang, WAITING, self._shortage(gang))
            elif beside is not None and (seats := plan(gang.gated, beside)) is not None:
                return self._admitted(gang, seats, f"it does not delay {head}")
            else:
                self._note(gang, WAITING, f"it waits behind {head}")
        return None, {}

    def _beside(self, head: Gang) -> Room | None:
        """What those that go before the head may take, so that its own seats stay free; None for nothing."""
        later = self._room_of(each for each in self._settled if not each.ends or each.came_s >= head.complete_s)
        seats_of_head = plan(head.gated, later)
        if seats_of_head is None:
            return None
        for member in head.gated:
            later.take(seats_of_head[member.uid], member.ask.needs)
        return Room(self._land, np.minimum(self._room.free, later.free))

    def _room_of(self, settled: Iterable[_Settled]) -> Room:
        room = Room(self._land)
        for each in settled:
            room.take(each.node, each.pod.ask.needs)
        return room

    def _admitted(self, gang: Gang, seats: Plan, why: str) -> tuple[Gang, Plan]:
        blind = f"; left to the scheduler: {', '.join(gang.blind)}" if gang.blind else ""
        where = f"on {len(set(seats.values()))} nodes"
        self._note(gang, ADMITTED, f"{len(seats)} pods go together, {where}: {why}{blind}")
        return gang, seats

    def _all_wait(self, ready: Iterable[Gang], why: str) -> None:
        for gang in ready:
            if not gang.free:
                self._note(gang, WAITING, why)

    def _shortage(self, gang: Gang, room: Room | None = None) -> str:
        allowed = np.zeros(len(self._land.places), dtype=bool)
        for ask in {member.ask for member in gang.gated}:
            allowed |= self._land.allowed(ask.where)
        ruled_out = int((~allowed).sum())
        fit = len(guess(gang.gated, room or self._room))
        words = f"{fit} of {len(gang.gated)} pods fit"
        return f"{words}; {ruled_out} of {len(allowed)} nodes are ruled out" if ruled_out else words

    def _note(self, gang: Gang, reason: str, text: str) -> None:
        self.notes.append(Note(gang, reason, text))
