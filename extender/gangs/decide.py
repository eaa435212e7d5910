"""Decides which gang to admit, on which nodes, and why the others wait. Pure functions.

Gangs are admitted one at a time, by priority, then age. All earlier decisions are visible in the pods' gates and the
reservations, so a new leader continues where a former one died.

- A gang with reservations and gated members (its admission was interrupted) comes first.
- While an admitted gang is not fully bound, no gang of the same or a lower priority is admitted, for at most
  `bind_within_s`.
- The head of the queue is the first gang that would fit if all jobs had ended. While it does not fit now, later gangs
  may be admitted before it (backfill) if the head will still fit once the pods older than it have ended. Newer pods
  and pods that never end (of Deployments, DaemonSets etc.) count as staying, so backfill never delays the head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from extender.gangs.gang import NOT_READ_YET, Gang, SizeOf, gangs_of, ungated
from extender.gangs.member import ENDLESS_OWNERS, GATE, Member, NodeCapacity
from extender.gangs.plan import Assignment, FreeCapacity, NodeArrays, best_fit, plan
from recommender.units import counted

# reasons of events
ADMITTED, WAITING, NEVER_FITS, INCOMPLETE = "GangAdmitted", "GangWaiting", "GangNeverFits", "GangIncomplete"
INVALID, UNBOUND, UNGATED = "GangInvalid", "GangNotBound", "GangNotGated"

WITHOUT_GATE = f"created without the scheduling gate {GATE}: it does not wait for its gang and gets no reservation"
BEHIND = "waits behind "
MAX_NAMED = 3  # names of resources in a text
BackedOff = Mapping[tuple[str, str], str]  # (namespace, name) of gangs in back-off -> why
NO_BACKOFF: BackedOff = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Timeouts:
    incomplete_s: float = 10.0  # how long members may be missing before an event says so
    # how long an admitted gang that is not fully bound, or whose rest does not fit, holds up others
    bind_within_s: float = 300.0
    ungated_s: float = 600.0  # how long after the creation of an ungated member events say so

    def reservation_valid(self, member: Member, now_s: float) -> bool:
        """Whether a pod's reservation still counts; a clock set back does not extend it."""
        return bool(member.reserved_node) and abs(now_s - member.reserved_since_s) < self.bind_within_s


@dataclass(frozen=True, slots=True)
class Note:
    """What an event says of a gang. A change of the `detail` behind the text alone is no reason to write it again, as
    it changes often."""

    gang: Gang
    reason: str
    text: str
    detail: str = ""

    @property
    def message(self) -> str:
        return self.text + self.detail


@dataclass(frozen=True)
class GangDecision:
    # admit, reserved_nodes: the gang to admit, and the node to reserve for each gated member
    admit: Gang | None = None
    reserved_nodes: Assignment = field(default_factory=dict)
    notes: Sequence[Note] = ()
    # pods with our gate that belong to a Kubernetes PodGroup, which the scheduler handles itself
    native: Sequence[Member] = ()
    stale: Sequence[Member] = ()  # gated pods whose reservation is to be released


def decide(
    pods: Iterable[Member],
    nodes: Iterable[NodeCapacity],
    size_of: SizeOf,
    now_s: float,
    timeouts: Timeouts,
    backed_off: BackedOff = NO_BACKOFF,
) -> GangDecision:
    """Decide from scratch. Gangs in `backed_off`, to be retried later, keep their reservations only if partly
    admitted."""
    pods = list(pods)
    native = [pod for pod in pods if pod.native and pod.alive and GATE in pod.gates]
    gangs = gangs_of(pods, size_of)
    notes = [Note(gang, UNGATED, WITHOUT_GATE) for gang in ungated(pods, now_s - timeouts.ungated_s)]
    for gang in gangs:
        if late := [pod for pod in gang.unbound if pod.reserved_node and not timeouts.reservation_valid(pod, now_s)]:
            text = f"{len(late)} of {len(gang.members)} pods were not bound in time; other gangs no longer wait for it"
            notes.append(Note(gang, UNBOUND, text))
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
    round_ = _AdmissionRound(gangs, occupants, NodeArrays(nodes), now_s, timeouts, backed_off)
    admit, reserved_nodes = round_.choose()
    others = [gang for gang in gangs if gang is not admit and not _partly_admitted(gang)]
    stale = [pod for gang in others for pod in gang.gated if pod.reserved_node]  # a leader died before removing a gate
    return GangDecision(admit, reserved_nodes, notes + round_.notes, native, stale)


def _partly_admitted(gang: Gang) -> bool:
    """Whether any member with a reservation is past the gate."""
    return any(member.reserved_node for member in gang.past_gate)


@dataclass(frozen=True, slots=True)
class _Occupant:
    """A pod that occupies capacity, and its node: empty while the scheduler has not chosen one."""

    pod: Member
    node: str

    @property
    def arrived_s(self) -> float:
        reserved_s = self.pod.reserved_since_s
        return self.pod.created_s if math.isnan(reserved_s) else max(self.pod.created_s, reserved_s)

    @property
    def ends(self) -> bool:
        return self.pod.owner is None or self.pod.owner.kind not in ENDLESS_OWNERS


def _occupants(pods: Iterable[Member], now_s: float, timeouts: Timeouts) -> list[_Occupant]:
    """The pods that occupy capacity or are about to: neither finished nor gated, nor unscheduled for `bind_within_s`.
    Otherwise one that waits for its volume, or names a scheduler that does not exist, would block gangs for ever."""

    def expected(each: _Occupant) -> bool:
        return not (each.pod.gates or now_s - each.arrived_s >= timeouts.bind_within_s)  # an unknown time counts

    found = (_Occupant(pod, pod.node or pod.reserved_node) for pod in pods if not pod.finished)
    return [each for each in found if each.pod.node or expected(each)]


def _placed_by_guess(pods: Iterable[Member], free: FreeCapacity) -> Iterator[_Occupant]:
    """Likely nodes of unscheduled pods, higher priorities first; subtracts their needs from `free`."""
    priority = attrgetter("membership.priority")
    for _, group in groupby(sorted(pods, key=priority, reverse=True), priority):
        equals = list(group)
        nodes = best_fit(equals, free)
        for pod in equals:
            if node := nodes.get(pod.uid, ""):
                free.take(node, pod.requirements.needs)
                yield _Occupant(pod, node)


class _AdmissionRound:
    """One decision. Occupants with a node hold capacity there; unscheduled ones where they would likely go, except
    against gangs of higher priority."""

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
        ready = [gang for gang in self._gangs if gang.gated and self._is_ready(gang)]
        for gang in filter(self._in_progress, ready):
            if (reserved_nodes := self._nodes_for_rest(gang)) is not None:
                return self._admit(gang, reserved_nodes, "its remaining pods now fit")
        partial = [gang for gang in ready if self._in_progress(gang) and _partly_admitted(gang)]
        queue = [gang for gang in ready if gang not in partial]
        for gang in partial:
            text = f"{self._shortage(gang)}; its other pods are past the gate"
            self._note(gang, WAITING, text, self._pending_detail(gang))
        if blocking := self._blocking_gang(partial):
            for gang in queue:
                if gang.priority <= blocking.priority:
                    self._note(gang, WAITING, BEHIND, f"{blocking}, which is being placed")
            queue = [gang for gang in queue if gang.priority > blocking.priority]
        return self._from_queue(queue)

    def _in_progress(self, gang: Gang) -> bool:
        """Whether gated members have valid reservations, so that its admission can be completed with them."""
        return gang.key not in self._backed_off and any(
            self._timeouts.reservation_valid(member, self._now_s) for member in gang.gated
        )

    def _is_ready(self, gang: Gang) -> bool:
        if gang.problem:
            self._note(gang, INVALID, gang.problem)
        elif gang.size == NOT_READ_YET.pods:
            self._note(gang, WAITING, "the size of its job has not been read yet")
        elif gang.missing:
            if self._now_s - gang.complete_s >= self._timeouts.incomplete_s:
                self._note(gang, INCOMPLETE, f"{len(gang.members) + gang.ended} of {gang.size} pods exist")
        elif gang.other_gates:
            self._note(gang, WAITING, f"held by other scheduling gates: {', '.join(gang.other_gates)}")
        elif gang.key in self._backed_off:
            self._note(gang, WAITING, self._backed_off[gang.key])
        else:
            return True
        return False

    def _nodes_for_rest(self, gang: Gang) -> Assignment | None:
        """Nodes for the gated members of a gang in progress: the reserved ones if all still fit, else new ones."""
        capacity = self._free(gang.priority).copy()
        kept: dict[str, str] = {}
        for member in gang.gated:
            node = capacity.node_arrays.index.get(member.reserved_node)
            if node is None or not capacity.pods_that_fit(member.requirements)[node]:
                existing = [member.node or member.reserved_node for member in gang.past_gate]
                return plan(gang.gated, self._free(gang.priority), existing) if existing else None
            capacity.take(member.reserved_node, member.requirements.needs)
            kept[member.uid] = member.reserved_node
        return kept

    def _blocking_gang(self, partial: Sequence[Gang]) -> Gang | None:
        """The first admitted gang that is not fully bound, which others wait for."""
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
                if (reserved_nodes := plan(gang.gated, free, [pod.node for pod in gang.past_gate])) is not None:
                    return self._admit(gang, reserved_nodes, "all pods fit")
                free_without_jobs = self._free_without_jobs(gang.priority)
                if plan(gang.gated, free_without_jobs) is None:
                    never = f"even when all jobs have ended, {self._shortage(gang, free_without_jobs)}"
                    self._note(gang, NEVER_FITS, never, self._pending_detail(gang))
                else:
                    head, later = gang, self._free_beside(gang)
                    self._note(gang, WAITING, self._shortage(gang), self._pending_detail(gang))
            elif later is not None and (reserved_nodes := plan(gang.gated, free.minimum(later))) is not None:
                return self._admit(gang, reserved_nodes, f"does not delay {head}")
            else:
                self._note(gang, WAITING, BEHIND, str(head))
        return None, {}

    def _free_beside(self, head: Gang) -> FreeCapacity | None:
        """Capacity left once older pods have ended and the head is placed; None if the head would not fit."""
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
        """Capacity free for gangs of a priority, beside the occupants that `holds` selects."""
        capacity = FreeCapacity(self._node_arrays)
        for each in (*self._occupants, *self._placed_before(priority)):
            if holds(each):
                capacity.take(each.node, each.pod.requirements.needs)
        return capacity

    def _placed_before(self, priority: float) -> list[_Occupant]:
        return [each for each in self._placed_by_guess if each.pod.membership.priority >= priority]

    def _pending_detail(self, gang: Gang) -> str:
        pods = len(self._placed_before(gang.priority))
        return f"; capacity is set aside for {counted(pods, 'pod')} not scheduled yet" if pods else ""

    def _admit(self, gang: Gang, reserved_nodes: Assignment, why: str) -> tuple[Gang, Assignment]:
        unchecked = f"; left to the scheduler: {', '.join(gang.unchecked)}" if gang.unchecked else ""
        where = f"on {counted(len(set(reserved_nodes.values())), 'node')}"
        self._note(gang, ADMITTED, f"{counted(len(reserved_nodes), 'pod')} admitted together {where}: {why}{unchecked}")
        return gang, reserved_nodes

    def _shortage(self, gang: Gang, capacity: FreeCapacity | None = None) -> str:
        allowed, needs = np.zeros(len(self._node_arrays.nodes), dtype=bool), set[str]()
        for requirements in {member.requirements for member in gang.gated}:
            allowed |= self._node_arrays.allowed(requirements.constraints)
            needs |= {name for name, amount in requirements.needs if amount > 0.0}
        ruled_out = int((~allowed).sum())
        fit = len(best_fit(gang.gated, capacity or self._free(gang.priority)))
        text = f"{fit} of {len(gang.gated)} pods fit"
        if missing := sorted(needs - self._node_arrays.offered):
            text += f"; no node offers {', '.join(missing[:MAX_NAMED])}"
        return f"{text}; {ruled_out} of {len(allowed)} nodes are ruled out" if ruled_out else text

    def _note(self, gang: Gang, reason: str, text: str, detail: str = "") -> None:
        self.notes.append(Note(gang, reason, text, detail))
