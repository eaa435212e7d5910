"""Lets a gang go: reserves a node for each member first, then opens the gates one after the other.

All seats are written while every gate is still shut. A controller that dies before the first gate is open leaves
members that wait as before; one that dies after it leaves the node of every other on the pod, and the next controller
goes on with these. No write is done without leading, and none is blind: an annotation names the pod's UID, the opening
of a gate the gate and its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from extender.gangs.member import Member
from extender.gangs.names import ADMITTED, GATE
from extender.gangs.plan import Plan
from extender.gangs.reading import read_member
from extender.pods.pod import SEAT_ANNOTATION
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.paths import PODS, path_of

log = logging.getLogger(__name__)

TRIES = 4
"""Of one gate; each after the first reads the pod anew."""


class NotLeading(Exception):
    """Somebody else may act by now: stop at once."""


class Admitter:
    """Writes to pods. Every method raises an `ApiError` for what could not be done, or `NotLeading`.

    Parameters
    ----------
    leads
        Asked before every write.
    """

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        self._api, self._leads = api, leads

    def admit(self, gated: Sequence[Member], seats: Plan, now_s: float) -> None:
        """Reserve all seats, then open all gates. A member that is gone meanwhile is left out."""
        stamp = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
        for member in gated:
            self._annotate(member, {SEAT_ANNOTATION: seats[member.uid], ADMITTED: stamp})
        self.open(gated)

    def open(self, members: Iterable[Member]) -> None:
        """Open our gate of each."""
        for member in members:
            try:
                self._open(member)
            except NotFound:
                log.info("%s is gone", member)

    def forget_seats(self, members: Iterable[Member]) -> None:
        """Take back the seats of pods that go nowhere."""
        for member in members:
            self._annotate(member, {SEAT_ANNOTATION: None, ADMITTED: None})

    def _annotate(self, member: Member, words: dict[str, str | None]) -> None:
        self._must_lead()
        try:
            self._api.patch(_path(member), {"metadata": {"uid": member.uid, "annotations": words}})
        except (NotFound, Conflict):
            log.info("%s is gone", member)  # or another has its name

    def _open(self, member: Member) -> None:
        gates = member.gates
        for attempt in range(TRIES):
            self._must_lead()
            if attempt:
                seen = read_member(self._api.get(_path(member)))
                if seen.uid != member.uid:
                    return
                gates = seen.gates
            if GATE not in gates:
                return
            try:
                self._api.patch(_path(member), opening(member.uid, gates))
            except (Invalid, Conflict):
                if attempt == TRIES - 1:
                    raise
            else:
                return

    def _must_lead(self) -> None:
        if not self._leads():
            raise NotLeading


def opening(uid: str, gates: Sequence[str]) -> list[dict[str, Any]]:
    """The JSON patch that takes our gate off the very pod that was seen, and nothing else."""
    path = f"/spec/schedulingGates/{gates.index(GATE)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{path}/name", "value": GATE},
        {"op": "remove", "path": path},
    ]


def _path(member: Member) -> str:
    return path_of(PODS, member.key.namespace, member.key.name)
