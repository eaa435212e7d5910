"""One look at all gangs: which one may go now, where its members go, and what is to be said to the others.

One gang at a time, by priority, then age. Pure: everything that was ever decided stands on the pods (their gates) and
in what is reserved, so that a controller that dies at any moment is followed by one that sees the same.

- A gang that was reserved for, and of which some are still at the gate (a controller died), comes first.
- While an admitted gang is not wholly bound, no other of its priority or a lower one is admitted, until `bind_within_s`
  is over.
- The head is the first that the nodes could hold at all. While it does not fit, smaller gangs go before it only where
  it will still fit once those that were there before it have ended: what came later, and what never ends (pods of
  Deployments, DaemonSets and the like), counts as staying. So the head is delayed by nobody who came after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from types import MappingProxyType

import numpy as np

from extender.gangs.gang import Gang, SizeOf, gangs_of, ungated
from extender.gangs.member import ENDLESS_OWNERS, GATE, Member, Place
from extender.gangs.plan import Assignment, FreeCapacity, NodeArrays, guess, plan

ADMITTED, WAITING, NEVER_FITS, INCOMPLETE, INVALID, UNBOUND, UNGATED = (
    "GangAdmitted",
    "GangWaiting",
    "GangNeverFits",
    "GangIncomplete",
    "GangInvalid",
    "GangNotBound",
    "GangNotGated",
)
"""Reasons of events."""

WITHOUT_GATE = f"made without the scheduling gate {GATE}: it waits for nobody, and nothing is reserved for it"
BEHIND = "it waits behind "

LeftAlone = Mapping[tuple[str, str], str]
"""(namespace, name) of gangs -> why they are left alone for a while."""

NOBODY: LeftAlone = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited.

    Attributes
    ----------
    incomplete_s
        For missing members to be made, before anything is said of it.
    bind_within_s
        For an admitted gang to be bound wholly, and for the rest of a gang to fit; then others go on.
    ungated_s
        For so long after a pod of a gang was made without its gate this is said.
    """

    incomplete_s: float = 10.0
    bind_within_s: float = 300.0
    ungated_s: float = 600.0

    def counts(self, member: Member, now_s: float) -> bool:
        """Whether a node is reserved for a pod still. A clock that was put back makes it no longer."""
        return bool(member.reserved_node) and abs(now_s - member.admitted_s) < self.bind_within_s


@dataclass(frozen=True, slots=True)
class Note:
    """What is to be said of a gang; the text stays the same while nothing changes.

    Attributes
    ----------
    detail
        Said after it, and alone no reason to say it again: whom a gang waits for is another one every minute.
    """

    gang: Gang
    reason: str
    text: str
    detail: str = ""

    @property
    def words(self) -> str:
        return self.text + self.detail


@dataclass(frozen=True)
class GangDecision:
    """What is to be done now.

    Attributes
    ----------
    admit, reserved_nodes
        The gang whose members may all go, and the node reserved for each of those at the gate.
    native
        Pods at our gate that belong to a PodGroup of Kubernetes itself: the scheduler's own business.
    stale
        Pods at the gate for which a node is reserved no more.
    """

    admit: Gang | None = None
    reserved_nodes: Assignment = field(default_factory=dict)
    notes: Sequence[Note] = ()
    native: Sequence[Member] = ()
    stale: Sequence[Member] = ()


def decide(
    pods: Iterable[Member],
    places: Iterable[Place],
    size_of: SizeOf,
    now_s: float,
    patience: Patience,
    left_alone: LeftAlone = NOBODY,
) -> GangDecision:
    """Look at everything anew.

    Parameters
    ----------
    pods, places
        All of the cluster; the pods with what is reserved for them.
    now_s
        Unix seconds.
    left_alone
        Gangs that could not be let in and are to be tried again later. Unless some of them are past the gate, nothing
        is reserved for them meanwhile.
    """
    pods = list(pods)
    native = [pod for pod in pods if pod.native and pod.alive and GATE in pod.gates]
    gangs = gangs_of(pods, size_of)
    notes = [Note(gang, UNGATED, WITHOUT_GATE) for gang in ungated(pods, now_s - patience.ungated_s)]
    notes += [note for gang in gangs if (note := _overdue(gang, now_s, patience))]
    if not any(gang.gated for gang in gangs):
        return GangDecision(native=native, notes=notes)
    settled = _settled(pods, now_s, patience)
    settled += [
        _Settled(pod, pod.reserved_node)
        for gang in gangs
        if gang.key in left_alone and _begun(gang)
        for pod in gang.gated
        if patience.counts(pod, now_s)
    ]
    round_ = _Round(gangs, settled, NodeArrays(places), now_s, patience, left_alone)
    admit, reserved_nodes = round_.choose()
    stale = [
        pod for gang in gangs if gang is not admit and not _begun(gang) for pod in gang.gated if pod.reserved_node
    ]  # a controller died before it had opened any gate
    return GangDecision(admit, reserved_nodes, notes + round_.notes, native, stale)


def _begun(gang: Gang) -> bool:
    """Some for which a node is reserved are past the gate."""
    return any(GATE not in member.gates for member in gang.with_reservation)


@dataclass(frozen=True, slots=True)
class _Settled:
    """A pod that takes room, and where: by guess, or empty, where the scheduler has yet to choose."""

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

    A pod that the scheduler has not placed for long is expected no more: else one that waits for its volume, or names a
    scheduler that is not there, would keep the gangs from what it looks as if it could use.
    """
    found = [_Settled(pod, pod.node or pod.reserved_node) for pod in pods if not pod.finished]
    return [
        each for each in found if each.pod.node or not (each.pod.gates or now_s - each.came_s >= patience.bind_within_s)
    ]


def _guessed(pods: Iterable[Member], room: FreeCapacity) -> Iterator[_Settled]:
    """Where pods may go that the scheduler has yet to place, the higher priority first; takes what they need."""
    for _, alike in groupby(sorted(pods, key=_lowest), _lowest):
        equals = list(alike)
        nodes = guess(equals, room)
        for pod in equals:
            if node := nodes.get(pod.uid, ""):
                room.take(node, pod.ask.needs)
                yield _Settled(pod, node)


def _lowest(pod: Member) -> int:
    return -pod.kind.priority


def _overdue(gang: Gang, now_s: float, patience: Patience) -> Note | None:
    late = [pod for pod in gang.unbound if pod.reserved_node and not patience.counts(pod, now_s)]
    text = f"{len(late)} of {len(gang.members)} pods are not bound in time; others go on"
    return Note(gang, UNBOUND, text) if late else None


class _Round:
    """What one decision knows. Whoever is settled holds room; who has no node yet where it fits first, and not against
    gangs of higher priority.
    """

    def __init__(
        self,
        gangs: list[Gang],
        settled: list[_Settled],
        node_arrays: NodeArrays,
        now_s: float,
        patience: Patience,
        left_alone: LeftAlone,
    ) -> None:
        self._gangs, self._now_s, self._patience, self._left_alone = gangs, now_s, patience, left_alone
        self._node_arrays = node_arrays
        self._settled = [each for each in settled if each.node]
        self._guessed: Sequence[_Settled] = ()
        self.notes: list[Note] = []
        beside = self._room()
        for member in (member for gang in gangs if self._under_way(gang) for member in gang.gated):
            beside.take(member.reserved_node, member.ask.needs)
        self._guessed = list(_guessed([each.pod for each in settled if not each.node], beside))
        self._free = cache(self._room)
        self._lasting = cache(lambda priority: self._room(priority, lambda each: not each.ends))

    def choose(self) -> tuple[Gang | None, Assignment]:
        """The gang to admit, with the nodes reserved for it."""
        ready = [gang for gang in self._gangs if gang.gated and self._may_go(gang)]
        for gang in filter(self._under_way, ready):
            if (reserved_nodes := self._rest_of(gang)) is not None:
                return self._admitted(gang, reserved_nodes, "the rest of it fits now")
        rests = [gang for gang in ready if self._under_way(gang) and _begun(gang)]
        queue = [gang for gang in ready if gang not in rests]
        for gang in rests:
            self._note(gang, WAITING, f"{self._shortage(gang)}; the others of it are past the gate", self._kept(gang))
        if holder := self._holder(rests):
            for gang in queue:
                if gang.priority <= holder.priority:
                    self._note(gang, WAITING, BEHIND, f"{holder}, which is being placed")
            queue = [gang for gang in queue if gang.priority > holder.priority]
        return self._from_queue(queue)

    def _under_way(self, gang: Gang) -> bool:
        """Nodes were reserved for what is at the gate; what was not yet done is done by that."""
        return gang.key not in self._left_alone and any(
            self._patience.counts(member, self._now_s) for member in gang.gated
        )

    def _may_go(self, gang: Gang) -> bool:
        if gang.problem:
            self._note(gang, INVALID, gang.problem)
        elif gang.missing:
            there = len(gang.members) + gang.done
            if self._now_s - gang.complete_s >= self._patience.incomplete_s:
                self._note(gang, INCOMPLETE, f"{there} of {gang.size} pods are there")
        elif gang.other_gates:
            self._note(gang, WAITING, f"other gates hold it: {', '.join(gang.other_gates)}")
        elif gang.key in self._left_alone:
            self._note(gang, WAITING, self._left_alone[gang.key])
        else:
            return True
        return False

    def _rest_of(self, gang: Gang) -> Assignment | None:
        """Nodes for those of a gang under way that are still at the gate: their old ones where these still hold."""
        capacity = self._free(gang.priority).copy()
        kept: dict[str, str] = {}
        for member in gang.gated:
            node = capacity.node_arrays.index.get(member.reserved_node)
            if node is None or not capacity.fitting(member.ask)[node]:
                there = [member.node or member.reserved_node for member in gang.free]
                return plan(gang.gated, self._free(gang.priority), there) if there else None
            capacity.take(member.reserved_node, member.ask.needs)
            kept[member.uid] = member.reserved_node
        return kept

    def _holder(self, rests: Sequence[Gang]) -> Gang | None:
        """The gang that others wait for, the first by priority: admitted, and not wholly bound."""
        for gang in self._gangs:
            if gang in rests or any(self._patience.counts(member, self._now_s) for member in gang.unbound):
                return gang
        return None

    def _from_queue(self, queue: Sequence[Gang]) -> tuple[Gang | None, Assignment]:
        head: Gang | None = None
        later: FreeCapacity | None = None
        for gang in queue:
            free = self._free(gang.priority)
            if head is None:
                if (reserved_nodes := plan(gang.gated, free, [pod.node for pod in gang.free])) is not None:
                    return self._admitted(gang, reserved_nodes, "all its pods fit")
                lasting = self._lasting(gang.priority)
                if plan(gang.gated, lasting) is None:
                    never = f"even when all jobs have ended, {self._shortage(gang, lasting)}"
                    self._note(gang, NEVER_FITS, never, self._kept(gang))
                else:
                    head, later = gang, self._later(gang)
                    self._note(gang, WAITING, self._shortage(gang), self._kept(gang))
            elif later is not None and (reserved_nodes := plan(gang.gated, free.least(later))) is not None:
                return self._admitted(gang, reserved_nodes, f"it does not delay {head}")
            else:
                self._note(gang, WAITING, BEHIND, str(head))
        return None, {}

    def _later(self, head: Gang) -> FreeCapacity | None:
        """What there will be beside the head once it goes: those before it take no more of that; None for nothing."""
        later = self._room(head.priority, lambda each: not each.ends or each.came_s >= head.complete_s)
        nodes_of_head = plan(head.gated, later)
        if nodes_of_head is None:
            return None
        for member in head.gated:
            later.take(nodes_of_head[member.uid], member.ask.needs)
        return later

    def _room(self, priority: float = math.inf, holds: Callable[[_Settled], bool] = lambda _: True) -> FreeCapacity:
        """What is left for gangs of a priority by those who hold room."""
        capacity = FreeCapacity(self._node_arrays)
        for each in (*self._settled, *self._guessed_before(priority)):
            if holds(each):
                capacity.take(each.node, each.pod.ask.needs)
        return capacity

    def _guessed_before(self, priority: float) -> list[_Settled]:
        return [each for each in self._guessed if each.pod.kind.priority >= priority]

    def _kept(self, gang: Gang) -> str:
        pods = len(self._guessed_before(gang.priority))
        return f"; room is kept for {pods} pods that the scheduler has yet to place" if pods else ""

    def _admitted(self, gang: Gang, reserved_nodes: Assignment, why: str) -> tuple[Gang, Assignment]:
        blind = f"; left to the scheduler: {', '.join(gang.blind)}" if gang.blind else ""
        where = f"on {len(set(reserved_nodes.values()))} nodes"
        self._note(gang, ADMITTED, f"{len(reserved_nodes)} pods go together, {where}: {why}{blind}")
        return gang, reserved_nodes

    def _shortage(self, gang: Gang, capacity: FreeCapacity | None = None) -> str:
        allowed = np.zeros(len(self._node_arrays.places), dtype=bool)
        for ask in {member.ask for member in gang.gated}:
            allowed |= self._node_arrays.allowed(ask.where)
        ruled_out = int((~allowed).sum())
        fit = len(guess(gang.gated, capacity or self._free(gang.priority)))
        words = f"{fit} of {len(gang.gated)} pods fit"
        return f"{words}; {ruled_out} of {len(allowed)} nodes are ruled out" if ruled_out else words

    def _note(self, gang: Gang, reason: str, text: str, detail: str = "") -> None:
        self.notes.append(Note(gang, reason, text, detail))
