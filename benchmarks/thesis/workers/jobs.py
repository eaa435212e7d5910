"""Training jobs: demand and loss by progress."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from recommender.contention.sharing import EPSILON, Stage


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job before it runs.

    `workload`: Its class.
    `stages`, `memory_bytes`: Its stages in order, and the memory of each.
    `losses`: Values of its evaluation function at even steps of its work.
    `moves_cost_s`: Downtime of its first, second and later moves (save and restore).
    `ties`: All workers, in the order in which a scheduler picks among equals.
    `checkpoint_share`: A killed job resumes from the last multiple of this share of its work; 1: from its start.
    `overhead`: Share of its speed that each further running job costs it (caches, context switches) if they demand more
        cores than there are. The number of running jobs is counted by their shares.
    """

    name: str
    workload: str
    arrives_s: float
    stages: Sequence[Stage]
    losses: Sequence[float]
    moves_cost_s: Sequence[float] = (4.0,)
    ties: Sequence[int] = ()
    memory_bytes: Sequence[float] = ()
    checkpoint_share: float = 1.0
    overhead: float = 0.0

    @property
    def core_s(self) -> float:
        return sum(stage.core_s for stage in self.stages)


@dataclass(slots=True)
class Run:
    """A job that is running or has ended.

    `stage`, `done_core_s`: Its stage, and work done in it.
    `away_until_s`: End of a move or restart, during which it neither works nor uses resources.
    `weight`, `limit_cores`: CPU weight and limit on its worker.
    `cores`, `speed`: Present cores, and work per core second: below one if jobs slow each other down.
    `used_core_s`: CPU time so far, including lost work.
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
        return sum(stage.core_s for stage in self.job.stages[: self.stage]) + self.done_core_s

    @property
    def loss(self) -> float:
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
        return self.ended_s - self.job.arrives_s

    def stage_left_core_s(self) -> float:
        return self.job.stages[self.stage].core_s - self.done_core_s

    def work(self, passed_s: float) -> bool:
        self.used_core_s += self.cores * passed_s
        self.done_core_s += self.cores * self.speed * passed_s
        if self.stage_left_core_s() <= EPSILON:
            self.stage, self.done_core_s = self.stage + 1, 0.0
        return self.stage == len(self.job.stages)

    def restore_checkpoint(self) -> None:
        step = self.job.core_s * self.job.checkpoint_share
        kept = math.floor(self.work_core_s / step + EPSILON) * step
        self.stage = 0
        while kept >= self.job.stages[self.stage].core_s - EPSILON:
            kept -= self.job.stages[self.stage].core_s
            self.stage += 1
        self.done_core_s = max(0.0, kept)
