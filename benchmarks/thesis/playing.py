"""One experiment with one seed: the same jobs under each decider, relative to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.thesis.settings import ROWS, Setting, earlier_runs
from benchmarks.thesis.workers.deciders import Default, FlowConShares, Phasewise, SpeCon
from benchmarks.thesis.workers.jobs import TrainingJob
from benchmarks.thesis.workers.play import Decider, Play, Worker
from recommender.contention.flowcon import FlowConOptions
from recommender.progress.growth import GrowthOptions

BASELINE = "default"
SLOWDOWN_TOLERANCE = 0.10
"""Jobs that are slower than the baseline by more than this share are counted."""

ROUNDING_S = 1e-6

TIE_DRAWS = 10
"""Draws of the baseline with other choices among equal nodes, for a job's usual completion time."""


@dataclass(frozen=True)
class Task:
    """The `number`th setting of a row, with a seed. `history`: earlier runs of each class that ours has seen."""

    row: str
    number: int
    seed: int
    history: int
    overhead: float

    @property
    def setting(self) -> Setting:
        return ROWS[self.row][self.number]


@dataclass(frozen=True)
class Result:
    """One play relative to the baseline; changes are shares, negative if better.

    `best`, `worst`, `first`, `last`: Change of the job that gains most, of the one that loses most, and of the first
        and last to arrive.
    `won_s`, `lost_s`: Mean gain of the jobs that end earlier, and mean loss of those that end later.
    `faster`, `slower`: Shares of the jobs that end earlier, and that take longer by more than `SLOWDOWN_TOLERANCE`.
    `slower_than_usual`: Share of the jobs that take longer by more than that than their mean over `TIE_DRAWS` of the
        baseline.
    """

    mean_s: float
    makespan_s: float
    mean: float
    makespan: float
    best: float
    worst: float
    first: float
    last: float
    won_s: float
    lost_s: float
    faster: float
    slower: float
    slower_than_usual: float
    moves: int


def deciders(task: Task) -> Mapping[str, Decider]:
    setting = task.setting
    chance = np.random.default_rng([task.seed, 1_000_000])
    classes = earlier_runs(setting.models, setting.cores, task.history, chance) if task.history else {}
    if setting.system == "FlowCon":
        theirs = FlowConShares(FlowConOptions(setting.alpha, setting.interval_s))
        return {BASELINE: Default(), "FlowCon": theirs, "phasewise": Phasewise(classes, moving=None)}
    return {
        BASELINE: Default(),
        "SpeCon": SpeCon(GrowthOptions(setting.interval_s, setting.alpha)),
        "phasewise, moves alone": Phasewise(classes, sharing=False),
        "phasewise": Phasewise(classes),
    }


def play(task: Task) -> tuple[Task, Mapping[str, Result]]:
    jobs = [replace(job, overhead=task.overhead) for job in task.setting.jobs(task.seed)]
    chance = np.random.default_rng([task.seed, 2_000_000])
    redrawn = [[replace(job, ties=chance.permutation(job.ties).tolist()) for job in jobs] for _ in range(TIE_DRAWS)]
    usual_s = np.mean([_completion_s(_played(task, others, Default()), others) for others in redrawn], axis=0)
    results: dict[str, Result] = {}
    for who, decider in deciders(task).items():
        played = _played(task, jobs, decider)
        completion_s = _completion_s(played, jobs)
        if who == BASELINE:
            baseline_s, makespan_s = completion_s, played.now_s
        change = completion_s / baseline_s - 1.0
        results[who] = Result(
            mean_s=float(completion_s.mean()),
            makespan_s=played.now_s,
            mean=float(completion_s.mean() / baseline_s.mean() - 1.0),
            makespan=played.now_s / makespan_s - 1.0,
            best=float(change.min()),
            worst=float(change.max()),
            first=float(change[0]),
            last=float(change[-1]),
            won_s=_mean_of(baseline_s - completion_s),
            lost_s=_mean_of(completion_s - baseline_s),
            faster=float((change < -1e-9).mean()),
            slower=float((change > SLOWDOWN_TOLERANCE).mean()),
            slower_than_usual=float((completion_s > (1.0 + SLOWDOWN_TOLERANCE) * usual_s).mean()),
            moves=sum(run.moves for run in played.ended),
        )
    return task, results


def _played(task: Task, jobs: Sequence[TrainingJob], decider: Decider) -> Play:
    workers = [Worker(task.setting.cores)] * task.setting.workers
    return Play(workers, jobs, decider).until_all_ended()


def _mean_of(seconds: np.ndarray) -> float:
    """Mean of the positive values; zero without any."""
    above = seconds[seconds > ROUNDING_S]
    return float(above.mean()) if above.size else 0.0


def _completion_s(played: Play, jobs: Sequence[TrainingJob]) -> np.ndarray:
    ran = {run.name: run.completion_s for run in played.ended}
    return np.array([ran[job.name] for job in jobs])
