"""FlowCon: CPU limits on one worker by growth efficiency, the training progress per CPU used (algorithms 1 and 2).

Our choices where the thesis is silent: growth efficiency is compared with alpha times the job's largest so far. A job
that has not begun to learn is not limited; until it does, new jobs beside it keep their limits and completing ones get
the lower bound, which gives the limit 0.25 of the thesis' example. A job without a new measurement (no report, no time
or no CPU time since the last one, or an infinite growth efficiency) stays in its list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

UNLIMITED = 1.0  # limit of a job that may use the whole worker


class LearningState(StrEnum):
    """The lists NL, WL and CL of algorithm 1."""

    NEW = "New"
    WATCHING = "Watching"
    COMPLETING = "Completing"


@dataclass(frozen=True, slots=True)
class FlowConOptions:
    """Settings of FlowCon."""

    # A job whose growth efficiency is below this share of its largest moves to the next slower list.
    alpha: float = 0.05
    interval_s: float = 20.0  # time between two runs of algorithm 1; doubled whenever all jobs are completing
    beta: float = 2.0  # a completing job keeps at least `1 / (beta n)` of a worker with n jobs


class Measured(NamedTuple):
    """The latest report of a job."""

    evaluation: float  # value of its evaluation function, such as the loss
    used_core_s: float  # CPU time it had used by then
    scale: float = 0.0  # divisor of progress; 0 for the first magnitude seen


@dataclass(slots=True)
class SharingJob:
    """State of a job on the worker; `limit` is a share of the worker."""

    last: Measured
    last_s: float
    scale: float
    state: LearningState = LearningState.NEW
    limit: float = UNLIMITED
    efficiency: float | None = None
    largest: float = 0.0

    def measure(self, now_s: float, seen: Measured, capacity_cores: float) -> bool:
        """Update the growth efficiency, progress per second by the mean share used; False without a new measurement."""
        elapsed_s, used_core_s = now_s - self.last_s, seen.used_core_s - self.last.used_core_s
        if elapsed_s <= 0.0 or used_core_s <= 0.0:
            return False
        self.scale = seen.scale or self.scale
        progress = abs(seen.evaluation - self.last.evaluation) / self.scale / elapsed_s
        efficiency = progress / (used_core_s / elapsed_s / capacity_cores)
        self.last, self.last_s = seen, now_s
        if not math.isfinite(efficiency):
            return False
        if progress or self.largest:
            self.efficiency, self.largest = efficiency, max(self.largest, efficiency)
        return True

    def classify(self, alpha: float) -> None:
        """Choose the list of the job: lines 4 to 13 of algorithm 1."""
        if self.efficiency is None:
            return
        slower = LearningState.WATCHING if self.state is LearningState.NEW else LearningState.COMPLETING
        self.state = slower if self.efficiency < alpha * self.largest else LearningState.NEW


@dataclass(slots=True)
class FlowCon:
    """FlowCon on one worker."""

    capacity_cores: float  # of the worker
    options: FlowConOptions = field(default_factory=FlowConOptions)
    interval_s: float = 0.0
    due_s: float = 0.0  # time of the next run of algorithm 1, unless a job starts or ends before
    members: dict[str, SharingJob] = field(default_factory=dict)

    def follow_clock(self, now_s: float) -> None:
        """After a clock was set back, move times that now lie in the future to now."""
        self.due_s = min(self.due_s, now_s)
        for member in self.members.values():
            member.last_s = min(member.last_s, now_s)

    def is_due(self, now_s: float, jobs: Mapping[str, Measured]) -> bool:
        """Whether algorithm 1 runs now: a job started or ended (algorithm 2), or the interval is over."""
        return jobs.keys() != self.members.keys() or (bool(jobs) and now_s >= self.due_s)

    def run(self, now_s: float, jobs: Mapping[str, Measured]) -> Mapping[str, float]:
        """Run algorithm 1; returns the limit of each job as a share of the worker. Call it only when `is_due`."""
        if jobs.keys() != self.members.keys():
            self.interval_s = self.options.interval_s
            known = self.members
            self.members = {
                name: known.get(name) or SharingJob(seen, now_s, seen.scale or abs(seen.evaluation) or 1.0)
                for name, seen in jobs.items()
            }
        for name, member in self.members.items():
            if member.measure(now_s, jobs[name], self.capacity_cores):
                member.classify(self.options.alpha)
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
