"""What would be if nobody were moved or preferred: when each job would end where the default scheduler had put it.

It is to our moves and shares what fair sharing is to the fair sojourn protocol (Friedman and Henderson, SIGMETRICS
2003): who ends no later than there is harmed by nobody, whatever else is done. The work of a job that still runs is its
forecast; of one that has ended, what it took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recommender.contention.sharing import NOTHING, Stage, after, fair_shares, finish_times


@dataclass(slots=True)
class _Staying:
    worker: int
    done_core_s: float = 0.0
    ended_s: float = math.inf


@dataclass(slots=True)
class StayWorld:
    """Workers on which every job stays, at equal shares.

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

    def held(self) -> list[int]:
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
                if stage.core_s - share * step_s > NOTHING:
                    left[name][0] = stage._replace(core_s=stage.core_s - share * step_s)
                    continue
                left[name].pop(0)
                if not left[name]:
                    jobs[name].ended_s = now_s
