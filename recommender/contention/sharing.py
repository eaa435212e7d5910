"""How a worker's cores divide among the jobs on it, and when the jobs end if nothing else happens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

EPSILON = 1e-9
"""Cores, or core seconds: less is none."""


class Stage(NamedTuple):
    """A part of a job: the CPU time it takes, and how many cores it uses where they are free."""

    core_s: float
    cores: float


def fair_shares(capacity_cores: float, demand_cores: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Cores for each job: in proportion to the weights, nobody above its demand, and none idle that is asked for.

    What the kernel's scheduler makes of `cpu.weight` over a while (weighted max-min fairness).

    Examples
    --------
    >>> fair_shares(8.0, [2.0, 8.0, 8.0], [1.0, 1.0, 2.0])
    [2.0, 2.0, 4.0]
    """
    shares = [0.0] * len(demand_cores)
    hungry = [place for place, demand in enumerate(demand_cores) if demand > EPSILON]
    left = capacity_cores
    while hungry and left > EPSILON:
        level = left / sum(weights[place] for place in hungry)
        full = [place for place in hungry if demand_cores[place] <= level * weights[place]]
        for place in full or hungry:
            shares[place] = demand_cores[place] if full else level * weights[place]
            left -= shares[place]
        hungry = [place for place in hungry if not shares[place]] if full else []
    return shares


def in_order(capacity_cores: float, demand_cores: Sequence[float], order: Sequence[int]) -> list[float]:
    """Cores for each job where the first of the order takes all it can use, then the next."""
    shares, left = [0.0] * len(demand_cores), capacity_cores
    for place in order:
        shares[place] = min(left, demand_cores[place])
        left -= shares[place]
    return shares


def finish_times(
    capacity_cores: float,
    work: Sequence[Sequence[Stage]],
    delays_s: Sequence[float],
    order: Sequence[int] | None = None,
) -> list[float]:
    """Seconds until each job has ended, if none comes and none goes; infinite for those that never do.

    Parameters
    ----------
    work
        What is left of each job.
    delays_s
        Until it runs at all: a job that is on its way from another worker.
    order
        Who is served first; None where all have equal shares.

    Examples
    --------
    Two jobs of 8 and 16 core seconds on 2 cores: each gets one until the first ends.

    >>> finish_times(2.0, [[Stage(8.0, 2.0)], [Stage(16.0, 2.0)]], [0.0, 0.0])
    [8.0, 12.0]
    >>> finish_times(2.0, [[Stage(8.0, 2.0)], [Stage(16.0, 2.0)]], [0.0, 0.0], order=[1, 0])
    [12.0, 8.0]
    """
    ends_s, now_s = [math.inf if stages else 0.0 for stages in work], 0.0
    stage = [0] * len(work)
    left = [stages[0].core_s if stages else 0.0 for stages in work]
    alive = [place for place, stages in enumerate(work) if stages]
    while alive and now_s < math.inf:
        demand = [0.0] * len(work)
        come_s = math.inf
        for place in alive:
            if delays_s[place] <= now_s:
                demand[place] = work[place][stage[place]].cores
            else:
                come_s = min(come_s, delays_s[place])
        if order is None:
            cores = fair_shares(capacity_cores, demand, [1.0] * len(work))
        else:
            cores = in_order(capacity_cores, demand, order)
        running = [place for place in alive if cores[place] > EPSILON]
        step_s = min((left[place] / cores[place] for place in running), default=math.inf)
        if now_s + step_s > come_s:
            step_s, now_s = come_s - now_s, come_s
        else:
            now_s += step_s
        for place in running:
            left[place] -= cores[place] * step_s
            if left[place] <= EPSILON:
                stage[place] += 1
                if stage[place] < len(work[place]):
                    left[place] = work[place][stage[place]].core_s
                else:
                    ends_s[place] = now_s
                    alive.remove(place)
    return ends_s


def after(stages: Sequence[Stage], done_core_s: float) -> list[Stage]:
    """What is left of a job once so much of it is done.

    Examples
    --------
    >>> after([Stage(4.0, 1.0), Stage(10.0, 8.0)], 6.0)
    [Stage(core_s=8.0, cores=8.0)]
    """
    for place, stage in enumerate(stages):
        if stage.core_s - done_core_s > EPSILON:
            rest = [each for each in stages[place + 1 :] if each.core_s > EPSILON]
            return [stage._replace(core_s=stage.core_s - done_core_s) if done_core_s else stage, *rest]
        done_core_s = max(0.0, done_core_s - stage.core_s)
    return []


def nonzero_remaining(stages: Sequence[Stage], done_core_s: float, cores: float = 1.0) -> list[Stage]:
    """The same of a job that still runs: where nothing is left by its forecast, next to nothing."""
    return after(stages, done_core_s) or [Stage(10.0 * EPSILON, cores)]
