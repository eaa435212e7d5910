"""One worker whose jobs are served in the order in which fair sharing would end them: nobody ends later for it.

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

LEAST_CORES = 0.01
"""A worker that has nothing for its jobs divides so much."""


class Known(NamedTuple):
    """A job: the CPU time it has used, how much it uses now, and the runs of its class (none where none is known)."""

    used_core_s: float
    cores: float
    runs: RunsOfClass


@dataclass(slots=True)
class FairQueue:
    """The worker with the jobs that were on it when it was asked last."""

    _stay: StayWorld | None = None
    _whole: dict[str, Sequence[Stage]] = field(default_factory=dict)

    def weights(self, now_s: float, cpu_cores: float, jobs: Mapping[str, Known]) -> Mapping[str, float]:
        """CPU weights of the jobs that are there now; equal where of one of them nothing is foreseen."""
        cores = [max(cpu_cores, LEAST_CORES)]
        stay = self._stay = self._stay or StayWorld(cores, now_s)
        stay.capacity_cores = cores
        came = jobs.keys() - self._whole.keys()
        for name, job in jobs.items():
            self._whole[name] = job.runs.whole_job(job.used_core_s, max(job.cores, LEAST_CORES))
            if name in came:
                stay.arrive(name, 0, job.used_core_s)
        stay.advance(now_s, self._whole)
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
        return weights(sharing, cores[0], now_s)
