"""How the cores of a worker are divided among its jobs, what work these have left, and when they finish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

EPSILON = 1e-9  # cores or core-seconds: less counts as zero


class Stage(NamedTuple):
    """A part of a job: its CPU time, and how many cores it uses when they are free."""

    core_s: float
    cores: float


def fair_shares(capacity_cores: float, demand_cores: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Cores of each job by weighted max-min fairness, as the kernel's scheduler divides them by `cpu.weight`.

    No job gets more than its demand, and no core is idle while a job demands it.

    >>> fair_shares(8.0, [2.0, 8.0, 8.0], [1.0, 1.0, 2.0])
    [2.0, 2.0, 4.0]
    """
    shares = [0.0] * len(demand_cores)
    unserved = [index for index, demand in enumerate(demand_cores) if demand > EPSILON]
    left = capacity_cores
    while unserved and left > EPSILON:
        level = left / sum(weights[index] for index in unserved)
        satisfied = [index for index in unserved if demand_cores[index] <= level * weights[index]]
        for index in satisfied or unserved:
            shares[index] = demand_cores[index] if satisfied else level * weights[index]
            left -= shares[index]
        unserved = [index for index in unserved if not shares[index]] if satisfied else []
    return shares


def priority_shares(capacity_cores: float, demand_cores: Sequence[float], order: Sequence[int]) -> list[float]:
    """Cores of each job under strict priority: the first in order takes all it can use, then the next."""
    shares, left = [0.0] * len(demand_cores), capacity_cores
    for index in order:
        shares[index] = min(left, demand_cores[index])
        left -= shares[index]
    return shares


def finish_times(
    capacity_cores: float,
    work: Sequence[Sequence[Stage]],
    delays_s: Sequence[float],
    order: Sequence[int] | None = None,
    now_s: float = 0.0,
    until_s: float = math.inf,
    done_core_s: list[float] | None = None,
) -> list[float]:
    """When each job ends if none arrives or leaves, from `now_s` on; infinite if that is after `until_s` or never.

    `delays_s`: time until each job runs, while it is being moved from another worker.
    `order`: indices of the jobs by priority; None for equal shares.
    `done_core_s`: OUT, to which the work of each job is added.

    Two jobs of 8 and 16 core seconds on 2 cores: each gets one until the first ends.

    >>> finish_times(2.0, [[Stage(8.0, 2.0)], [Stage(16.0, 2.0)]], [0.0, 0.0])
    [8.0, 12.0]
    >>> finish_times(2.0, [[Stage(8.0, 2.0)], [Stage(16.0, 2.0)]], [0.0, 0.0], order=[1, 0])
    [12.0, 8.0]
    """
    begins_s = [now_s + delay_s for delay_s in delays_s]
    ends_s, stage = [math.inf if stages else now_s for stages in work], [0] * len(work)
    done_core_s = [0.0] * len(work) if done_core_s is None else done_core_s
    left = [stages[0].core_s if stages else 0.0 for stages in work]
    alive, equal = [index for index, stages in enumerate(work) if stages], [1.0] * len(work)
    while alive and now_s < until_s:
        demand = [0.0] * len(work)
        arrival_s = math.inf
        for index in alive:
            if begins_s[index] <= now_s:
                demand[index] = work[index][stage[index]].cores
            else:
                arrival_s = min(arrival_s, begins_s[index])
        if order is None:
            cores = fair_shares(capacity_cores, demand, equal)
        else:
            cores = priority_shares(capacity_cores, demand, order)
        running = [index for index in alive if cores[index] > EPSILON]
        step_s = min([left[index] / cores[index] for index in running] + [until_s - now_s])
        if now_s + step_s > arrival_s:
            step_s, now_s = arrival_s - now_s, arrival_s
        else:
            now_s += step_s
        for index in running:
            done_core_s[index] += cores[index] * step_s
            left[index] -= cores[index] * step_s
            if left[index] <= EPSILON:
                stage[index] += 1
                if stage[index] < len(work[index]):
                    left[index] = work[index][stage[index]].core_s
                else:
                    ends_s[index] = now_s
                    alive.remove(index)
    return ends_s


def remaining(stages: Sequence[Stage], done_core_s: float) -> list[Stage]:
    """The stages left of a job after `done_core_s` of work.

    >>> remaining([Stage(4.0, 1.0), Stage(10.0, 8.0)], 6.0)
    [Stage(core_s=8.0, cores=8.0)]
    """
    for index, stage in enumerate(stages):
        if stage.core_s - done_core_s > EPSILON:
            rest = [later for later in stages[index + 1 :] if later.core_s > EPSILON]
            return [stage._replace(core_s=stage.core_s - done_core_s) if done_core_s else stage, *rest]
        done_core_s = max(0.0, done_core_s - stage.core_s)
    return []


def nonzero_remaining(stages: Sequence[Stage], done_core_s: float, cores: float = 1.0) -> list[Stage]:
    """`remaining` of a job that still runs: a tiny stage if its forecast leaves nothing."""
    return remaining(stages, done_core_s) or [Stage(10.0 * EPSILON, cores)]


OVERRUN_SHARE = 0.1  # remaining work of a job that has used more than every earlier run, as a share of its use

NO_HISTORY_SHARE = 1.0
"""The same without earlier runs: as much again as it has used, the best guess when only its age is known."""

FIRST_GUESS_S = 60.0  # least remaining work without earlier runs, in seconds at its demand
MAX_STAGES = 12  # stages of a run: enough to separate waiting from computing, few enough to simulate many runs
MIN_CORES = 0.01  # cores of a waiting job, so that waiting takes time too


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
