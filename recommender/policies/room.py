"""Limit the targets of a pod to the nodes it may run on, and to the quota of its namespace.

A pod that requests more than any node offers stays pending for ever; one that requests more than the quota leaves is
not recreated once it is evicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from recommender.policies.constraints import ROUNDING_TOLERANCE, WHOLE_UNITS, at_most
from recommender.records import CPU, MEMORY, Amounts, ContainerPolicy, ContainerRecommendation

NO_USE: Amounts = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Room:
    """Room for one pod, (cpu_cores, memory_bytes)."""

    nodes: tuple[Amounts, ...] = ()  # what each node offers that it may run on; empty if unknown: nothing is cut then
    quota: Amounts = (math.inf, math.inf)  # most that it may request; infinite without a limit
    # Most that its targets may sum to before its node defers the resize; infinite where it would not.
    where_it_runs: Amounts = (math.inf, math.inf)
    has: Mapping[str, Amounts] = field(default_factory=dict)  # by container, its current requests there


def fit_room(
    recommendations: Sequence[ContainerRecommendation],
    others: Amounts,
    room: Room,
    rules_of: Callable[[str], ContainerPolicy],
    needed: Mapping[str, Amounts],
) -> tuple[ContainerRecommendation, ...]:
    """Cut the targets of one pod so that it fits at least one of the nodes, the quota, and the node it runs on.

    All targets of a resource shrink by the same share, for the node that needs the smallest cut, and lower bounds
    follow. None shrinks below its minAllowed, to which the updater would raise it again; to fit a node, none shrinks
    below what its container needs either. The quota may cut below that: a pod beyond it could not be recreated
    at all. For the node it runs on only raises are cut: no container loses what it has to the raise of another.

    `others`: what else the pod requests: containers without a target, the pod overhead.
    `needed`: by container, what is not cut to fit a node.
    """

    def least(name: str, in_use: Amounts) -> Amounts:
        cpu_cores, memory_bytes = (max(rules_of(name).min_allowed[i] or 0.0, in_use[i]) for i in (CPU, MEMORY))
        return cpu_cores, memory_bytes

    shares = _smallest_cut(_wanted(recommendations), others, room.nodes)
    fitted = [_cut(one, "LargestNode", shares, least(one.container, needed.get(one.container, NO_USE)))
              for one in recommendations]  # fmt: skip
    shares = _shares(_wanted(fitted), others, room.quota)
    fitted = [_cut(one, "Quota", shares, least(one.container, NO_USE)) for one in fitted]
    has = [room.has.get(one.container, NO_USE) for one in fitted]
    kept = [(min(one.target[CPU], there[CPU]), min(one.target[MEMORY], there[MEMORY]))
            for one, there in zip(fitted, has, strict=True)]  # fmt: skip
    base, wanted = _total(kept), _wanted(fitted)
    shares = _shares((wanted[CPU] - base[CPU], wanted[MEMORY] - base[MEMORY]), base, room.where_it_runs)
    return tuple(
        _cut(one, "Node", shares, least(one.container, NO_USE), there) for one, there in zip(fitted, kept, strict=True)
    )


def _wanted(recommendations: Sequence[ContainerRecommendation]) -> Amounts:
    return _total([one.target for one in recommendations])


def _total(amounts: Sequence[Amounts]) -> Amounts:
    """Sum per resource, without missing amounts (NaN)."""
    cpu_cores, memory_bytes = (math.fsum(one[i] for one in amounts if one[i] >= 0) for i in (CPU, MEMORY))
    return cpu_cores, memory_bytes


def _smallest_cut(wanted: Amounts, others: Amounts, nodes: Sequence[Amounts]) -> Amounts:
    """Share of the targets that fits on the best node; 1 if no node is known, or all are full already."""
    best: Amounts | None = None
    for node in nodes:
        if node[CPU] <= others[CPU] or node[MEMORY] <= others[MEMORY]:
            continue
        shares = _shares(wanted, others, node)
        best = max(best or (0.0, 0.0), shares, key=lambda shares: (min(shares), max(shares)))
        if best == (1.0, 1.0):
            break
    return best or (1.0, 1.0)


def _shares(wanted: Amounts, others: Amounts, offered: Amounts) -> Amounts:
    cpu, memory = (min(1.0, max(0.0, offered[i] - others[i]) / wanted[i]) if wanted[i] else 1.0 for i in (CPU, MEMORY))
    return cpu, memory


def _cut(
    recommendation: ContainerRecommendation, why: str, shares: Amounts, least: Amounts, kept: Amounts = NO_USE
) -> ContainerRecommendation:
    """Cut a target to a share of what exceeds `kept`, but to no less than `least`."""
    if shares == (1.0, 1.0):
        return recommendation
    most = [math.inf, math.inf]
    for i, units in enumerate(WHOLE_UNITS):
        target = recommendation.target[i]
        if shares[i] < 1.0 and target >= 0:
            share = kept[i] + (target - kept[i]) * shares[i]
            cut = math.floor(share * units + ROUNDING_TOLERANCE) / units
            most[i] = max(cut, math.ceil(least[i] * units - ROUNDING_TOLERANCE) / units)
    return at_most(recommendation, (most[CPU], most[MEMORY]), why)
