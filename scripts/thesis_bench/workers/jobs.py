"""Training jobs: what they ask of a worker by how far they are, and what they tell of how well they learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from recommender.contention.sharing import EPSILON, Stage


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One job, as it is before anybody runs it.

    Attributes
    ----------
    workload
        Its class.
    stages, memory_bytes
        Its work in order, and the memory that each stage holds.
    losses
        What its evaluation function shows, at even steps of its work from start to end; the last one seen stands.
    moves_cost_s
        What its first, second and each later move takes: saving, and loading elsewhere.
    ties
        All workers in the order in which a scheduler that finds several equally good tries them.
    keeps_share
        A killed job goes on from the last multiple of this share of its work; 1 is from its start.
    """

    name: str
    workload: str
    arrives_s: float
    stages: Sequence[Stage]
    losses: Sequence[float]
    moves_cost_s: Sequence[float] = (4.0,)
    ties: Sequence[int] = ()
    memory_bytes: Sequence[float] = ()
    keeps_share: float = 1.0

    @property
    def core_s(self) -> float:
        return sum(stage.core_s for stage in self.stages)


@dataclass(slots=True)
class Run:
    """A job that runs, or has run.

    Attributes
    ----------
    stage, done_core_s
        Which stage it is in, and how much of that is done.
    away_until_s
        It is being moved, or started again, and neither works nor uses anything.
    weight, limit_cores
        What its worker gives it by.
    cores, speed
        What it has now, and how much of it is work: less where jobs get in each other's way.
    used_core_s
        CPU time so far, that which was lost included.
    """

    job: TrainingJob
    worker: int
    started_s: float
    stage: int = 0
    done_core_s: float = 0.0
    away_until_s: float = -math.inf
    weight: float = 1.0
    limit_cores: float = math.inf
    cores: float = 0.0
    speed: float = 0.0
    used_core_s: float = 0.0
    moves: int = 0
    moved_s: float = -math.inf
    kills: int = 0
    ended_s: float = math.nan
    moved: list[tuple[float, int, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def work_core_s(self) -> float:
        """All work done that still counts."""
        return sum(stage.core_s for stage in self.job.stages[: self.stage]) + self.done_core_s

    @property
    def loss(self) -> float:
        """The last value of its evaluation function."""
        last = len(self.job.losses) - 1
        return self.job.losses[min(last, int(last * self.work_core_s / self.job.core_s + EPSILON))]

    @property
    def demand_cores(self) -> float:
        return self.job.stages[self.stage].cores

    @property
    def memory_bytes(self) -> float:
        return self.job.memory_bytes[self.stage] if self.job.memory_bytes else 0.0

    @property
    def completion_s(self) -> float:
        """From its arrival to its end."""
        return self.ended_s - self.job.arrives_s

    def stage_left_core_s(self) -> float:
        return self.job.stages[self.stage].core_s - self.done_core_s

    def work(self, passed_s: float) -> bool:
        """Let it work; True once all is done."""
        self.used_core_s += self.cores * passed_s
        self.done_core_s += self.cores * self.speed * passed_s
        if self.stage_left_core_s() <= EPSILON:
            self.stage, self.done_core_s = self.stage + 1, 0.0
        return self.stage == len(self.job.stages)

    def fall_back(self) -> None:
        """To what a checkpoint has kept."""
        step = self.job.core_s * self.job.keeps_share
        kept = math.floor(self.work_core_s / step + EPSILON) * step
        self.stage = 0
        while kept >= self.job.stages[self.stage].core_s - EPSILON:
            kept -= self.job.stages[self.stage].core_s
            self.stage += 1
        self.done_core_s = max(0.0, kept)
