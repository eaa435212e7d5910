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
from extender.gangs.member import ENDLESS_OWNERS, GATE, Member, NodeCapacity
from extender.gangs.plan import Assignment, FreeCapacity, NodeArrays, best_fit, plan

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

BackedOff = Mapping[tuple[str, str], str]
"""(namespace, name) of gangs -> why they are left alone for a while."""

NO_BACKOFF: BackedOff = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Timeouts:
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

    def reservation_valid(self, member: Member, now_s: float) -> bool:
        """Whether a node is reserved for a pod still. A clock that was put back makes it no longer."""
        return bool(member.reserved_node) and abs(now_s - member.reserved_since_s) < self.bind_within_s


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
    places: Iterable[NodeCapacity],
    size_of: SizeOf,
    now_s: float,
    timeouts: Timeouts,
    backed_off: BackedOff = NO_BACKOFF,
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
    notes = [Note(gang, UNGATED, WITHOUT_GATE) for gang in ungated(pods, now_s - timeouts.ungated_s)]
    notes += [note for gang in gangs if (note := _unbound_note(gang, now_s, timeouts))]
    if not any(gang.gated for gang in gangs):
        return GangDecision(native=native, notes=notes)
    occupants = _occupants(pods, now_s, timeouts)
    occupants += [
        _Occupant(pod, pod.reserved_node)
        for gang in gangs
        if gang.key in backed_off and _partly_admitted(gang)
        for pod in gang.gated
        if timeouts.reservation_valid(pod, now_s)
    ]
    round_ = _AdmissionRound(gangs, occupants, NodeArrays(places), now_s, timeouts, backed_off)
    admit, reserved_nodes = round_.choose()
    stale = [
        pod
        for gang in gangs
        if gang is not admit and not _partly_admitted(gang)
        for pod in gang.gated
        if pod.reserved_node
    ]  # a controller died before it had opened any gate
    return GangDecision(admit, reserved_nodes, notes + round_.notes, native, stale)


def _partly_admitted(gang: Gang) -> bool:
    """Some for which a node is reserved are past the gate."""
    return any(GATE not in member.gates for member in gang.with_reservation)


@dataclass(frozen=True, slots=True)
class _Occupant:
    """A pod that takes room, and where: by guess, or empty, where the scheduler has yet to choose."""

    pod: Member
    node: str

    @property
    def arrived_s(self) -> float:
        return max(
            self.pod.created_s, -math.inf if math.isnan(self.pod.reserved_since_s) else self.pod.reserved_since_s
        )

    @property
    def ends(self) -> bool:
        return self.pod.owner is None or self.pod.owner.kind not in ENDLESS_OWNERS


def _occupants(pods: Iterable[Member], now_s: float, timeouts: Timeouts) -> list[_Occupant]:
    """Whoever holds room, or is about to: all but the finished and those at a gate.

    A pod that the scheduler has not placed for long is expected no more: else one that waits for its volume, or names a
    scheduler that is not there, would keep the gangs from what it looks as if it could use.
    """
    found = [_Occupant(pod, pod.node or pod.reserved_node) for pod in pods if not pod.finished]
    return [
        each
        for each in found
        if each.pod.node or not (each.pod.gates or now_s - each.arrived_s >= timeouts.bind_within_s)
    ]


def _placed_by_guess(pods: Iterable[Member], room: FreeCapacity) -> Iterator[_Occupant]:
    """Where pods may go that the scheduler has yet to place, the higher priority first; takes what they need."""
    for _, alike in groupby(sorted(pods, key=_descending_priority), _descending_priority):
        equals = list(alike)
        nodes = best_fit(equals, room)
        for pod in equals:
            if node := nodes.get(pod.uid, ""):
                room.take(node, pod.requirements.needs)
                yield _Occupant(pod, node)


def _descending_priority(pod: Member) -> int:
    return -pod.membership.priority


def _unbound_note(gang: Gang, now_s: float, timeouts: Timeouts) -> Note | None:
    late = [pod for pod in gang.unbound if pod.reserved_node and not timeouts.reservation_valid(pod, now_s)]
    text = f"{len(late)} of {len(gang.members)} pods are not bound in time; others go on"
    return Note(gang, UNBOUND, text) if late else None


class _AdmissionRound:
    """What one decision knows. Whoever is settled holds room; who has no node yet where it fits first, and not against
    gangs of higher priority.
    """

    def __init__(
        self,
        gangs: list[Gang],
        occupants: list[_Occupant],
        node_arrays: NodeArrays,
        now_s: float,
        timeouts: Timeouts,
        backed_off: BackedOff,
    ) -> None:
        self._gangs, self._now_s, self._timeouts, self._backed_off = gangs, now_s, timeouts, backed_off
        self._node_arrays = node_arrays
        self._occupants = [each for each in occupants if each.node]
        self._placed_by_guess: Sequence[_Occupant] = ()
        self.notes: list[Note] = []
        free = self._free_capacity()
        for member in (member for gang in gangs if self._in_progress(gang) for member in gang.gated):
            free.take(member.reserved_node, member.requirements.needs)
        self._placed_by_guess = list(_placed_by_guess([each.pod for each in occupants if not each.node], free))
        self._free = cache(self._free_capacity)
        self._free_without_jobs = cache(lambda priority: self._free_capacity(priority, lambda each: not each.ends))

    def choose(self) -> tuple[Gang | None, Assignment]:
        """The gang to admit, with the nodes reserved for it."""
        ready = [gang for gang in self._gangs if gang.gated and self._is_ready(gang)]
        for gang in filter(self._in_progress, ready):
            if (reserved_nodes := self._nodes_for_rest(gang)) is not None:
                return self._admit(gang, reserved_nodes, "the rest of it fits now")
        partial = [gang for gang in ready if self._in_progress(gang) and _partly_admitted(gang)]
        queue = [gang for gang in ready if gang not in partial]
        for gang in partial:
            self._note(
                gang, WAITING, f"{self._shortage(gang)}; the others of it are past the gate", self._pending_detail(gang)
            )
        if blocking := self._blocking_gang(partial):
            for gang in queue:
                if gang.priority <= blocking.priority:
                    self._note(gang, WAITING, BEHIND, f"{blocking}, which is being placed")
            queue = [gang for gang in queue if gang.priority > blocking.priority]
        return self._from_queue(queue)

    def _in_progress(self, gang: Gang) -> bool:
        """Nodes were reserved for what is at the gate; what was not yet done is done by that."""
        return gang.key not in self._backed_off and any(
            self._timeouts.reservation_valid(member, self._now_s) for member in gang.gated
        )

    def _is_ready(self, gang: Gang) -> bool:
        if gang.problem:
            self._note(gang, INVALID, gang.problem)
        elif gang.missing:
            there = len(gang.members) + gang.succeeded
            if self._now_s - gang.complete_s >= self._timeouts.incomplete_s:
                self._note(gang, INCOMPLETE, f"{there} of {gang.size} pods are there")
        elif gang.other_gates:
            self._note(gang, WAITING, f"other gates hold it: {', '.join(gang.other_gates)}")
        elif gang.key in self._backed_off:
            self._note(gang, WAITING, self._backed_off[gang.key])
        else:
            return True
        return False

    def _nodes_for_rest(self, gang: Gang) -> Assignment | None:
        """Nodes for those of a gang under way that are still at the gate: their old ones where these still hold."""
        capacity = self._free(gang.priority).copy()
        kept: dict[str, str] = {}
        for member in gang.gated:
            node = capacity.node_arrays.index.get(member.reserved_node)
            if node is None or not capacity.pods_that_fit(member.requirements)[node]:
                there = [member.node or member.reserved_node for member in gang.free]
                return plan(gang.gated, self._free(gang.priority), there) if there else None
            capacity.take(member.reserved_node, member.requirements.needs)
            kept[member.uid] = member.reserved_node
        return kept

    def _blocking_gang(self, partial: Sequence[Gang]) -> Gang | None:
        """The gang that others wait for, the first by priority: admitted, and not wholly bound."""
        for gang in self._gangs:
            if gang in partial or any(self._timeouts.reservation_valid(member, self._now_s) for member in gang.unbound):
                return gang
        return None

    def _from_queue(self, queue: Sequence[Gang]) -> tuple[Gang | None, Assignment]:
        head: Gang | None = None
        later: FreeCapacity | None = None
        for gang in queue:
            free = self._free(gang.priority)
            if head is None:
                if (reserved_nodes := plan(gang.gated, free, [pod.node for pod in gang.free])) is not None:
                    return self._admit(gang, reserved_nodes, "all its pods fit")
                still_needed = self._free_without_jobs(gang.priority)
                if plan(gang.gated, still_needed) is None:
                    never = f"even when all jobs have ended, {self._shortage(gang, still_needed)}"
                    self._note(gang, NEVER_FITS, never, self._pending_detail(gang))
                else:
                    head, later = gang, self._free_beside(gang)
                    self._note(gang, WAITING, self._shortage(gang), self._pending_detail(gang))
            elif later is not None and (reserved_nodes := plan(gang.gated, free.minimum(later))) is not None:
                return self._admit(gang, reserved_nodes, f"it does not delay {head}")
            else:
                self._note(gang, WAITING, BEHIND, str(head))
        return None, {}

    def _free_beside(self, head: Gang) -> FreeCapacity | None:
        """What there will be beside the head once it goes: those before it take no more of that; None for nothing."""
        later = self._free_capacity(head.priority, lambda each: not each.ends or each.arrived_s >= head.complete_s)
        nodes_of_head = plan(head.gated, later)
        if nodes_of_head is None:
            return None
        for member in head.gated:
            later.take(nodes_of_head[member.uid], member.requirements.needs)
        return later

    def _free_capacity(
        self, priority: float = math.inf, holds: Callable[[_Occupant], bool] = lambda _: True
    ) -> FreeCapacity:
        """What is left for gangs of a priority by those who hold room."""
        capacity = FreeCapacity(self._node_arrays)
        for each in (*self._occupants, *self._placed_before(priority)):
            if holds(each):
                capacity.take(each.node, each.pod.requirements.needs)
        return capacity

    def _placed_before(self, priority: float) -> list[_Occupant]:
        return [each for each in self._placed_by_guess if each.pod.membership.priority >= priority]

    def _pending_detail(self, gang: Gang) -> str:
        pods = len(self._placed_before(gang.priority))
        return f"; room is kept for {pods} pods that the scheduler has yet to place" if pods else ""

    def _admit(self, gang: Gang, reserved_nodes: Assignment, why: str) -> tuple[Gang, Assignment]:
        unchecked = f"; left to the scheduler: {', '.join(gang.unchecked)}" if gang.unchecked else ""
        constraints = f"on {len(set(reserved_nodes.values()))} nodes"
        self._note(gang, ADMITTED, f"{len(reserved_nodes)} pods go together, {constraints}: {why}{unchecked}")
        return gang, reserved_nodes

    def _shortage(self, gang: Gang, capacity: FreeCapacity | None = None) -> str:
        allowed = np.zeros(len(self._node_arrays.places), dtype=bool)
        for requirements in {member.requirements for member in gang.gated}:
            allowed |= self._node_arrays.allowed(requirements.constraints)
        ruled_out = int((~allowed).sum())
        fit = len(best_fit(gang.gated, capacity or self._free(gang.priority)))
        words = f"{fit} of {len(gang.gated)} pods fit"
        return f"{words}; {ruled_out} of {len(allowed)} nodes are ruled out" if ruled_out else words

    def _note(self, gang: Gang, reason: str, text: str, detail: str = "") -> None:
        self.notes.append(Note(gang, reason, text, detail))
