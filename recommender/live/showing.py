"""Which PhaseProfiles are written in a round: those that say something new, a few at a time, the longest waiting first.

In a large cluster some pod of most VPAs enters another phase at each round. Statuses must not wait behind the profiles
that say so, nor the API server be busy with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from recommender.live.fleet import Fleet
from recommender.live.member import Instance
from recommender.live.profile import Known, profile_of, signature_of
from recommender.live.tally import Report
from recommender.live.view import View
from recommender.live.workload import Workload

FEW = 20
"""While no more are to be written, what is kept over a restart goes along with each."""


class _Due(NamedTuple):
    """A profile to be written, and what must not be lost of its workload."""

    workload: Workload
    kept: tuple[list[Instance], list[tuple[str, float]]]


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
        """Those that changed: what must not be lost first, then the longest waiting.

        One that waits goes on waiting until its turn: most do in a large cluster, and are not looked through each time.
        """
        waiting = []
        for workload in workloads:
            with report.sparing(f"PhaseProfile {workload.vpa.key}"):
                due = _Due(workload, _kept_of(workload))
                workload.waits = workload.waits or _is_new(due, known, now_s)
                if workload.waits:
                    waiting.append(due)
        waiting.sort(key=lambda due: (due.kept == due.workload.kept_of, due.workload.shown_s, due.workload.vpa.key))
        return waiting

    def show(self, workloads: Iterable[Workload], known: Known, now_s: float, report: Report) -> None:
        """Write as many as may be. What is kept over a restart goes along where it is needed, once a cycle at least."""
        waiting = self.due(workloads, known, now_s, report)
        taken = waiting[: int(min(self._at_most, len(waiting)))]
        report.unshown = len(waiting) - len(taken)
        for due in taken:
            due.workload.shown_s = now_s  # one that fails goes to the end of the queue
            with report.sparing(f"PhaseProfile {due.workload.vpa.key}"):
                keeps = len(waiting) <= FEW or _is_stale(due, known.fleet, now_s)
                if _is_new(due, known, now_s):  # else it is again what it was
                    self._write(due, known, now_s, keeps=keeps)
                due.workload.waits = False

    def parting(
        self, workloads: Iterable[Workload], known: Known, now_s: float, report: Report
    ) -> list[Callable[[], None]]:
        """What writes each, with all that is kept: before the process ends."""
        due = self.due(workloads, known, now_s, report)
        return [partial(self._write, each, known, now_s, keeps=True) for each in due]

    def _write(self, due: _Due, known: Known, now_s: float, *, keeps: bool) -> None:
        workload, signature = due.workload, signature_of(due.workload, known)
        self._view.show(workload.vpa, profile_of(workload, known, keeps=keeps))
        workload.shown = signature
        if keeps:
            workload.kept_of, workload.kept_s = due.kept, now_s


def lacks_a_kill(workload: Workload) -> bool:
    """Whether its profile does not tell yet of a kill for memory: that must not be lost whatever the haste."""
    kept: dict[str, float] = dict(workload.kept_of[1]) if workload.kept_of else {}
    return any(book.oom_s > kept.get(name, 0.0) for name, book in workload.books.items())


def _kept_of(workload: Workload) -> tuple[list[Instance], list[tuple[str, float]]]:
    """What must not be lost: which containers are known, and what kills for memory showed."""
    known = [member.instance for found in workload.members.values() for member in found if member.decision is not None]
    return known, [(name, book.oom_s) for name, book in workload.books.items()]


def _is_new(due: _Due, known: Known, now_s: float) -> bool:
    return signature_of(due.workload, known) != due.workload.shown or _is_stale(due, known.fleet, now_s)


def _is_stale(due: _Due, fleet: Fleet, now_s: float) -> bool:
    """Whether what is kept lacks something, or is older than a cycle."""
    workload, cycle_s = due.workload, fleet.cycle_samples * fleet.step_s
    return due.kept != workload.kept_of or now_s - workload.kept_s >= cycle_s
