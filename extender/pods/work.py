"""What a training job has left: by what a run of its workload class takes, and by what it has used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from extender.pods.curves import MOST_CORES
from recommender.cluster.objects.reading import Fields
from recommender.contention.forecast import RunsOfClass, stages_of
from recommender.contention.sharing import Stage

LEAST_RUN_S, MOST_RUN_S = 1.0, 1e9
"""A class that takes a moment for a run, or thirty years, tells nonsense."""

MOST_RUNS = 10.0
"""Nobody is believed to have used more than so many runs of its class: no number that a profile holds goes further."""


class Rate(NamedTuple):
    """How much CPU a pod has used on average since it started, unix seconds."""

    cpu_cores: float
    since_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """A job on its way.

    Attributes
    ----------
    run
        What a run of its class takes from start to end.
    before_core_s
        The CPU time that its earlier pods used.
    """

    run: tuple[Stage, ...]
    rate: Rate
    before_core_s: float = 0.0

    def done_core_s(self, now_s: float) -> float:
        """The CPU time that it has used."""
        return self.before_core_s + self.rate.cpu_cores * max(0.0, now_s - self.rate.since_s)

    def left(self, now_s: float) -> list[Stage]:
        """What of it is still to be done."""
        done_core_s = min(self.done_core_s(now_s), MOST_RUNS * core_s(self.run))
        return RunsOfClass([self.run]).left(done_core_s, self.rate.cpu_cores)


def core_s(run: Sequence[Stage]) -> float:
    """CPU seconds of a run."""
    return math.fsum(stage.core_s for stage in run)


def peak_cores(run: Sequence[Stage]) -> float:
    """The most that it uses at a time."""
    return max(stage.cores for stage in run)


def unhindered(run: Sequence[Stage], started_s: float) -> Rate:
    """Of a job of which nobody tells what it has used: as if it had found the cores that it wants."""
    return Rate(core_s(run) / math.fsum(stage.core_s / stage.cores for stage in run), started_s)


def run_in(status: Fields) -> tuple[Stage, ...]:
    """What a run of the class takes that a PhaseProfile is of; of several containers that which takes most, and nothing
    where none tells what can be used."""
    runs = [run for one in status.children("containers") if (run := _run_of(one.child("demand")))]
    return max(runs, key=core_s, default=())


def _run_of(demand: Fields) -> tuple[Stage, ...]:
    step_s, levels = demand.quantity("stepSeconds"), demand.raw.get("cpuCores")
    if step_s is None or not isinstance(levels, list) or not all(isinstance(level, int | float) for level in levels):
        return ()
    return _stages(step_s, tuple(levels))


@lru_cache(maxsize=4096)
def _stages(step_s: float, levels: tuple[Any, ...]) -> tuple[Stage, ...]:
    usable = LEAST_RUN_S <= len(levels) * step_s <= MOST_RUN_S and all(0.0 <= level <= MOST_CORES for level in levels)
    return tuple(stages_of(step_s, levels)) if usable else ()


def rates_in(status: Fields) -> dict[str, Rate]:
    """What the pods that a PhaseProfile tells of have used, by UID; of several containers that which uses most."""
    rates: dict[str, Rate] = {}
    for pod in status.children("pods"):
        cpu_cores, since_s = pod.quantity("meanCpuCores"), pod.time_s("startedAt")
        if cpu_cores is not None and since_s is not None and 0.0 <= cpu_cores <= MOST_CORES:
            rate = Rate(cpu_cores, since_s)
            rates[pod.text("uid")] = max(rate, rates.get(pod.text("uid"), rate))
    return rates
