"""Event-driven simulation of workers whose jobs contend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from benchmarks.thesis.workers.jobs import Run, TrainingJob
from extender.moves.board import Move
from recommender.contention.sharing import EPSILON, fair_shares


def limited_shares(
    capacity_cores: float,
    demand_cores: Sequence[float],
    weights: Sequence[float],
    limits_cores: Sequence[float],
    *,
    soft: bool = True,
) -> list[float]:
    """`fair_shares` under limits; soft limits apply only while another job below its own limit wants the cores."""
    within = [min(demand, limit) for demand, limit in zip(demand_cores, limits_cores, strict=True)]
    shares = fair_shares(capacity_cores, within, weights)
    left = capacity_cores - sum(shares)
    if not soft or left <= EPSILON:
        return shares
    unmet = [demand - share for demand, share in zip(demand_cores, shares, strict=True)]
    return [share + more for share, more in zip(shares, fair_shares(left, unmet, weights), strict=True)]


class Worker(NamedTuple):
    cores: float
    memory_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """Assumptions about workers.

    `soft_limits`: Whether limits apply only while another job wants the cores (`cpu.weight`), or always (quota).
    `restart_s`: Time from a kill to the restart.
    """

    soft_limits: bool = True
    restart_s: float = 10.0


class Decider(Protocol):
    """Places jobs, moves them, and sets their weights and limits."""

    def wakeup_s(self) -> float:
        """Time of the next decision without an event; infinite for never."""

    def place(self, play: Play, job: TrainingJob) -> int:
        """Choose the worker for a job that has arrived."""

    def decide(self, play: Play) -> Iterable[Move]:
        """Decide on moves; called after each arrival, end and kill, and at `wakeup_s`."""


@dataclass(slots=True)
class Play:
    """Workers, arriving jobs, and a decider.

    `running`, `ended`: jobs that have arrived; a job that is being moved counts for its destination.
    """

    workers: Sequence[Worker]
    jobs: Sequence[TrainingJob]
    decider: Decider
    rules: Rules = field(default_factory=Rules)
    now_s: float = 0.0
    running: list[Run] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)

    def on(self, worker: int) -> list[Run]:
        return [run for run in self.running if run.worker == worker]

    def used_cores(self) -> list[float]:
        used = [0.0] * len(self.workers)
        for run in self.running:
            used[run.worker] += run.cores
        return used

    def until_all_ended(self) -> Play:
        coming = sorted(self.jobs, key=lambda job: (job.arrives_s, job.name))
        while coming or self.running:
            for worker in range(len(self.workers)):
                self._share(worker)
            if not self._advance(coming):
                continue
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
            self.running.append(Run(job, self.decider.place(self, job), next_s))
        killed = self._kill()
        return bool(ended) or killed or next_s in (wakeup_s, arrives_s)

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
        capacity, demand = self.workers[worker].cores, [run.demand_cores for run in here]
        limits = [run.limit_cores for run in here]
        cores = limited_shares(capacity, demand, [run.weight for run in here], limits, soft=self.rules.soft_limits)
        total = sum(cores)
        crowded = sum(demand) > capacity + EPSILON and total > EPSILON
        at_a_time = total**2 / sum(share**2 for share in cores) if crowded else 1.0
        for run, share in zip(here, cores, strict=True):
            run.cores, run.speed = share, 1.0 / (1.0 + run.job.overhead * (at_a_time - 1.0))

    def _kill(self) -> bool:
        """Kill and restart the largest job of each worker that is short of memory; return whether there was one."""
        killed = False
        for number, worker in enumerate(self.workers):
            here = [run for run in self.on(number) if run.away_until_s <= self.now_s]
            while sum(run.memory_bytes for run in here) > worker.memory_bytes:
                largest = max(here, key=lambda run: (run.memory_bytes, run.started_s))
                here.remove(largest)
                largest.restore_checkpoint()
                largest.kills += 1
                largest.away_until_s = self.now_s + self.rules.restart_s
                killed = True
        return killed

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
