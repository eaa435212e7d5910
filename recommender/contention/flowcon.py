"""FlowCon: shares of one worker by how much jobs learn for what they use (algorithms 1 and 2).

Where the thesis is silent: growth efficiency is compared with alpha as a share of the job's own largest so far. A job
that has not begun to learn is not limited; until it does, the new ones beside it keep their limits and the completing
ones are at the lower bound, which gives the limit 0.25 of the thesis' example. A job of which a run finds nothing new
(it has told nothing since, another came at the same moment, it waited on no CPU time, or its growth is beyond all
numbers) stays in its list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

UNLIMITED = 1.0
"""The limit of a job that may use the whole worker."""


class LearningState(StrEnum):
    """Algorithm 1's lists NL, WL and CL."""

    NEW = "New"
    WATCHING = "Watching"
    COMPLETING = "Completing"


SLOWER = {
    LearningState.NEW: LearningState.WATCHING,
    LearningState.WATCHING: LearningState.COMPLETING,
    LearningState.COMPLETING: LearningState.COMPLETING,
}


@dataclass(frozen=True, slots=True)
class FlowConOptions:
    """What an operator may turn.

    Attributes
    ----------
    alpha
        Below this share of its largest growth efficiency a job slows down.
    interval_s
        From one run of algorithm 1 to the next; doubled whenever all jobs are completing.
    beta
        A completing job keeps at least `1 / (beta n)` of a worker with n jobs.
    """

    alpha: float = 0.05
    interval_s: float = 20.0
    beta: float = 2.0


class Measured(NamedTuple):
    """A job when it told of itself last.

    Attributes
    ----------
    evaluation
        Its evaluation function.
    used_core_s
        The CPU time that it had used by then.
    scale
        What progress is a share of; 0 for the first magnitude seen.
    """

    evaluation: float
    used_core_s: float
    scale: float = 0.0


@dataclass(slots=True)
class Member:
    """A job as the worker knows it; `limit` is a share of the worker."""

    last: Measured
    last_s: float
    scale: float
    state: LearningState = LearningState.NEW
    limit: float = UNLIMITED
    efficiency: float | None = None
    largest: float = 0.0

    def measure(self, now_s: float, seen: Measured, capacity_cores: float) -> bool:
        """Growth efficiency since the last time: progress a second, divided by the mean share of the worker used.

        False where nothing new is known.
        """
        passed_s, used_core_s = now_s - self.last_s, seen.used_core_s - self.last.used_core_s
        if passed_s <= 0.0 or used_core_s <= 0.0:
            return False
        self.scale = seen.scale or self.scale
        progress = abs(seen.evaluation - self.last.evaluation) / self.scale / passed_s
        efficiency = progress / (used_core_s / passed_s / capacity_cores)
        self.last, self.last_s = seen, now_s
        if not math.isfinite(efficiency):
            return False
        if progress or self.largest:
            self.efficiency, self.largest = efficiency, max(self.largest, efficiency)
        return True

    def sort(self, alpha: float) -> None:
        """Lines 4 to 13 of algorithm 1."""
        if self.efficiency is None:
            return
        self.state = SLOWER[self.state] if self.efficiency < alpha * self.largest else LearningState.NEW


@dataclass(slots=True)
class FlowCon:
    """One worker.

    Attributes
    ----------
    capacity_cores
        Of the worker.
    due_s
        When algorithm 1 runs next, unless a job comes or ends before.
    """

    capacity_cores: float
    options: FlowConOptions = field(default_factory=FlowConOptions)
    interval_s: float = 0.0
    due_s: float = 0.0
    members: dict[str, Member] = field(default_factory=dict)

    def is_due(self, now_s: float, jobs: Mapping[str, Measured]) -> bool:
        """Whether algorithm 1 is to run: a job came or ended (algorithm 2), or its time has come."""
        return jobs.keys() != self.members.keys() or (bool(jobs) and now_s >= self.due_s)

    def run(self, now_s: float, jobs: Mapping[str, Measured]) -> Mapping[str, float]:
        """Limits of all jobs on the worker, as shares of it; called where that `is_due`."""
        if jobs.keys() != self.members.keys():
            self.interval_s = self.options.interval_s
            self.members = {name: self.members.get(name) or _new(seen, now_s) for name, seen in jobs.items()}
        for name, member in self.members.items():
            if member.measure(now_s, jobs[name], self.capacity_cores):
                member.sort(self.options.alpha)
        if all(member.state is LearningState.COMPLETING for member in self.members.values()):
            for member in self.members.values():
                member.limit = UNLIMITED
            self.interval_s *= 2.0
        else:
            self._divide()
        self.due_s = now_s + self.interval_s
        return {name: member.limit for name, member in self.members.items()}

    def _divide(self) -> None:
        known = [member.efficiency for member in self.members.values() if member.efficiency is not None]
        total, all_known = sum(known), len(known) == len(self.members)
        least = 1.0 / (self.options.beta * len(self.members))
        for member in self.members.values():
            share = member.efficiency / total if member.efficiency and all_known else 0.0
            if member.state is LearningState.COMPLETING:
                member.limit = max(share, least)
            elif member.state is LearningState.NEW and all_known and total > 0.0:
                member.limit = share


def _new(seen: Measured, now_s: float) -> Member:
    return Member(seen, now_s, seen.scale or abs(seen.evaluation) or 1.0)
