"""How much CPU work is left of a running job, by what earlier runs of its class took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from recommender.contention.sharing import Stage, nonzero_remaining

BEYOND = 0.1
"""A job that has used more than every run before it is taken to have this share of its use before it."""

UNKNOWN = 1.0
"""The same of a class without runs: as much again as it has used, which is the best guess where ages are all we see."""

FIRST_GUESS_S = 60.0
"""What a job without a past is given at its start: seconds of its demand."""


MOST_STAGES = 12
"""Of a run: enough to see who waits while another computes, few enough to play many of them forth."""

LEAST_CORES = 0.01
"""A job that waits takes its time all the same."""


@dataclass(frozen=True, slots=True)
class RunsOfClass:
    """Earlier runs of a workload class that ended well, each as its stages."""

    runs: Sequence[Sequence[Stage]] = ()

    def whole_job(self, used_core_s: float, demand_cores: float) -> list[Stage]:
        """A job of the class from its start to its expected end, of which so much is done.

        What is left is the mean of what was left of the runs that took longer (the mean residual life), in the stages
        that the run nearest to that had.
        """
        demand_cores = max(demand_cores, LEAST_CORES)
        totals = [sum(stage.core_s for stage in run) for run in self.runs]
        longer = [total for total in totals if total > used_core_s]
        if longer:
            total = fmean(longer)
        else:
            more = BEYOND * used_core_s if totals else max(UNKNOWN * used_core_s, FIRST_GUESS_S * demand_cores)
            return [Stage(used_core_s + more, demand_cores)]
        nearest = min(zip(totals, self.runs, strict=True), key=lambda run: abs(run[0] - total))
        if nearest[0] == total:
            return list(nearest[1])
        return [Stage(stage.core_s * total / nearest[0], stage.cores) for stage in nearest[1]]

    def left(self, used_core_s: float, demand_cores: float) -> list[Stage]:
        """What of it is still to be done."""
        return nonzero_remaining(self.whole_job(used_core_s, demand_cores), used_core_s)


def stages_of(step_s: float, cpu_cores: Sequence[float], used_core_s: float | None = None) -> list[Stage]:
    """A curve of cores by the time since start in a few stages of equal length; NaN where nothing was seen.

    Parameters
    ----------
    used_core_s
        The stages are of so much in all, where the curve shows peaks of what was wanted; None: of what it shows.

    Examples
    --------
    >>> stages_of(10.0, [1.0, 3.0])
    [Stage(core_s=10.0, cores=1.0), Stage(core_s=30.0, cores=3.0)]
    >>> stages_of(10.0, [1.0, 3.0], 20.0)
    [Stage(core_s=5.0, cores=0.5), Stage(core_s=15.0, cores=1.5)]
    """
    levels = np.fmax(np.array(cpu_cores, np.float64), LEAST_CORES)
    if used_core_s:
        levels *= used_core_s / (levels.sum() * step_s)
    parts = np.array_split(levels, min(MOST_STAGES, len(levels)))
    return [Stage(float(part.sum()) * step_s, float(part.mean())) for part in parts]
