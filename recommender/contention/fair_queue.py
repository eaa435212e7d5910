"""One worker that serves jobs in the order in which equal sharing would finish them, so that none ends much later.

`weights` and `EqualShareReference` give the rule and its source. `FairQueue` applies it to a node where jobs start and
end, and returns CPU weights for the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recommender.contention.sharing import RunsOfClass, Stage, finish_times, nonzero_remaining, remaining

FINISH_TIME_UNCERTAINTY = 0.2  # error of a forecast finish time, as a share of the job's duration when it runs alone
MIN_CORES = 0.01  # capacity assumed for a worker without free cores
LATENESS_TOLERANCE_S = 1.0  # a smaller delay is below the accuracy of a forecast


@dataclass(slots=True)
class _ReferenceJob:
    done_core_s: float
    ended_s: float = math.inf


@dataclass(slots=True)
class EqualShareReference:
    """A simulated worker with equal shares and no moves: the finish times that no policy may make worse.

    Equal sharing plays the part of processor sharing in the fair sojourn protocol (Friedman and Henderson, SIGMETRICS
    2003): a job that ends no later than here is not harmed. The work of a running job is its forecast, that of an ended
    job what it used.
    """

    capacity_cores: float
    now_s: float = 0.0  # time up to which the worker has been simulated
    _jobs: dict[str, _ReferenceJob] = field(default_factory=dict)

    def arrive(self, name: str, done_core_s: float = 0.0) -> None:
        """Add a job with the work that it has already done."""
        self._jobs[name] = _ReferenceJob(done_core_s)

    def running(self) -> list[str]:
        """The jobs that have not ended here."""
        return [name for name, job in self._jobs.items() if job.ended_s > self.now_s]

    def forget(self, names: set[str]) -> None:
        """Drop those of these jobs that have ended here too."""
        for name in (names & self._jobs.keys()).difference(self.running()):
            del self._jobs[name]

    def leave(self, name: str, core_s: float) -> None:
        """Remove a job that left after `core_s` of work if it has done as much here; otherwise it still runs."""
        if name in self._jobs and self._jobs[name].done_core_s >= core_s:
            del self._jobs[name]

    def advance(self, now_s: float, whole: Mapping[str, Sequence[Stage]]) -> None:
        """Simulate up to `now_s`; `whole` maps each job to its stages from start to end."""
        left, done_core_s = self._left(self._jobs, whole), [job.done_core_s for job in self._jobs.values()]
        ends_s = finish_times(self.capacity_cores, left, [0.0] * len(left), None, self.now_s, now_s, done_core_s)
        for name, stages, done, end_s in zip(list(self._jobs), left, done_core_s, ends_s, strict=True):
            if stages:  # even if it ended here before its forecast grew
                self._jobs[name] = _ReferenceJob(done, end_s)
        self.now_s = now_s

    def ends_s(self, whole: Mapping[str, Sequence[Stage]]) -> dict[str, float]:
        """Finish time of each job here, if no further job arrives."""
        running = self.running()
        durations_s = finish_times(self.capacity_cores, self._left(running, whole), [0.0] * len(running))
        later = {name: self.now_s + duration_s for name, duration_s in zip(running, durations_s, strict=True)}
        return {name: later.get(name, job.ended_s) for name, job in self._jobs.items()}

    def _left(self, names: Iterable[str], whole: Mapping[str, Sequence[Stage]]) -> list[list[Stage]]:
        return [remaining(whole[name], self._jobs[name].done_core_s) for name in names]


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """A running job and the forecast of its remaining work."""

    name: str
    left: Sequence[Stage]  # the stages still to be done
    due_s: float  # when it would end under equal shares without moves
    delay_s: float = 0.0  # time until it runs, while it is being moved
    # The forecast is based on earlier runs of its class. Jobs are ordered only if all forecasts are.
    foreseen: bool = True


def weights(
    jobs: Sequence[ForecastJob],
    capacity_cores: float,
    now_s: float,
    before: Sequence[str] = (),
    slack_s: Sequence[float] = (),
    ratio: float = 8.0,
    floor: float = 0.02,
) -> Mapping[str, float]:
    """CPU weights of the jobs of one worker: each `ratio` times that of the next in order, but at least `floor`.

    `before`: names in the previous order. Jobs due at about the same time keep it: forecasts fluctuate, and two jobs
    that alternate both end late.
    `slack_s`: error of each due time; zero by default.

    Two jobs that each keep the worker of one core busy for ten seconds; equal shares would end both after twenty:

    >>> ten = [Stage(10.0, 1.0)]
    >>> weights([ForecastJob("a", ten, due_s=20.1), ForecastJob("b", ten, due_s=20.0)], 1.0, 0.0)
    {'b': 1.0, 'a': 0.125}
    """
    if not all(job.foreseen for job in jobs):
        return {job.name: 1.0 for job in jobs}
    order = sorted(range(len(jobs)), key=lambda index: (jobs[index].due_s, jobs[index].name))
    slack_s = slack_s or [0.0] * len(jobs)
    order = _advance_late_jobs(jobs, _keep_order(jobs, order, before, slack_s), capacity_cores, now_s, slack_s)
    return {jobs[index].name: max(ratio**-rank, floor) for rank, index in enumerate(order)}


def _keep_order(
    jobs: Sequence[ForecastJob], order: Sequence[int], before: Sequence[str], slack_s: Sequence[float]
) -> list[int]:
    """Restore the previous order of jobs whose due times differ by no more than their slack."""
    ranks = {name: rank for rank, name in enumerate(before)}

    def stays_first(second: int, first: int) -> bool:
        """Whether the job that is now second was first before and is due within its slack."""
        was_first = ranks.get(jobs[second].name, len(ranks)) < ranks.get(jobs[first].name, -1)
        return was_first and jobs[second].due_s - jobs[first].due_s <= slack_s[second]

    kept: list[int] = []
    for index in order:
        rank = len(kept)
        while rank > 0 and stays_first(index, kept[rank - 1]):
            rank -= 1
        kept.insert(rank, index)
    return kept


def _advance_late_jobs(
    jobs: Sequence[ForecastJob], order: list[int], capacity_cores: float, now_s: float, slack_s: Sequence[float]
) -> list[int]:
    """Move up the jobs that would miss their due time because they cannot use all cores alone.

    Such a job, served last, runs alone at the end while cores are idle: it ends late, and so does the worker.
    """
    work, delays_s = [job.left for job in jobs], [job.delay_s for job in jobs]

    def late_s(order: list[int]) -> list[float]:
        ends_s = finish_times(capacity_cores, work, delays_s, order)
        return [
            max(0.0, now_s + end_s - job.due_s - slack) for job, end_s, slack in zip(jobs, ends_s, slack_s, strict=True)
        ]

    late = late_s(order)
    while max(late, default=0.0) > LATENESS_TOLERANCE_S:
        rank = order.index(late.index(max(late)))
        if rank == 0:
            break
        swapped = [*order[: rank - 1], order[rank], order[rank - 1], *order[rank + 1 :]]
        if sum(late_after := late_s(swapped)) >= sum(late):
            break
        order, late = swapped, late_after
    return order


class RunningJob(NamedTuple):
    """A job: the CPU time it has used, the cores it would use now, and the known runs of its class."""

    used_core_s: float
    cores: float
    runs: RunsOfClass


@dataclass(slots=True)
class FairQueue:
    """The queue of one worker, kept between calls of `weights`."""

    _reference: EqualShareReference | None = None
    _whole: dict[str, Sequence[Stage]] = field(default_factory=dict)
    _used: Mapping[str, float] = field(default_factory=dict)
    _order: Sequence[str] = ()

    def weights(self, now_s: float, cpu_cores: float, jobs: Mapping[str, RunningJob]) -> Mapping[str, float]:
        """CPU weights of the present jobs; equal if any of them has no forecast."""
        capacity_cores = max(cpu_cores, MIN_CORES)
        reference = self._reference = self._reference or EqualShareReference(capacity_cores, now_s)
        reference.capacity_cores = capacity_cores
        new = jobs.keys() - self._whole.keys()
        for name, job in jobs.items():
            self._whole[name] = _whole(job, capacity_cores)
        for name in self._used.keys() - jobs.keys():  # ended or moved: it does no more work here
            self._whole[name] = [Stage(self._used[name], capacity_cores)]
            reference.leave(name, self._used[name])
        self._used = {name: job.used_core_s for name, job in jobs.items()}
        reference.advance(now_s, self._whole)
        for name in sorted(new):
            reference.arrive(name, jobs[name].used_core_s)
        reference.forget(self._whole.keys() - jobs.keys())
        ends_s = reference.ends_s(self._whole)
        self._whole = {name: whole for name, whole in self._whole.items() if name in ends_s}
        forecasts = []
        for name, job in jobs.items():
            left = nonzero_remaining(self._whole[name], job.used_core_s)
            forecasts.append(ForecastJob(name, left, ends_s[name], foreseen=bool(job.runs.runs)))
        work_core_s = [sum(stage.core_s for stage in self._whole[job.name]) for job in forecasts]
        slack_s = [FINISH_TIME_UNCERTAINTY * work / capacity_cores for work in work_core_s]
        found = weights(forecasts, capacity_cores, now_s, self._order, slack_s)
        self._order = list(found) if len(set(found.values())) > 1 else ()
        return found


def _whole(job: RunningJob, cpu_cores: float) -> Sequence[Stage]:
    """The stages of a job from start to end when it runs alone.

    Earlier runs may have been throttled in any stage, so they tell the work of a stage but not its speed. A job is
    assumed to be able to use its present demand in every stage.
    """
    stages = job.runs.whole_job(job.used_core_s, job.cores)
    return [stage._replace(cores=max(stage.cores, min(job.cores, cpu_cores))) for stage in stages]
