"""Which nodes are reserved for which pods now: what the watch shows of it, each for a bounded time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.pods.pod import Pod
from extender.pods.reservations import Reservation
from recommender.cluster.objects.requests import extended_of


class _Held(NamedTuple):
    reservation: Reservation
    until_s: float
    uids_on: Mapping[str, Sequence[str]]


class Reservations:
    """What counts is replaced as a whole, so that threads need no lock.

    How long a reservation counts is settled when it is first seen, by the clock on the wall, since a restart must not
    renew it; from then on it is measured by one that nobody puts forward or back.

    Parameters
    ----------
    clock, monotonic
        Unix seconds, and monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._held: Sequence[_Held] = ()

    def put(self, told: Iterable[Reservation]) -> None:
        """All there are now."""
        ends = {_moment(held.reservation): held.until_s for held in self._held}
        now_s, monotonic_s = self._clock(), self._monotonic()
        self._held = [
            _Held(each, ends.get(_moment(each), monotonic_s + each.left_s(now_s)), _by_node(each)) for each in told
        ]

    def node_of(self, uid: str) -> str:
        """The node that is reserved for a pod; empty for none."""
        return next((node for each in self._counting() if (node := each.reservation.nodes.get(uid))), "")

    def next_of(self, uid: str) -> Pod | None:
        """What stands for the pod that will take the place of one that is moved; None for any other."""
        return next((_stand_in(each.reservation) for each in self._counting() if _moves(each.reservation, uid)), None)

    def by_node(self) -> Mapping[str, Sequence[str]]:
        """Node -> UIDs of the pods that it is reserved for, bound ones among them."""
        counting = self._counting()
        if len(counting) == 1:
            return counting[0].uids_on
        nodes = {node for held in counting for node in held.uids_on}
        return {node: [uid for held in counting for uid in held.uids_on.get(node, ())] for node in nodes}

    def _counting(self) -> Sequence[_Held]:
        if not self._held:
            return ()
        now_s = self._monotonic()
        return [held for held in self._held if now_s < held.until_s]


def _moves(reservation: Reservation, uid: str) -> bool:
    return bool(reservation.needs) and uid in reservation.nodes


def _stand_in(reservation: Reservation) -> Pod:
    needs = reservation.needs
    return Pod(
        reservation.namespace, reservation.gang, "", "", False, "", "",
        (needs.get("cpu", 0.0), needs.get("memory", 0.0)), (), 0.0, "", {}, True,
        priority=reservation.priority, extended=extended_of(needs),
    )  # fmt: skip


def _moment(reservation: Reservation) -> tuple[str, str, float]:
    """What tells one reservation from the next of the same gang."""
    return reservation.namespace, reservation.gang, reservation.since_s


def _by_node(reservation: Reservation) -> Mapping[str, Sequence[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for uid, node in reservation.nodes.items():
        found[node].append(uid)
    return found
