"""Simulated workers whose jobs contend for cores, are moved, and learn as they work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recommender.contention.sharing import EPSILON, Stage, fair_shares
from recommender.contention.specon import Move


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job before it runs.

    `losses`: Values of its evaluation function at even steps of its work.
    `moves_cost_s`: Downtime of its first, second and later moves (save and restore).
    `ties`: All workers, in the order in which a scheduler picks among equals.
    """

    name: str
    workload: str
    arrives_s: float
    stages: Sequence[Stage]
    losses: Sequence[float]
    moves_cost_s: Sequence[float] = (4.0,)
    ties: Sequence[int] = ()

    @property
    def core_s(self) -> float:
        return sum(stage.core_s for stage in self.stages)


@dataclass(slots=True)
class Run:
    """A job that is running or has ended.

    `stage`, `done_core_s`: Its stage, and work done in it.
    `away_until_s`: End of a move, during which it neither works nor uses resources.
    `weight`, `limit_cores`: CPU weight and limit on its worker.
    `cores`, `speed`: Present cores, and work per core second: below one if jobs slow each other down.
    """

    job: TrainingJob
    worker: int
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
    def completion_s(self) -> float:
        return self.ended_s - self.job.arrives_s

    def stage_left_core_s(self) -> float:
        return self.job.stages[self.stage].core_s - self.done_core_s

    def work(self, passed_s: float) -> bool:
        """Work for `passed_s`; True once all work is done."""
        self.used_core_s += self.cores * passed_s
        self.done_core_s += self.cores * self.speed * passed_s
        if self.stage_left_core_s() <= EPSILON:
            self.stage, self.done_core_s = self.stage + 1, 0.0
        return self.stage == len(self.job.stages)


def limited_shares(
    capacity_cores: float, demand_cores: Sequence[float], weights: Sequence[float], limits_cores: Sequence[float]
) -> list[float]:
    """`fair_shares` under limits that apply only while another job below its own limit wants the cores."""
    within = [min(demand, limit) for demand, limit in zip(demand_cores, limits_cores, strict=True)]
    shares = fair_shares(capacity_cores, within, weights)
    left = capacity_cores - sum(shares)
    if left <= EPSILON:
        return shares
    unmet = [demand - share for demand, share in zip(demand_cores, shares, strict=True)]
    return [share + more for share, more in zip(shares, fair_shares(left, unmet, weights), strict=True)]


class Decider(Protocol):
    """Places jobs, moves them, and sets their weights and limits."""

    def wakeup_s(self) -> float:
        """Time of the next decision without an event; infinite for never."""

    def place(self, play: Play, job: TrainingJob) -> int:
        """Choose the worker for a job that has arrived."""

    def decide(self, play: Play) -> Iterable[Move]:
        """Decide on moves; called after each arrival and end, and at `wakeup_s`."""


@dataclass(slots=True)
class Play:
    """Workers, arriving jobs, and a decider, played from event to event.

    `capacity_cores`: Of each worker.
    `overhead`: Share of speed that each further job costs all jobs (caches, context switches) if they demand more cores
        than there are. The number of running jobs is counted by their shares.
    `running`, `ended`: Jobs that have arrived; a job that is being moved counts for its destination.
    """

    capacity_cores: Sequence[float]
    jobs: Sequence[TrainingJob]
    decider: Decider
    overhead: float = 0.0
    now_s: float = 0.0
    running: list[Run] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)

    def on(self, worker: int) -> list[Run]:
        return [run for run in self.running if run.worker == worker]

    def used_cores(self) -> list[float]:
        return [sum(run.cores for run in self.on(worker)) for worker in range(len(self.capacity_cores))]

    def until_all_ended(self) -> Play:
        coming = sorted(self.jobs, key=lambda job: (job.arrives_s, job.name))
        while coming or self.running:
            for worker in range(len(self.capacity_cores)):
                self._share(worker)
            if self._advance(coming):
                self._move(self.decider.decide(self))
        return self

    def _advance(self, coming: list[TrainingJob]) -> bool:
        """Advance to the next event, removing arrivals from `coming`; True if the decider has to act."""
        until_s = min((self._changes_s(run) for run in self.running), default=math.inf)
        wakeup_s = max(self.decider.wakeup_s(), self.now_s) if self.running else math.inf
        arrives_s = coming[0].arrives_s if coming else math.inf
        next_s = min(until_s, wakeup_s, arrives_s)
        ended = [run for run in self.running if run.work(next_s - self.now_s)]
        self.now_s = next_s
        for run in ended:
            run.ended_s, run.cores = next_s, 0.0
            self.running.remove(run)
        self.ended += ended
        while coming and coming[0].arrives_s <= next_s:
            job = coming.pop(0)
            self.running.append(Run(job, self.decider.place(self, job)))
        return bool(ended) or next_s in (wakeup_s, arrives_s)

    def _changes_s(self, run: Run) -> float:
        if run.away_until_s > self.now_s:
            return run.away_until_s
        rate = run.cores * run.speed
        return self.now_s + run.stage_left_core_s() / rate if rate > EPSILON else math.inf

    def _share(self, worker: int) -> None:
        runs = self.on(worker)
        here = [run for run in runs if run.away_until_s <= self.now_s]
        for run in runs:
            run.cores = run.speed = 0.0
        if not here:
            return
        capacity, demand = self.capacity_cores[worker], [run.demand_cores for run in here]
        cores = limited_shares(capacity, demand, [run.weight for run in here], [run.limit_cores for run in here])
        total = sum(cores)
        crowded = sum(demand) > capacity + EPSILON and total > EPSILON
        at_a_time = total**2 / sum(share**2 for share in cores) if crowded else 1.0
        for run, share in zip(here, cores, strict=True):
            run.cores, run.speed = share, 1.0 / (1.0 + self.overhead * (at_a_time - 1.0))

    def _move(self, moves: Iterable[Move]) -> None:
        by_name = {run.name: run for run in self.running}
        for move in moves:
            run = by_name[move.name]
            if run.worker == move.worker:
                raise ValueError(f"{move.name} is on worker {move.worker} already")
            costs_s = run.job.moves_cost_s
            run.away_until_s = self.now_s + costs_s[min(run.moves, len(costs_s) - 1)]
            run.worker, run.moves, run.moved_s = move.worker, run.moves + 1, self.now_s
            run.moved.append((self.now_s, move.worker, move.reason))
