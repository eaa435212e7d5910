"""Decides which gang to admit, on which nodes, and why the others wait. Pure functions.

Gangs are admitted one at a time, by priority, then in turn (`turns`). What was admitted is visible in the pods' gates
and the reservations, so a new leader continues where a former one died.

- A gang with reservations and gated members (its admission was interrupted) comes first.
- While an admitted gang is not fully bound, a gang of the same or a lower priority waits for it only if one of them
  could take the place of the other (`fit_in_any_order`), for at most `bind_within_s`, and not for pods for which the
  scheduler found no node for another reason than a lack of capacity.
- The head of the queue is the first gang that would fit if all jobs had ended. While it does not fit now, later gangs
  may be admitted before it (backfill) if the head will still fit once the pods older than it have ended. Newer pods
  and pods that never end (of Deployments, DaemonSets etc.) count as staying.
- After `keep_after_s` free capacity is kept for the head, on the emptiest nodes that suffice, as a reservation, which
  the extender enforces. Then later gangs are admitted only where they make the head no later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from extender.gangs.gang import MAX_RESERVED, NOT_READ_YET, Gang, SizeOf, gangs_of, ungated
from extender.gangs.member import GATE, Member, NodeCapacity
from extender.gangs.occupancy import Occupancy, Occupant, occupants_among
from extender.gangs.plan import (
    Assignment,
    FreeCapacity,
    NodeArrays,
    best_fit,
    fit_in_any_order,
    plan,
    plan_on_emptiest,
)
from extender.gangs.turns import Turns, Window
from recommender.base.units import counted

# reasons of events
ADMITTED, WAITING, NEVER_FITS, INCOMPLETE = "GangAdmitted", "GangWaiting", "GangNeverFits", "GangIncomplete"
INVALID, UNBOUND, UNGATED = "GangInvalid", "GangNotBound", "GangNotGated"

WITHOUT_GATE = f"created without the scheduling gate {GATE}: it does not wait for its gang and gets no reservation"
BEHIND = "waits behind "
MAX_NAMED = 3  # names of resources or gates in a text
BackedOff = Mapping[tuple[str, str], str]  # (namespace, name) of gangs in back-off -> why
NO_BACKOFF: BackedOff = MappingProxyType({})
NO_TURNS = Turns()


@dataclass(frozen=True, slots=True)
class Timeouts:
    incomplete_s: float = 10.0  # how long members may be missing before an event says so
    # how long an admitted gang that is not fully bound, or whose rest does not fit, holds up others
    bind_within_s: float = 300.0
    keep_after_s: float = 600.0  # how long the first gang of the queue waits until free capacity is kept for it
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


class Kept(NamedTuple):
    """A gang for which free capacity is kept until it fits, the node of each gated member, and when."""

    gang: Gang
    nodes: Assignment
    window: Window


@dataclass(frozen=True)
class GangDecision:
    # admit, reserved_nodes: the gang to admit, and the node to reserve for each gated member
    admit: Gang | None = None
    reserved_nodes: Assignment = field(default_factory=dict)
    kept: Kept | None = None
    notes: Sequence[Note] = ()
    turns: Turns = NO_TURNS  # for the next decision
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
    turns: Turns = NO_TURNS,
) -> GangDecision:
    """Decide from scratch but for the `turns` of earlier decisions. Gangs in `backed_off`, to be retried later, keep
    their reservations only if partly admitted."""
    pods = list(pods)
    native = [pod for pod in pods if pod.native and pod.alive and GATE in pod.gates]
    gangs = turns.in_order(gangs_of(pods, size_of), now_s)
    notes = [Note(gang, UNGATED, WITHOUT_GATE) for gang in ungated(pods, now_s - timeouts.ungated_s)]
    for gang in gangs:
        if late := [pod for pod in gang.unbound if pod.reserved_node and not timeouts.reservation_valid(pod, now_s)]:
            text = f"{len(late)} of {len(gang.members)} pods were not bound in time; other gangs no longer wait for it"
            notes.append(Note(gang, UNBOUND, text))
    if not any(gang.gated for gang in gangs):
        return GangDecision(native=native, notes=notes)
    occupants = occupants_among(pods, now_s, timeouts.bind_within_s)
    occupants += [
        Occupant(pod, pod.reserved_node)
        for gang in gangs
        if gang.key in backed_off and _partly_admitted(gang)
        for pod in gang.gated
        if timeouts.reservation_valid(pod, now_s)
    ]
    round_ = _AdmissionRound(gangs, occupants, NodeArrays(nodes), now_s, timeouts, backed_off, turns)
    admit, reserved_nodes = round_.choose()
    kept = round_.kept
    with_reservation = {gang.key for gang in (admit, kept and kept.gang) if gang is not None}
    others = [gang for gang in gangs if gang.key not in with_reservation and not _partly_admitted(gang)]
    # a leader died before removing a gate, or another gang is the head now
    stale = [pod for gang in others for pod in gang.gated if pod.reserved_node]
    after = turns.after(gangs, admit, kept and (kept.gang, kept.window), now_s)
    return GangDecision(admit, reserved_nodes, kept, notes + round_.notes, after, native, stale)


def _partly_admitted(gang: Gang) -> bool:
    """Whether any member with a reservation is past the gate."""
    return any(member.reserved_node for member in gang.past_gate)


class _AdmissionRound:
    """One decision."""

    def __init__(
        self,
        gangs: list[Gang],
        occupants: Iterable[Occupant],
        node_arrays: NodeArrays,
        now_s: float,
        timeouts: Timeouts,
        backed_off: BackedOff,
        turns: Turns,
    ) -> None:
        self._gangs, self._now_s, self._timeouts, self._backed_off = gangs, now_s, timeouts, backed_off
        self._node_arrays, self._turns = node_arrays, turns
        self.notes: list[Note] = []
        self.kept: Kept | None = None
        self._being_placed: Sequence[tuple[Gang, Sequence[Member]]] = ()
        with_nodes = ((gang, sum(bool(pod.reserved_node) for pod in gang.members if not pod.node)) for gang in gangs)
        self._reserved = [(gang, pods) for gang, pods in with_nodes if pods]
        gated = [member for gang in gangs if self._in_progress(gang) for member in gang.gated]
        self._occupancy = Occupancy(occupants, gated, node_arrays)

    def choose(self) -> tuple[Gang | None, Assignment]:
        ready = [gang for gang in self._gangs if gang.gated and self._is_ready(gang)]
        interrupted = [gang for gang in ready if self._in_progress(gang) and gang.key not in self._turns.windows]
        for gang in interrupted:
            if (reserved_nodes := self._nodes_for_rest(gang)) is not None:
                return self._admit(gang, reserved_nodes, "its remaining pods now fit")
        partial = [gang for gang in interrupted if _partly_admitted(gang)]
        for gang in partial:
            text = f"{self._shortage(gang)}; its other pods are past the gate"
            self._note(gang, WAITING, text, self._pending_detail(gang))
        self._being_placed = [
            (gang, rivals)
            for gang in self._gangs
            if (rivals := (*(gang.gated if gang in partial else ()), *filter(self._holds_up, gang.unbound)))
        ]
        return self._from_queue([gang for gang in ready if gang not in partial])

    def _in_progress(self, gang: Gang) -> bool:
        """Whether gated members have valid reservations, so that its admission can be completed with them."""
        return gang.key not in self._backed_off and any(
            self._timeouts.reservation_valid(member, self._now_s) for member in gang.gated
        )

    def _holds_up(self, member: Member) -> bool:
        """Whether others may have to wait until this admitted pod is bound."""
        return self._timeouts.reservation_valid(member, self._now_s) and not member.unplaceable

    def _is_ready(self, gang: Gang) -> bool:
        if gang.problem:
            self._note(gang, INVALID, gang.problem)
        elif gang.size == NOT_READ_YET.pods:
            self._note(gang, WAITING, "the size of its job has not been read yet")
        elif gang.missing:
            if self._now_s - gang.complete_s >= self._timeouts.incomplete_s:
                self._note(gang, INCOMPLETE, f"{len(gang.members) + gang.ended} of {gang.size} pods exist")
        elif gang.other_gates:
            self._note(gang, WAITING, f"held by other scheduling gates: {_named(gang.other_gates)}")
        elif gang.key in self._backed_off:
            self._note(gang, WAITING, self._backed_off[gang.key])
        else:
            return True
        return False

    def _nodes_for_rest(self, gang: Gang) -> Assignment | None:
        """Nodes for the gated members of a gang in progress: the reserved ones if all still fit, else new ones if some
        are past the gate."""
        free = self._occupancy.free(gang.priority)
        if reserved_nodes := free.reserved_nodes(gang.gated):
            return reserved_nodes
        existing = [member.node or member.reserved_node for member in gang.past_gate]
        return plan(gang.gated, free, existing) if existing else None

    def _from_queue(self, queue: Sequence[Gang]) -> tuple[Gang | None, Assignment]:
        head: Gang | None = None
        beside: FreeCapacity | None = None
        for gang in queue:
            free = self._occupancy.free(gang.priority)
            if beside is not None:
                free = free.minimum(beside)
            nodes = free.reserved_nodes(gang.gated) if self._in_progress(gang) else None
            nodes = nodes or plan(gang.gated, free, [pod.node for pod in gang.past_gate])
            rival = None if nodes is None else self._rival(gang) or self._holder_of_too_many(gang)
            if nodes is not None and rival is None:
                return self._admit(gang, nodes, "all pods fit" if head is None else f"does not delay {head}")
            if rival is not None:
                self._note(gang, WAITING, BEHIND, f"{rival}, which is being placed")
            elif head is not None:
                self._note(gang, WAITING, BEHIND, str(head))
            if head is None and (nodes is not None or self._fits_without_jobs(gang)):
                head, beside = gang, self._free_beside(gang, nodes)
        return None, {}

    def _holder_of_too_many(self, gang: Gang) -> Gang | None:
        """A gang with reservations, if there is no place for those of another."""
        others = [(each, count) for each, count in self._reserved if each is not gang]
        too_many = sum(count for _, count in others) + len(gang.gated) > MAX_RESERVED
        return others[0][0] if others and too_many else None

    def _fits_without_jobs(self, gang: Gang) -> bool:
        without_jobs = self._occupancy.free_without_jobs(gang.priority)
        if plan(gang.gated, without_jobs) is not None:
            return True
        never = f"even when all jobs have ended, {self._shortage(gang, without_jobs)}"
        self._note(gang, NEVER_FITS, never, self._pending_detail(gang))
        return False

    def _free_beside(self, head: Gang, nodes: Assignment | None) -> FreeCapacity:
        """Capacity for the gangs behind the head, which would fit on `nodes` but for a gang that is being placed, or
        does not fit."""
        free = self._occupancy.free(head.priority)
        window = self._turns.window_of(head, self._now_s, self._timeouts.keep_after_s)
        if nodes is not None:
            self.kept = Kept(head, nodes, window) if window and self._in_progress(head) else None
            return free.without(head.gated, nodes)
        if window is None or self._holder_of_too_many(head) is not None:
            self._note(head, WAITING, self._shortage(head), self._pending_detail(head))
            return self._occupancy.later_beside(head)
        without_jobs = self._occupancy.free_without_jobs(head.priority)
        nodes = without_jobs.reserved_nodes(head.gated) or plan_on_emptiest(head.gated, without_jobs, free) or {}
        self.kept = Kept(head, nodes, window)
        where = f"free capacity is kept for it on {counted(len(set(nodes.values())), 'node')}"
        self._note(head, WAITING, f"{self._shortage(head)}; {where}", self._pending_detail(head))
        return self._occupancy.beside_kept(head, nodes)

    def _rival(self, gang: Gang) -> Gang | None:
        """An admitted gang that is not wholly bound, if its pods could take the place of these, or these their place:
        a scheduler that knows no reservations may put any of them anywhere."""
        mine = self._node_arrays.allowed_for_any(gang.gated)
        shares_nodes = cache(lambda constraints: bool((self._node_arrays.allowed(constraints) & mine).any()))
        near = [
            (other, pod)
            for other, pods in self._being_placed
            if other is not gang and other.priority >= gang.priority
            for pod in pods
            if shares_nodes(pod.requirements.constraints)
        ]
        if not near:
            return None
        free = self._occupancy.free(gang.priority).copy()
        for _, pod in near:
            if GATE not in pod.gates:
                free.give_back(pod.reserved_node, pod.requirements.needs)
        return None if fit_in_any_order([*gang.gated, *(pod for _, pod in near)], free) else near[0][0]

    def _pending_detail(self, gang: Gang) -> str:
        pods = len(self._occupancy.placed_before(gang.priority))
        return f"; capacity is set aside for {counted(pods, 'pod')} not scheduled yet" if pods else ""

    def _admit(self, gang: Gang, reserved_nodes: Assignment, why: str) -> tuple[Gang, Assignment]:
        unchecked = f"; left to the scheduler: {', '.join(gang.unchecked)}" if gang.unchecked else ""
        where = f"on {counted(len(set(reserved_nodes.values())), 'node')}"
        self._note(gang, ADMITTED, f"{counted(len(reserved_nodes), 'pod')} admitted together {where}: {why}{unchecked}")
        return gang, reserved_nodes

    def _shortage(self, gang: Gang, capacity: FreeCapacity | None = None) -> str:
        allowed = self._node_arrays.allowed_for_any(gang.gated)
        kinds = {member.requirements for member in gang.gated}
        needs = {name for kind in kinds for name, amount in kind.needs if amount > 0.0}
        ruled_out = int((~allowed).sum())
        fit = len(best_fit(gang.gated, capacity or self._occupancy.free(gang.priority)))
        text = f"{fit} of {len(gang.gated)} pods fit"
        if missing := sorted(needs - self._node_arrays.offered):
            text += f"; no node offers {_named(missing)}"
        return f"{text}; {ruled_out} of {len(allowed)} nodes are ruled out" if ruled_out else text

    def _note(self, gang: Gang, reason: str, text: str, detail: str = "") -> None:
        self.notes.append(Note(gang, reason, text, detail))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
