"""One worker whose jobs are served in the order in which fair sharing would end them: nobody ends much later for it.

See `phasewise.weights` and `EqualShareReference` for the rule and its source; here it is kept from decision to decision
for a worker that jobs come to and leave, as the kernel of a real node serves them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recommender.contention.forecast import RunsOfClass
from recommender.contention.phasewise import ForecastJob, weights
from recommender.contention.sharing import EPSILON, Stage, after, fair_shares, finish_times, nonzero_remaining

UNSURE = 0.2
"""When a job ends is not foreseen more closely than by this share of what it takes alone."""

LEAST_CORES = 0.01
"""A worker that has nothing for its jobs divides so much."""


@dataclass(slots=True)
class _Staying:
    worker: int
    done_core_s: float = 0.0
    ended_s: float = math.inf


@dataclass(slots=True)
class EqualShareReference:
    """Workers on which every job stays, at equal shares: when each would end if nobody were moved or preferred.

    It is to our moves and shares what fair sharing is to the fair sojourn protocol (Friedman and Henderson, SIGMETRICS
    2003): who ends no later than there is harmed by nobody, whatever else is done. The work of a job that still runs is
    its forecast; of one that has ended, what it took.

    Attributes
    ----------
    capacity_cores
        Of each worker.
    now_s
        How far it has been played.
    """

    capacity_cores: Sequence[float]
    now_s: float = 0.0
    _jobs: dict[str, _Staying] = field(default_factory=dict)

    def arrive(self, name: str, worker: int, done_core_s: float = 0.0) -> None:
        """A job comes, of which so much may have been done elsewhere, or before anybody looked."""
        self._jobs[name] = _Staying(worker, done_core_s)

    def forget(self, names: set[str]) -> None:
        """Drop those of these jobs that have ended here too."""
        self._jobs = {name: job for name, job in self._jobs.items() if name not in names or job.ended_s > self.now_s}

    def leave(self, name: str, core_s: float) -> None:
        """One is gone with so much of it done: here it ends with that, or has ended already."""
        if name in self._jobs and self._jobs[name].done_core_s >= core_s:
            del self._jobs[name]

    def job_counts(self) -> list[int]:
        """How many jobs run on each worker."""
        counts = [0] * len(self.capacity_cores)
        for job in self._jobs.values():
            counts[job.worker] += job.ended_s > self.now_s
        return counts

    def advance(self, now_s: float, whole: Mapping[str, Sequence[Stage]]) -> None:
        """Play on; `whole` are all jobs that came and are not forgotten, from start to end."""
        for worker, capacity in enumerate(self.capacity_cores):
            mine = {name: job for name, job in self._jobs.items() if job.worker == worker}
            self._advance_worker(mine, capacity, now_s, whole)
        self.now_s = now_s

    def ends_s(self, whole: Mapping[str, Sequence[Stage]]) -> dict[str, float]:
        """When each of them ends here, if no further one comes."""
        ends = {name: job.ended_s for name, job in self._jobs.items()}
        for worker, capacity in enumerate(self.capacity_cores):
            names = [name for name, job in self._jobs.items() if job.worker == worker and job.ended_s > self.now_s]
            left = [after(whole[name], self._jobs[name].done_core_s) for name in names]
            for name, lasts_s in zip(names, finish_times(capacity, left, [0.0] * len(left)), strict=True):
                ends[name] = self.now_s + lasts_s
        return ends

    def _advance_worker(
        self, jobs: Mapping[str, _Staying], capacity: float, until_s: float, whole: Mapping[str, Sequence[Stage]]
    ) -> None:
        now_s = self.now_s
        left = {name: after(whole[name], job.done_core_s) for name, job in jobs.items()}
        for name, job in jobs.items():
            if left[name] and job.ended_s <= now_s:  # it takes longer than it was taken to
                job.ended_s = math.inf
        while now_s < until_s and (running := [name for name in jobs if left[name]]):
            cores = fair_shares(capacity, [left[name][0].cores for name in running], [1.0] * len(running))
            step_s = min(left[name][0].core_s / share for name, share in zip(running, cores, strict=True))
            step_s = min(step_s, until_s - now_s)
            now_s += step_s
            for name, share in zip(running, cores, strict=True):
                jobs[name].done_core_s += share * step_s
                stage = left[name][0]
                if stage.core_s - share * step_s > EPSILON:
                    left[name][0] = stage._replace(core_s=stage.core_s - share * step_s)
                    continue
                left[name].pop(0)
                if not left[name]:
                    jobs[name].ended_s = now_s


class RunningJob(NamedTuple):
    """A job: the CPU time it has used, the cores it would use now, and the runs of its class, if any are known."""

    used_core_s: float
    cores: float
    runs: RunsOfClass


@dataclass(slots=True)
class FairQueue:
    """The worker with the jobs that were on it when it was asked last."""

    _stay: EqualShareReference | None = None
    _whole: dict[str, Sequence[Stage]] = field(default_factory=dict)
    _used: Mapping[str, float] = field(default_factory=dict)
    _order: Sequence[str] = ()

    def weights(self, now_s: float, cpu_cores: float, jobs: Mapping[str, RunningJob]) -> Mapping[str, float]:
        """CPU weights of the jobs that are there now; equal where of one of them nothing is foreseen."""
        cores = [max(cpu_cores, LEAST_CORES)]
        stay = self._stay = self._stay or EqualShareReference(cores, now_s)
        stay.capacity_cores = cores
        came = jobs.keys() - self._whole.keys()
        for name, job in jobs.items():
            self._whole[name] = _whole(job, cores[0])
        for name in self._used.keys() - jobs.keys():  # whether it has ended or was moved: there is no more of it here
            self._whole[name] = [Stage(self._used[name], cores[0])]
            stay.leave(name, self._used[name])
        self._used = {name: job.used_core_s for name, job in jobs.items()}
        stay.advance(now_s, self._whole)
        for name in sorted(came):
            stay.arrive(name, 0, jobs[name].used_core_s)
        stay.forget(self._whole.keys() - jobs.keys())
        ends_s = stay.ends_s(self._whole)
        self._whole = {name: whole for name, whole in self._whole.items() if name in ends_s}
        sharing = [
            ForecastJob(
                name,
                0,
                nonzero_remaining(self._whole[name], job.used_core_s),
                ends_s[name],
                foreseen=bool(job.runs.runs),
            )
            for name, job in jobs.items()
        ]
        slack_s = [UNSURE * sum(stage.core_s for stage in self._whole[job.name]) / cores[0] for job in sharing]
        found = weights(sharing, cores[0], now_s, self._order, slack_s)
        self._order = list(found) if len(set(found.values())) > 1 else ()
        return found


def _whole(job: RunningJob, cpu_cores: float) -> Sequence[Stage]:
    """A job from its start to its end as it would go alone.

    Runs of its class may have been held back at any of their stages: they tell how much work it is, not how fast it can
    be done. A job that would use so much now is taken to be able to all the time.
    """
    stages = job.runs.whole_job(job.used_core_s, job.cores)
    return [stage._replace(cores=max(stage.cores, min(job.cores, cpu_cores))) for stage in stages]
