"""The capacity that pods leave free on the nodes, and will leave once jobs have ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter

from extender.gangs.gang import Gang
from extender.gangs.member import ENDLESS_OWNERS, Member
from extender.gangs.plan import Assignment, FreeCapacity, NodeArrays, best_fit, plan


@dataclass(frozen=True, slots=True)
class Occupant:
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


def occupants_among(pods: Iterable[Member], now_s: float, bind_within_s: float) -> list[Occupant]:
    """The pods that occupy capacity or are about to: neither finished nor gated, nor unscheduled for `bind_within_s`.
    Otherwise one that waits for its volume, or names a scheduler that does not exist, would block gangs for ever."""

    def expected(each: Occupant) -> bool:
        hopeless = each.pod.unplaceable and not each.node
        return not (each.pod.gates or hopeless or now_s - each.arrived_s >= bind_within_s)  # an unknown time counts

    found = (Occupant(pod, pod.node or pod.reserved_node) for pod in pods if not pod.finished)
    return [each for each in found if each.pod.node or expected(each)]


def _placed_by_guess(
    pods: Iterable[Member], with_reservation: Iterable[Member], free: FreeCapacity
) -> Iterator[Occupant]:
    """Likely nodes of unscheduled pods, higher priorities first; subtracts their needs from `free`, and those of gated
    pods with reservations before those of their equals."""
    priority = attrgetter("membership.priority")
    for _, group in groupby(sorted((*with_reservation, *pods), key=priority, reverse=True), priority):
        waiting = list[Member]()
        for pod in group:
            if pod.reserved_node:
                free.take(pod.reserved_node, pod.requirements.needs)
            else:
                waiting.append(pod)
        nodes = best_fit(waiting, free)
        for pod in waiting:
            if node := nodes.get(pod.uid, ""):
                free.take(node, pod.requirements.needs)
                yield Occupant(pod, node)


class Occupancy:
    """Occupants with a node hold capacity there; unscheduled ones where they would likely go beside gated pods
    `with_reservation`, except against gangs of higher priority."""

    def __init__(
        self, occupants: Iterable[Occupant], with_reservation: Iterable[Member], node_arrays: NodeArrays
    ) -> None:
        occupants = list(occupants)
        self._node_arrays = node_arrays
        self._occupants = [each for each in occupants if each.node]
        self._by_guess: list[Occupant] = []
        unscheduled = [each.pod for each in occupants if not each.node]
        self._by_guess = list(_placed_by_guess(unscheduled, with_reservation, self._left()))
        self.free = cache(self._left)  # by priority of the gang; not to be changed
        self.free_without_jobs = cache(lambda priority: self._left(priority, lambda each: not each.ends))

    def placed_before(self, priority: float) -> list[Occupant]:
        """The unscheduled pods that a gang of this priority makes room for."""
        return [each for each in self._by_guess if each.pod.membership.priority >= priority]

    def later_beside(self, head: Gang) -> FreeCapacity:
        """Capacity left once the pods older than the head have ended, and the head is placed; if it would not fit,
        once all jobs have ended."""
        later = self._left(head.priority, lambda each: not each.ends or each.arrived_s >= head.complete_s)
        if (nodes := plan(head.gated, later)) is None:
            later = self.free_without_jobs(head.priority)
            nodes = plan(head.gated, later) or {}
        return later.without(head.gated, nodes)

    def beside_kept(self, head: Gang, nodes: Assignment) -> FreeCapacity:
        """Capacity whose use does not delay the head, which will go to `nodes`: pods there that do not even fit beside
        it alone have to end first in any case, and do not count. The others may stay."""
        room = self.free_without_jobs(head.priority).without(head.gated, nodes)
        beside, kept = room.copy(), set(nodes.values())
        for each in (*self._occupants, *self.placed_before(head.priority)):
            if each.ends and (each.node not in kept or room.fits(each.node, each.pod.requirements.needs)):
                beside.take(each.node, each.pod.requirements.needs)
        return beside

    def _left(self, priority: float = math.inf, holds: Callable[[Occupant], bool] = lambda _: True) -> FreeCapacity:
        """Capacity free for gangs of a priority, beside the occupants that `holds` selects."""
        capacity = FreeCapacity(self._node_arrays)
        for each in (*self._occupants, *self.placed_before(priority)):
            if holds(each):
                capacity.take(each.node, each.pod.requirements.needs)
        return capacity
