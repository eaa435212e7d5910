"""Time passing on workers whose jobs contend, from one event to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from recommender.contention.sharing import EPSILON, fair_shares
from recommender.contention.specon import Move
from thesis_bench.workers.jobs import Run, TrainingJob


def limited_shares(
    capacity_cores: float,
    demand_cores: Sequence[float],
    weights: Sequence[float],
    limits_cores: Sequence[float],
    *,
    soft: bool = True,
) -> list[float]:
    """`fair_shares` under limits; soft ones hold back only while another job below its own limit wants the cores.

    Examples
    --------
    One job limited to a quarter of a worker, beside one that is not, and alone:

    >>> limited_shares(1.0, [1.0, 1.0], [1.0, 1.0], [0.25, 1.0])
    [0.25, 0.75]
    >>> limited_shares(1.0, [1.0], [1.0], [0.25])
    [1.0]
    """
    within = [min(demand, limit) for demand, limit in zip(demand_cores, limits_cores, strict=True)]
    shares = fair_shares(capacity_cores, within, weights)
    left = capacity_cores - sum(shares)
    if not soft or left <= EPSILON:
        return shares
    unmet = [demand - share for demand, share in zip(demand_cores, shares, strict=True)]
    return [share + more for share, more in zip(shares, fair_shares(left, unmet, weights), strict=True)]


class Worker(NamedTuple):
    """What a worker has for jobs."""

    cores: float
    memory_bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """What is taken to be true of workers.

    Attributes
    ----------
    overhead
        Where jobs ask for more cores than there are, each one more that runs at the same time costs all of them this
        share of their speed: caches and switches. How many run at the same time is counted by their shares.
    soft_limits
        A limit holds back only while somebody else wants the cores (`cpu.weight`), else always (a quota).
    restart_s
        From a kill to the new start.
    """

    overhead: float = 0.0
    soft_limits: bool = True
    restart_s: float = 10.0


class Decider(Protocol):
    """Who places jobs, moves them, and sets their weights and limits."""

    def wakes_s(self) -> float:
        """When it wants to decide again though nothing happens; infinite for never."""

    def place(self, play: Play, job: TrainingJob) -> int:
        """The worker for a job that has arrived."""

    def decide(self, play: Play) -> Iterable[Move]:
        """Called after each arrival, end and kill, and when it wants to."""


@dataclass(slots=True)
class Play:
    """Workers, the jobs that come to them, and who decides.

    Attributes
    ----------
    running, ended
        Jobs that have arrived. Those that are being moved run on the worker they go to.
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
            if not self._pass(coming):
                continue
            self._move(self.decider.decide(self))
        return self

    def _pass(self, coming: list[TrainingJob]) -> bool:
        """Let time pass until something happens, `coming` OUT; True where it is the decider's business."""
        until_s = min((self._changes_s(run) for run in self.running), default=math.inf)
        wakes_s = max(self.decider.wakes_s(), self.now_s) if self.running else math.inf
        arrives_s = coming[0].arrives_s if coming else math.inf
        next_s = min(until_s, wakes_s, arrives_s)
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
        return bool(ended) or killed or next_s in (wakes_s, arrives_s)

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
            run.cores, run.speed = share, 1.0 / (1.0 + self.rules.overhead * (at_a_time - 1.0))

    def _kill(self) -> bool:
        """End the largest job of each worker that is short of memory, and start it again; whether there was one."""
        killed = False
        for number, worker in enumerate(self.workers):
            here = [run for run in self.on(number) if run.away_until_s <= self.now_s]
            while sum(run.memory_bytes for run in here) > worker.memory_bytes:
                largest = max(here, key=lambda run: (run.memory_bytes, run.started_s))
                here.remove(largest)
                largest.fall_back()
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
