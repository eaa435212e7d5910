"""Contention written for reading: time goes on in small steps, and in each of them cores are dealt out bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

STEP_S = 0.02
CRUMBS = 200

ROUNDING = 1e-9
"""Core seconds: what is left after so many steps that were added up is nothing."""


def naive_shares(cores: float, demand: Sequence[float], weights: Sequence[float]) -> list[float]:
    """A crumb of the cores at a time goes to who has least for its weight, of those that want more."""
    shares, crumb = [0.0] * len(demand), cores / CRUMBS
    for _ in range(CRUMBS):
        hungry = [place for place in range(len(demand)) if shares[place] < demand[place] - 1e-12]
        if not hungry:
            break
        poorest = min(hungry, key=lambda place: shares[place] / weights[place])
        shares[poorest] = min(demand[poorest], shares[poorest] + crumb)
    return shares


def naive_finish_times(
    cores: float,
    work: Sequence[Sequence[tuple[float, float]]],
    delays_s: Sequence[float],
    order: Sequence[int] | None = None,
) -> list[float]:
    """When each job, a list of stages of core seconds and cores, has ended."""
    left = [[list(stage) for stage in stages] for stages in work]
    ends_s, step, remembered = [0.0] * len(work), 0, {}
    while any(left):
        now_s, step = step * STEP_S, step + 1
        demand = tuple(
            stages[0][1] if stages and now_s >= delay else 0.0 for stages, delay in zip(left, delays_s, strict=True)
        )
        if demand not in remembered:
            if order is None:
                remembered[demand] = naive_shares(cores, demand, [1.0] * len(work))
            else:
                free, shares = cores, [0.0] * len(work)
                for place in order:
                    shares[place] = min(free, demand[place])
                    free -= shares[place]
                remembered[demand] = shares
        for place, stages in enumerate(left):
            if not stages:
                continue
            stages[0][0] -= remembered[demand][place] * STEP_S
            if stages[0][0] <= ROUNDING:
                stages.pop(0)
                ends_s[place] = now_s + STEP_S
    return ends_s
