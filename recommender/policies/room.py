"""What there is room for: the nodes that a pod may run on, and the quota of its namespace.

A pod that asks for more than any node has would wait for ever; one that asks for more than its quota leaves would, once
evicted, not be made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recommender.policies.constraints import ROUNDING_TOLERANCE, WHOLE_UNITS, ContainerRules
from recommender.records import CPU, MEMORY, RESOURCES, Amounts, AppliedLimit, ContainerRecommendation

NO_USE: Amounts = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Room:
    """For one pod, (cpu_cores, memory_bytes).

    Attributes
    ----------
    nodes
        What the nodes offer that it may run on; without any, nothing is known and nothing is cut.
    quota
        The most that it may request; infinite where nothing limits it.
    where_it_runs
        The most that its targets may be together and not be put off by its node; infinite where nothing would be.
    has
        By container, what it requests there.
    """

    nodes: tuple[Amounts, ...] = ()
    quota: Amounts = (math.inf, math.inf)
    where_it_runs: Amounts = (math.inf, math.inf)
    has: Mapping[str, Amounts] = field(default_factory=dict)


def fit_room(
    recommendations: Sequence[ContainerRecommendation],
    beside: Amounts,
    room: Room,
    rules_of: Callable[[str], ContainerRules],
    used: Mapping[str, Amounts],
) -> tuple[ContainerRecommendation, ...]:
    """Cut the targets of one pod until it fits one of the nodes, and the quota.

    All targets of a resource shrink by the same share, and lower bounds follow, on the node that asks for the mildest
    cut. None shrinks below its minAllowed, which the updater would raise it to again; for a node's sake none shrinks
    below what its container uses either. Quota takes that too: what stands fits it, more may be lost altogether. Of
    the node that it runs on only raises are cut: no container gives what it has for the raise of another.

    Parameters
    ----------
    beside
        What the pod asks for besides these targets: containers without one, the pod's overhead.
    used
        By container, what it uses now.
    """

    def least(name: str, in_use: Amounts) -> Amounts:
        cpu_cores, memory_bytes = (max(rules_of(name).min_allowed[i] or 0.0, in_use[i]) for i in (CPU, MEMORY))
        return cpu_cores, memory_bytes

    shares = _mildest(_wanted(recommendations), beside, room.nodes)
    fitted = [_cut(one, "LargestNode", shares, least(one.container, used.get(one.container, NO_USE)))
              for one in recommendations]  # fmt: skip
    shares = _shares(_wanted(fitted), beside, room.quota)
    fitted = [_cut(one, "Quota", shares, least(one.container, NO_USE)) for one in fitted]
    has = [room.has.get(one.container, NO_USE) for one in fitted]
    kept = [(min(one.target[CPU], there[CPU]), min(one.target[MEMORY], there[MEMORY]))
            for one, there in zip(fitted, has, strict=True)]  # fmt: skip
    stays, wanted = _total(kept), _wanted(fitted)
    shares = _shares((wanted[CPU] - stays[CPU], wanted[MEMORY] - stays[MEMORY]), stays, room.where_it_runs)
    return tuple(
        _cut(one, "Node", shares, least(one.container, NO_USE), there) for one, there in zip(fitted, kept, strict=True)
    )


def _wanted(recommendations: Sequence[ContainerRecommendation]) -> Amounts:
    return _total([one.target for one in recommendations])


def _total(told: Sequence[Amounts]) -> Amounts:
    """Without those that are absent."""
    cpu_cores, memory_bytes = (math.fsum(one[i] for one in told if one[i] >= 0) for i in (CPU, MEMORY))
    return cpu_cores, memory_bytes


def _mildest(wanted: Amounts, beside: Amounts, nodes: Sequence[Amounts]) -> Amounts:
    """What share of the targets fits on the best node; all of it where none is known, or all are full already."""
    mildest: Amounts | None = None
    for node in nodes:
        if node[CPU] <= beside[CPU] or node[MEMORY] <= beside[MEMORY]:
            continue
        shares = _shares(wanted, beside, node)
        mildest = max(mildest or (0.0, 0.0), shares, key=lambda shares: (min(shares), max(shares)))
        if mildest == (1.0, 1.0):
            break
    return mildest or (1.0, 1.0)


def _shares(wanted: Amounts, beside: Amounts, offered: Amounts) -> Amounts:
    cpu, memory = (min(1.0, max(0.0, offered[i] - beside[i]) / wanted[i]) if wanted[i] else 1.0 for i in (CPU, MEMORY))
    return cpu, memory


def _cut(
    recommendation: ContainerRecommendation, why: str, shares: Amounts, least: Amounts, kept: Amounts = NO_USE
) -> ContainerRecommendation:
    """To a share of what is above `kept`, and to no less than `least`."""
    if shares == (1.0, 1.0):
        return recommendation
    target, lower, applied = list(recommendation.target), list(recommendation.lower), list(recommendation.limits)
    for i in (CPU, MEMORY):
        if shares[i] < 1.0 and target[i] >= 0:
            cut = (
                math.floor((kept[i] + (target[i] - kept[i]) * shares[i]) * WHOLE_UNITS[i] + ROUNDING_TOLERANCE)
                / WHOLE_UNITS[i]
            )
            cut = min(target[i], max(cut, math.ceil(least[i] * WHOLE_UNITS[i] - ROUNDING_TOLERANCE) / WHOLE_UNITS[i]))
            if cut < target[i]:
                applied.append(AppliedLimit(why, RESOURCES[i], target[i], cut))
            target[i], lower[i] = cut, min(lower[i], cut)
    return replace(
        recommendation, target=(target[CPU], target[MEMORY]), lower=(lower[CPU], lower[MEMORY]), limits=tuple(applied)
    )
