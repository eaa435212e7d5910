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
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.profile import Known, profile_of, signature_of

FEW = 20
"""While no more are to be written, what is kept over a restart goes along with each."""


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
    state: VpaState


class Showing:
    """Writes the PhaseProfiles of VPAs.

    Parameters
    ----------
    at_most
        In one round.
    """

    def __init__(self, view: View, at_most: float = math.inf) -> None:
        self._view, self._at_most = view, at_most

    def due(self, states: Iterable[VpaState], known: Known, now_s: float, report: Report) -> list[_Due]:
        """Those that changed.

        One that waits goes on waiting until its turn: most do in a large cluster, and are not looked through each time.
        """
        waiting: list[_Due] = []

        def look(state: VpaState) -> None:
            due = _Due(state.kept_of == _vital_of(state, known.engine), state.shown_s, state.vpa.key, state)
            state.waits = state.waits or _is_new(due, signature_of(state, known), known.engine, now_s)
            if state.waits:
                waiting.append(due)

        report.each(states, _name_of, look)
        return waiting

    def show(self, states: Iterable[VpaState], known: Known, now_s: float, report: Report) -> None:
        """Write as many as may be. What is kept over a restart goes along where it is needed, once a cycle at least."""
        waiting = self.due(states, known, now_s, report)
        taken = nsmallest(int(min(self._at_most, len(waiting))), waiting)
        report.unshown = len(waiting) - len(taken)
        for due in taken:
            due.state.shown_s = now_s  # one that fails goes to the end of the queue
            with report.guard(_name_of(due.state)):
                keeps = len(waiting) <= FEW or _is_stale(due, known.engine, now_s)
                signature = signature_of(due.state, known)
                if _is_new(due, signature, known.engine, now_s):  # else it is again what it was
                    self._write(due, signature, known, now_s, keeps=keeps)
                due.state.waits = False

    def at_the_end(
        self, states: Iterable[VpaState], known: Known, now_s: float, report: Report
    ) -> list[Callable[[], None]]:
        """What writes each, with all that is kept: before the process ends."""
        due = sorted(self.due(states, known, now_s, report))
        return [partial(self._write, each, signature_of(each.state, known), known, now_s, keeps=True) for each in due]

    def _write(self, due: _Due, signature: object, known: Known, now_s: float, *, keeps: bool) -> None:
        state = due.state
        self._view.show(state.vpa, profile_of(state, known, keeps=keeps))
        state.shown = signature
        if keeps:
            state.kept_of, state.kept_s = _vital_of(state, known.engine), now_s
            state.kept_kill_s = known.engine.killed_s(state.groups.values())


def lacks_a_kill(state: VpaState, engine: Engine) -> bool:
    """Whether its profile does not tell yet of a kill for memory: that must not be lost whatever the haste."""
    return engine.killed_s(state.groups.values()) > state.kept_kill_s


def _name_of(state: VpaState) -> str:
    return f"PhaseProfile {state.vpa.key}"


def _vital_of(state: VpaState, engine: Engine) -> list[int]:
    return [vital for _, vital in engine.news_of(state.groups.values())]


def _is_new(due: _Due, signature: object, engine: Engine, now_s: float) -> bool:
    return signature != due.state.shown or _is_stale(due, engine, now_s)


def _is_stale(due: _Due, engine: Engine, now_s: float) -> bool:
    """Whether what is kept lacks something, or is older than a cycle."""
    return not due.is_kept or now_s - due.state.kept_s >= engine.fleet.cycle_samples * engine.fleet.step_s
