"""Forecast the remaining CPU work of a running job from earlier runs of its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from recommender.contention.sharing import Stage, nonzero_remaining

OVERRUN_SHARE = 0.1
"""Remaining work of a job that has used more than every earlier run, as a share of its use."""

NO_HISTORY_SHARE = 1.0
"""The same without earlier runs: as much again as it has used, the best guess when only its age is known."""

FIRST_GUESS_S = 60.0
"""Least remaining work without earlier runs, in seconds at its demand."""

MAX_STAGES = 12
"""Stages of a run: enough to separate waiting from computing, few enough to simulate many runs."""

MIN_CORES = 0.01
"""Cores of a waiting job, so that waiting takes time too."""


@dataclass(frozen=True, slots=True)
class RunsOfClass:
    """The stages of earlier successful runs of a workload class."""

    runs: Sequence[Sequence[Stage]] = ()

    def whole_job(self, used_core_s: float, demand_cores: float) -> list[Stage]:
        """Stages from start to expected end of a job that has used `used_core_s`.

        The remaining work is the mean residual life: the mean over the runs that took longer. Its stages are those of
        the run with the nearest total, scaled.
        """
        demand_cores = max(demand_cores, MIN_CORES)
        totals = [sum(stage.core_s for stage in run) for run in self.runs]
        longer = [total for total in totals if total > used_core_s]
        if not longer:
            no_history_core_s = max(NO_HISTORY_SHARE * used_core_s, FIRST_GUESS_S * demand_cores)
            left_core_s = OVERRUN_SHARE * used_core_s if totals else no_history_core_s
            return [Stage(used_core_s + left_core_s, demand_cores)]
        total = fmean(longer)
        nearest_total, nearest = min(zip(totals, self.runs, strict=True), key=lambda run: abs(run[0] - total))
        if nearest_total == total:
            return list(nearest)
        return [Stage(stage.core_s * total / nearest_total, stage.cores) for stage in nearest]

    def left(self, used_core_s: float, demand_cores: float) -> list[Stage]:
        """The stages of `whole_job` still to be done."""
        return nonzero_remaining(self.whole_job(used_core_s, demand_cores), used_core_s)


def stages_of(step_s: float, cpu_cores: Sequence[float], used_core_s: float | None = None) -> list[Stage]:
    """Average a curve of cores since start into at most `MAX_STAGES` stages of equal length.

    `cpu_cores`: cores per step; NaN where nothing was measured.
    `used_core_s`: scale the stages to this total, for a curve that holds peaks instead of means; None: no scaling.

    >>> stages_of(10.0, [1.0, 3.0])
    [Stage(core_s=10.0, cores=1.0), Stage(core_s=30.0, cores=3.0)]
    >>> stages_of(10.0, [1.0, 3.0], 20.0)
    [Stage(core_s=5.0, cores=0.5), Stage(core_s=15.0, cores=1.5)]
    """
    levels = np.fmax(np.array(cpu_cores, np.float64), MIN_CORES)
    if used_core_s:
        levels *= used_core_s / (levels.sum() * step_s)
    parts = np.array_split(levels, min(MAX_STAGES, len(levels)))
    return [Stage(float(part.sum()) * step_s, float(part.mean())) for part in parts]
