"""One worker whose jobs are served in the order in which fair sharing would end them: nobody ends much later for it.

See `phasewise.weights` and `stay` for the rule and its source; here it is kept from decision to decision for a worker
that jobs come to and leave, as the kernel of a real node serves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recommender.contention.forecast import RunsOfClass
from recommender.contention.phasewise import Sharing, weights
from recommender.contention.sharing import Stage, left_of
from recommender.contention.stay import StayWorld

UNSURE = 0.2
"""When a job ends is not foreseen more closely than by this share of what it takes alone."""

LEAST_CORES = 0.01
"""A worker that has nothing for its jobs divides so much."""


class Known(NamedTuple):
    """A job: the CPU time it has used, the cores it would use now, and the runs of its class, if any are known."""

    used_core_s: float
    cores: float
    runs: RunsOfClass


@dataclass(slots=True)
class FairQueue:
    """The worker with the jobs that were on it when it was asked last."""

    _stay: StayWorld | None = None
    _whole: dict[str, Sequence[Stage]] = field(default_factory=dict)
    _used: Mapping[str, float] = field(default_factory=dict)
    _order: Sequence[str] = ()

    def weights(self, now_s: float, cpu_cores: float, jobs: Mapping[str, Known]) -> Mapping[str, float]:
        """CPU weights of the jobs that are there now; equal where of one of them nothing is foreseen."""
        cores = [max(cpu_cores, LEAST_CORES)]
        stay = self._stay = self._stay or StayWorld(cores, now_s)
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
            Sharing(
                name,
                0,
                left_of(self._whole[name], job.used_core_s),
                ends_s[name],
                foreseen=bool(job.runs.runs),
            )
            for name, job in jobs.items()
        ]
        slack_s = [UNSURE * sum(stage.core_s for stage in self._whole[job.name]) / cores[0] for job in sharing]
        found = weights(sharing, cores[0], now_s, self._order, slack_s)
        self._order = list(found) if len(set(found.values())) > 1 else ()
        return found


def _whole(job: Known, cpu_cores: float) -> Sequence[Stage]:
    """A job from its start to its end as it would go alone.

    Runs of its class may have been held back at any of their stages: they tell how much work it is, not how fast it can
    be done. A job that would use so much now is taken to be able to all the time.
    """
    stages = job.runs.whole_job(job.used_core_s, job.cores)
    return [stage._replace(cores=max(stage.cores, min(job.cores, cpu_cores))) for stage in stages]
