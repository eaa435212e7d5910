"""Which PhaseProfiles are written in a round: those that say something new, a few at a time, the longest waiting first.

In a large cluster some pod of most VPAs enters another phase at each round. Statuses must not wait behind the profiles
that say so, nor the API server be busy with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from heapq import nsmallest
from typing import NamedTuple

from recommender.cluster.objects.metadata import ObjectKey
from recommender.live.advice.workload import Workload
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import Instance
from recommender.live.tally import Report
from recommender.live.view.view import View
from recommender.live.writing.profile import Known, profile_of, signature_of

FEW = 20
"""While no more are to be written, what is kept over a restart goes along with each."""


_Kept = tuple[list[Instance], list[tuple[str, float]]]
"""What must not be lost of a workload: which containers are known, and what kills for memory showed."""


class _Due(NamedTuple):
    """A profile to be written; in the order in which they are: what must not be lost first, then the longest waiting.

    Attributes
    ----------
    is_kept
        What must not be lost is written already.
    """

    is_kept: bool
    shown_s: float
    key: ObjectKey
    workload: Workload


class Showing:
    """Writes the PhaseProfiles of VPAs.

    Parameters
    ----------
    at_most
        In one round.
    """

    def __init__(self, view: View, at_most: float = math.inf) -> None:
        self._view, self._at_most = view, at_most

    def due(self, workloads: Iterable[Workload], known: Known, now_s: float, report: Report) -> list[_Due]:
        """Those that changed.

        One that waits goes on waiting until its turn: most do in a large cluster, and are not looked through each time.
        """
        waiting: list[_Due] = []

        def look(workload: Workload) -> None:
            due = _Due(_is_kept(workload), workload.shown_s, workload.vpa.key, workload)
            workload.waits = workload.waits or _is_new(due, signature_of(workload, known), known.fleet, now_s)
            if workload.waits:
                waiting.append(due)

        report.each(workloads, _name_of, look)
        return waiting

    def show(self, workloads: Iterable[Workload], known: Known, now_s: float, report: Report) -> None:
        """Write as many as may be. What is kept over a restart goes along where it is needed, once a cycle at least."""
        waiting = self.due(workloads, known, now_s, report)
        taken = nsmallest(int(min(self._at_most, len(waiting))), waiting)
        report.unshown = len(waiting) - len(taken)
        for due in taken:
            due.workload.shown_s = now_s  # one that fails goes to the end of the queue
            with report.sparing(_name_of(due.workload)):
                keeps = len(waiting) <= FEW or _is_stale(due, known.fleet, now_s)
                signature = signature_of(due.workload, known)
                if _is_new(due, signature, known.fleet, now_s):  # else it is again what it was
                    self._write(due, signature, known, now_s, keeps=keeps)
                due.workload.waits = False

    def parting(
        self, workloads: Iterable[Workload], known: Known, now_s: float, report: Report
    ) -> list[Callable[[], None]]:
        """What writes each, with all that is kept: before the process ends."""
        due = sorted(self.due(workloads, known, now_s, report))
        return [
            partial(self._write, each, signature_of(each.workload, known), known, now_s, keeps=True) for each in due
        ]

    def _write(self, due: _Due, signature: object, known: Known, now_s: float, *, keeps: bool) -> None:
        workload = due.workload
        self._view.show(workload.vpa, profile_of(workload, known, keeps=keeps))
        workload.shown = signature
        if keeps:
            workload.kept_of, workload.kept_s = _kept_of(workload), now_s


def lacks_a_kill(workload: Workload) -> bool:
    """Whether its profile does not tell yet of a kill for memory: that must not be lost whatever the haste."""
    kept: dict[str, float] = dict(workload.kept_of[1]) if workload.kept_of else {}
    return any(book.oom_s > kept.get(name, 0.0) for name, book in workload.books.items())


def _name_of(workload: Workload) -> str:
    return f"PhaseProfile {workload.vpa.key}"


def _kept_of(workload: Workload) -> _Kept:
    known = [member.instance for found in workload.members.values() for member in found if member.decision is not None]
    return known, _kills_of(workload)


def _is_kept(workload: Workload) -> bool:
    """Whether all is written that must not be lost.

    Containers that are all known stay so; then only kills can be news.
    """
    if workload.kept_of is None:
        return False
    if workload.all_known_of is not workload.members:
        known = _kept_of(workload)[0]
        if known != workload.kept_of[0]:
            return False
        if len(known) == sum(map(len, workload.members.values())):
            workload.all_known_of = workload.members
    return workload.kept_of[1] == _kills_of(workload)


def _kills_of(workload: Workload) -> list[tuple[str, float]]:
    return [(name, book.oom_s) for name, book in workload.books.items()]


def _is_new(due: _Due, signature: object, fleet: Fleet, now_s: float) -> bool:
    return signature != due.workload.shown or _is_stale(due, fleet, now_s)


def _is_stale(due: _Due, fleet: Fleet, now_s: float) -> bool:
    """Whether what is kept lacks something, or is older than a cycle."""
    return not due.is_kept or now_s - due.workload.kept_s >= fleet.cycle_samples * fleet.step_s
