"""One experiment with one seed: the same jobs under each decider, and what became of them beside the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.contention.flowcon import FlowConOptions
from recommender.growth import GrowthOptions
from thesis_bench.models import earlier_runs
from thesis_bench.settings import ROWS, Setting
from thesis_bench.workers.deciders import Default, Phasewise, Shares, SpeCon
from thesis_bench.workers.jobs import TrainingJob
from thesis_bench.workers.play import Decider, Play, Rules, Worker

BASELINE = "default"
SLOWER = 0.10
"""Nobody shall be slower than the baseline by more than this share."""

ROUNDING_S = 1e-6

DRAWS = 10
"""How often the baseline places the jobs anew, drawing otherwise among equal nodes: which job is lucky is chance."""


@dataclass(frozen=True)
class Task:
    """The `number`th setting of a row, with a seed.

    Attributes
    ----------
    history
        Earlier runs of each class that ours knows.
    """

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
    """One play beside the baseline's; changes are shares, negative where it is better.

    Attributes
    ----------
    best, worst, first, last
        Change of the job that won most, of the one that lost most, and of the jobs that came first and last.
    won_s, lost_s
        What the jobs that end earlier win in the mean, and those that end later lose.
    faster, slower
        Shares of the jobs: those that end earlier, and those that take longer by more than `SLOWER`.
    slower_than_mean
        The same beside each job's mean over `DRAWS` of the baseline.
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
    slower_than_mean: float
    moves: int


def deciders(task: Task) -> Mapping[str, Decider]:
    """Who is compared, the baseline first."""
    setting = task.setting
    chance = np.random.default_rng([task.seed, 1_000_000])
    classes = earlier_runs(setting.models, setting.cores, task.history, chance) if task.history else {}
    if setting.system == "FlowCon":
        theirs = Shares(FlowConOptions(setting.alpha, setting.interval_s))
        return {BASELINE: Default(), "FlowCon": theirs, "phasewise": Phasewise(classes, moving=None)}
    return {
        BASELINE: Default(),
        "SpeCon": SpeCon(GrowthOptions(setting.interval_s, setting.alpha)),
        "phasewise, moves alone": Phasewise(classes, sharing=False),
        "phasewise": Phasewise(classes),
        "phasewise, placing too": Phasewise(classes, placing=True),
    }


def play(task: Task) -> tuple[Task, Mapping[str, Result]]:
    """Every decider on the same jobs."""
    jobs = task.setting.jobs(task.seed)
    chance = np.random.default_rng([task.seed, 2_000_000])
    redrawn = [[replace(job, ties=chance.permutation(job.ties).tolist()) for job in jobs] for _ in range(DRAWS)]
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
            slower=float((change > SLOWER).mean()),
            slower_than_mean=float((completion_s > (1.0 + SLOWER) * usual_s).mean()),
            moves=sum(run.moves for run in played.ended),
        )
    return task, results


def _played(task: Task, jobs: Sequence[TrainingJob], decider: Decider) -> Play:
    workers = [Worker(task.setting.cores)] * task.setting.workers
    return Play(workers, jobs, decider, Rules(overhead=task.overhead)).until_all_ended()


def _mean_of(seconds: np.ndarray) -> float:
    """Of those above zero; zero where none is."""
    above = seconds[seconds > ROUNDING_S]
    return float(above.mean()) if above.size else 0.0


def _completion_s(played: Play, jobs: Sequence[TrainingJob]) -> np.ndarray:
    """Of each job in the order in which they came."""
    ran = {run.name: run.completion_s for run in played.ended}
    return np.array([ran[job.name] for job in jobs])
