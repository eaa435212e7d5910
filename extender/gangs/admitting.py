"""Lets a gang go: reserves a node for each member first, then opens the gates one after the other.

All are reserved by one write while every gate is still shut. A controller that dies before the first gate is open
leaves members that wait as before; one that dies after it leaves the nodes of all others reserved, and the next goes on
with these. No write is done without leading, and none is blind: a reservation names the pod's UID and the version it is
written over, the opening of a gate the UID and the gate.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from extender.errors import ExtenderError
from extender.gangs.gang import Gang
from extender.gangs.ledger import Ledger
from extender.gangs.member import Member
from extender.gangs.names import GATE, RESERVED_NODE
from extender.gangs.plan import Assignment
from extender.pods.reservations import Reservation
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.paths import PODS, path_of

log = logging.getLogger(__name__)


class NotLeading(ExtenderError):
    """Somebody else may act by now: stop at once."""


class Admitter:
    """Reserves and opens gates. Every method raises an `ApiError` for what could not be done, or `NotLeading`.

    Parameters
    ----------
    leads
        Asked before every write.
    opened
        Told of each pod that is not held by our gate any more, before the watch shows it.
    """

    def __init__(
        self, api: Api, ledger: Ledger, leads: Callable[[], bool], opened: Callable[[Member], None] = lambda _: None
    ) -> None:
        self._api, self._ledger, self._leads, self._opened = api, ledger, leads, opened

    def admit(self, gang: Gang, reserved_nodes: Assignment, now_s: float, hold_s: float) -> None:
        """Reserve all nodes, then open all gates. What is reserved as it should be is not reserved for longer."""
        new = {
            member.uid: reserved_nodes[member.uid]
            for member in gang.gated
            if member.reserved_node != reserved_nodes[member.uid]
        }
        if new:
            self._must_lead()
            made = Reservation(gang.namespace, gang.name, round(now_s, 3), float(math.ceil(hold_s)), new)
            self._ledger.write([*(each.without(new.keys()) for each in self._ledger.known()), made])
        for member in gang.gated:
            self.open(member, reserved_nodes[member.uid])

    def keep(self, reservations: Sequence[Reservation]) -> None:
        """These and no others are needed any longer."""
        self._must_lead()
        self._ledger.write(reservations)

    def open(self, member: Member, node: str = "") -> None:
        """Open our gate of a pod, unless it is gone; the node is for people, and not told where it finds no room."""
        self._must_lead()
        try:
            self._api.patch(_path(member), opening(member.uid, node), strategic=True)
        except (NotFound, Conflict):
            log.info("%s is gone", member)  # or another has its name
        except Invalid:
            if not node:
                raise
            self.open(member)
        self._opened(member)

    def _must_lead(self) -> None:
        if not self._leads():
            raise NotLeading("no longer leading: stopped in the middle")


def opening(uid: str, node: str) -> dict[str, Any]:
    """The patch that takes our gate off the very pod that was seen, if it is still there, and says what is reserved."""
    told = {"annotations": {RESERVED_NODE: node}} if node else {}
    return {"metadata": {"uid": uid, **told}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}


def _path(member: Member) -> str:
    return path_of(PODS, member.key.namespace, member.key.name)
