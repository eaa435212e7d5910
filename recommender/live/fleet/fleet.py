"""What is decided for every live container.

The forecast is asked at decisions only (once a cycle, and when the phase changes): between two of them it needs the
samples alone. Of a workload class whose runs are known, the earlier runs are asked, and oftener where runs are short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from recommender.live.fleet.member import CLASS, FORECAST, Decision, Instance, Member, Newcomer, slots_of
from recommender.live.fleet.members import Members
from recommender.model import PhaseModel
from recommender.policies.class_runs import ClassForecast, ClassRuns, Progress
from recommender.policies.proactive_together import decide_together
from recommender.records import BoolArray, IntArray, amounts_of

DECISIONS_IN_A_RUN = 20
"""However short the runs of a class are, each is decided for about so often."""

ENOUGH_RUNS = 5
"""So many earlier runs alike are believed when they say that memory is needed no more."""


class Fleet(Members):
    """The live containers, and what they are to have. For parameters and errors see `Members`.

    Attributes
    ----------
    lead_s
        How long it takes until what is decided is in force: decisions look so much farther ahead.
    memory_ahead_s
        For how long ahead a class is asked for memory; by default to the end of the run.
    """

    def __init__(
        self,
        model: PhaseModel,
        step_s: float,
        cycle_samples: int,
        welcome: Callable[[Instance], Newcomer],
        resume: Callable[[Members, Member, int], None] = lambda *_: None,
    ) -> None:
        super().__init__(model, step_s, cycle_samples, welcome, resume)
        self.lead_s, self.memory_ahead_s = step_s, np.inf

    def due(self, now_s: float) -> list[Member]:
        """Members whose decision is due: the first one, one whose time is over, or one after a change of phase."""
        slots = np.flatnonzero(self.counts.alive)
        due = set(slots[self._forecast_due(slots)].tolist())
        return [
            member
            for slot, member in self.by_slot.items()
            if slot in due or (member.runs is not None and self._class_due(member, now_s))
        ]

    def decide(self, member: Member, now_s: float) -> Decision | None:
        """What is allocated from now on, as the earlier runs of its class say, else as the forecast does.

        None, and the decision before stays, when there is nothing new to say.
        """
        return self.decide_all([member], now_s)[0]

    def decide_all(self, members: Sequence[Member], now_s: float) -> list[Decision | None]:
        """`decide` for many, those whom the forecast decides for together."""
        decisions = [self._as_its_class(member, now_s) for member in members]
        silent = np.array([made is None for made in decisions], bool)
        open_ones = np.flatnonzero(silent & self._forecast_due(slots_of(members))).tolist()
        for member, decision in zip(members, decisions, strict=True):
            if decision is not None:
                member.decision = decision  # it stands, whatever becomes of the others
                self.counts.decided[member.slot] = True
        asked = [members[place] for place in open_ones]
        for place, member, made in zip(open_ones, asked, self._as_forecast(asked), strict=True):
            decisions[place] = member.decision = made
        return decisions

    def expect(self, runs: ClassRuns | None, age_s: float, now_s: float) -> Decision | None:
        """What a container that nothing is known of but its class and age is to have; None when nobody knows."""
        return self._from_class(runs, Progress(None, 0.0, max(0.0, age_s)), now_s)

    def hold_s(self, runs: ClassRuns) -> float:
        """How long a decision by the runs of a class holds."""
        return min(max(runs.typical_s / DECISIONS_IN_A_RUN, self.step_s), self.cycle_samples * self.step_s)

    def _class_due(self, member: Member, now_s: float) -> bool:
        return member.runs is not None and len(member.runs) > 0 and now_s - member.asked_s >= self.hold_s(member.runs)

    def _forecast_due(self, slots: IntArray) -> BoolArray:
        """Whether the forecast is to be asked for these, bool (m,)."""
        counts = self.counts
        over = counts.last_cell[slots] - counts.decided_cell[slots] >= self.cycle_samples
        known = (counts.samples[slots] > self.model.detector.lag) & (counts.undecided[slots] > 0)
        due: BoolArray = known & (~counts.decided[slots] | counts.phase_changed[slots] | over)
        return due

    def _as_its_class(self, member: Member, now_s: float) -> Decision | None:
        if not self._class_due(member, now_s):
            return None
        member.asked_s = now_s
        start_s = int(self.counts.start_cell[member.slot]) * self.step_s
        seen_s = max(self.step_s, (int(self.counts.last_cell[member.slot]) + 1) * self.step_s - start_s)
        curve = self.curves.curve(member.slot)
        return self._from_class(member.runs, Progress(curve, seen_s, max(seen_s, now_s - start_s)), now_s)

    def _from_class(self, runs: ClassRuns | None, progress: Progress, now_s: float) -> Decision | None:
        if not runs:
            return None
        ahead_s = self.lead_s + self.hold_s(runs)
        found = runs.forecast(progress, ahead_s, self.memory_ahead_s)
        if found is None:
            return None
        run_s = runs.typical_s if found.alike >= ENOUGH_RUNS else np.inf
        return Decision(now_s, amounts_of(found.allocation), CLASS, partial(_why, found, ahead_s), run_s)

    def _as_forecast(self, members: Sequence[Member]) -> list[Decision]:
        """Ask the forecast for what comes after the latest sample of each."""
        if not members:
            return []
        slots, counts = slots_of(members), self.counts
        numbers = counts.undecided[slots]
        usage, labels = self.rows.latest_of(slots, numbers)
        allocations = decide_together([member.proactive for member in members], numbers, usage, labels)
        # The first cycle is cut short by some of it, or all that start together would be due together for ever.
        early = np.where(counts.decided[slots], 0, slots % max(1, self.cycle_samples // 2))
        counts.decided_cell[slots] = counts.last_cell[slots] - early
        counts.undecided[slots], counts.phase_changed[slots], counts.decided[slots] = 0, False, True
        at_s = ((counts.last_cell[slots] + 1) * self.step_s).tolist()
        return [
            Decision(since_s, (cpu_cores, memory_bytes), FORECAST, member.proactive.rule)
            for member, since_s, (cpu_cores, memory_bytes) in zip(members, at_s, allocations.tolist(), strict=True)
        ]


class MakeFleet(Protocol):
    """Makes the fleet, given what it asks of each newcomer."""

    def __call__(
        self, welcome: Callable[[Instance], Newcomer], resume: Callable[[Members, Member, int], None]
    ) -> Fleet: ...


def _why(found: ClassForecast, ahead_s: float) -> str:
    which = f"{found.alike} of {found.runs} earlier runs" if found.runs > 1 else "the one earlier run"
    return f"as {which} of its class went on: CPU for {ahead_s:.0f} s, memory to the end"
