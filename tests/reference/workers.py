"""Contention, written plainly: time advances in small steps, and in each the cores are assigned in small parts."""

from __future__ import annotations

from collections.abc import Sequence

STEP_S = 0.02
PARTS = 200

ROUNDING = 1e-9
"""Core seconds: a remainder after so many additions that counts as zero."""


def naive_shares(cores: float, demand: Sequence[float], weights: Sequence[float]) -> list[float]:
    """One part of the cores at a time goes to the job with the least for its weight, of those that want more."""
    shares, part = [0.0] * len(demand), cores / PARTS
    for _ in range(PARTS):
        unsatisfied = [place for place in range(len(demand)) if shares[place] < demand[place] - 1e-12]
        if not unsatisfied:
            break
        lowest = min(unsatisfied, key=lambda place: shares[place] / weights[place])
        shares[lowest] = min(demand[lowest], shares[lowest] + part)
    return shares


def naive_finish_times(
    cores: float,
    work: Sequence[Sequence[tuple[float, float]]],
    delays_s: Sequence[float],
    order: Sequence[int] | None = None,
) -> list[float]:
    """Finish times of jobs, each a list of stages of core seconds and cores."""
    left = [[list(stage) for stage in stages] for stages in work]
    ends_s, step, cached = [0.0] * len(work), 0, {}
    while any(left):
        now_s, step = step * STEP_S, step + 1
        demand = tuple(
            stages[0][1] if stages and now_s >= delay else 0.0 for stages, delay in zip(left, delays_s, strict=True)
        )
        if demand not in cached:
            if order is None:
                cached[demand] = naive_shares(cores, demand, [1.0] * len(work))
            else:
                free, shares = cores, [0.0] * len(work)
                for place in order:
                    shares[place] = min(free, demand[place])
                    free -= shares[place]
                cached[demand] = shares
        for place, stages in enumerate(left):
            if not stages:
                continue
            stages[0][0] -= cached[demand][place] * STEP_S
            if stages[0][0] <= ROUNDING:
                stages.pop(0)
                ends_s[place] = now_s + STEP_S
    return ends_s
