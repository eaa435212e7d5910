"""Apply the limits of users and operators to estimates, in the order of the default recommender.

1 containers with mode Off are dropped; 2 the pod minimum is shared among the rest; 3 resources that are not controlled
are dropped; 4 amounts are rounded up to whole units; 5 CPU of annotated containers to whole cores; 6 minAllowed, then
maxAllowed or the global maximum. The uncapped target has all but the last step. `at_most` and `fit_room` follow.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/logic` and `pkg/utils/vpa/capping.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from recommender.base.records import (
    CPU,
    MEMORY,
    NO_LIMITS,
    RESOURCES,
    Amounts,
    AppliedLimit,
    ContainerPolicy,
    ContainerRecommendation,
    Limits,
)
from recommender.base.units import BYTES_PER_MIB
from recommender.policies.histogram import Estimate

WHOLE_UNITS = (1000, 1)  # units of a core and of a byte: amounts are published in millicores and bytes
ROUNDING_TOLERANCE = 1e-6  # in units: far above float error, far below any meaningful amount

INTEGER_CPU_ANNOTATION = "vpa-post-processor.kubernetes.io/{}_integerCPU"


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Settings of the operator for all containers."""

    # Minimum of a pod, shared evenly by its recommended containers; upstream's default.
    pod_minimum: Amounts = (0.025, 250 * BYTES_PER_MIB)
    maximum: Limits = NO_LIMITS  # maximum of a container whose policy sets no maxAllowed
    # Amounts are rounded up to multiples of these; below 1 counts as 1.
    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    # Maximum by namespace; the smaller of it and `maximum` holds.
    namespace_maximum: Mapping[str, Limits] = field(default_factory=dict)
    integer_cpu: bool = True  # whether the annotation for whole cores is honoured
    # After an OOM kill of a container whose policy does not say; None for upstream's defaults.
    oom_bump_up_ratio: float | None = None
    oom_min_bump_up_bytes: float | None = None

    def within(self, namespace: str) -> SharedLimits:
        """The limits in a namespace."""
        own = self.namespace_maximum.get(namespace)
        if own is None:
            return self
        both = [min((most for most in pair if most), default=None) for pair in zip(own, self.maximum, strict=True)]
        return replace(self, maximum=(both[CPU], both[MEMORY]))

    def oom_bump(self, rules: ContainerPolicy) -> Limits:
        """Ratio and least bump in bytes for a container; None for upstream's defaults."""
        ratio, least_bytes = rules.oom_bump_up_ratio, rules.oom_min_bump_up_bytes
        return (
            self.oom_bump_up_ratio if ratio is None else ratio,
            self.oom_min_bump_up_bytes if least_bytes is None else least_bytes,
        )


def constrain(
    estimates: Mapping[str, Estimate],
    rules_of: Callable[[str], ContainerPolicy],
    shared: SharedLimits,
    whole_cores: Collection[str] = (),
) -> tuple[ContainerRecommendation, ...]:
    """The recommendations of one VPA, in order of container names; none for a container without controlled resources.

    CPU of the containers in `whole_cores` is rounded up to whole cores.
    """
    rules = {name: of_it for name in sorted(estimates) if (of_it := rules_of(name)).mode != "Off"}
    minimum = pod_share(shared.pod_minimum, len(rules))
    return tuple(
        _constrained(name, estimates[name], of_it, shared, minimum, name in whole_cores)
        for name, of_it in rules.items()
        if of_it.controlled
    )


def constrain_again(
    published: ContainerRecommendation, rules: ContainerPolicy, shared: SharedLimits
) -> ContainerRecommendation | None:
    """Apply the present limits to a published recommendation; None if no resource is controlled any more."""
    if rules.mode == "Off" or not rules.controlled:
        return None
    applied: list[AppliedLimit] = []
    target, lower, upper, uncapped = [math.nan] * 2, [math.nan] * 2, [math.nan] * 2, [math.nan] * 2
    for i, resource in enumerate(RESOURCES):
        if resource in rules.controlled:
            band = [amounts[i] for amounts in (published.target, published.lower, published.upper)]
            target[i], lower[i], upper[i] = _within_limits(applied, i, band, rules, shared)
            uncapped[i] = published.uncapped[i]
    amounts = _pair(target), _pair(lower), _pair(upper), _pair(uncapped)
    return ContainerRecommendation(published.container, *amounts, tuple(applied))


def at_most(recommendation: ContainerRecommendation, most: Amounts, why: str) -> ContainerRecommendation:
    """Cut the target and its lower bound; a container that has a little more is not updated for the upper one."""
    target, lower, applied = list(recommendation.target), list(recommendation.lower), list(recommendation.limits)
    for i, resource in enumerate(RESOURCES):
        if target[i] > most[i]:
            applied.append(AppliedLimit(why, resource, target[i], most[i]))
            target[i], lower[i] = most[i], min(lower[i], most[i])
    return replace(recommendation, target=_pair(target), lower=_pair(lower), limits=tuple(applied))


def pod_share(pod_minimum: Amounts, containers: int) -> Amounts:
    """Share of each container in the minimum of a pod, truncated to millicores and bytes.

    >>> pod_share((0.025, 250 * 2**20), 2)
    (0.012, 131072000.0)
    """
    if containers == 0:
        return pod_minimum
    cpu_millicores = math.floor(pod_minimum[CPU] * WHOLE_UNITS[CPU] / containers + ROUNDING_TOLERANCE)
    return cpu_millicores / WHOLE_UNITS[CPU], float(math.floor(pod_minimum[MEMORY] / containers + ROUNDING_TOLERANCE))


def integer_cpu_containers(annotations: Mapping[str, str], containers: Iterable[str]) -> frozenset[str]:
    """The containers for which the annotations of a VPA ask for whole cores."""
    return frozenset(name for name in containers if annotations.get(INTEGER_CPU_ANNOTATION.format(name)) == "true")


def _constrained(
    name: str, estimate: Estimate, rules: ContainerPolicy, shared: SharedLimits, minimum: Amounts, whole_cores: bool
) -> ContainerRecommendation:
    applied: list[AppliedLimit] = []
    bounds = estimate.target.tolist(), estimate.lower.tolist(), estimate.upper.tolist()
    target, lower, upper, uncapped = [math.nan] * 2, [math.nan] * 2, [math.nan] * 2, [math.nan] * 2
    multiples = max(shared.round_cpu_millicores, 1), max(shared.round_memory_bytes, 1)
    for i, resource in enumerate(RESOURCES):
        if resource not in rules.controlled:
            continue
        band = [amounts[i] for amounts in bounds]
        if min(band) < minimum[i]:
            band = _recorded(applied, "PodMinimum", resource, band, [max(amount, minimum[i]) for amount in band])
        multiple, units = multiples[i], WHOLE_UNITS[i]
        # The next multiple in whole units, not counting what float arithmetic adds.
        band = [math.ceil((amount * units - ROUNDING_TOLERANCE) / multiple) * multiple / units for amount in band]
        if whole_cores and i == CPU:
            band = _recorded(applied, "IntegerCpu", resource, band, [float(math.ceil(amount)) for amount in band])
        uncapped[i] = band[0]
        target[i], lower[i], upper[i] = _within_limits(applied, i, band, rules, shared)
    return ContainerRecommendation(name, _pair(target), _pair(lower), _pair(upper), _pair(uncapped), tuple(applied))


def _within_limits(
    applied: list[AppliedLimit], i: int, band: list[float], rules: ContainerPolicy, shared: SharedLimits
) -> list[float]:
    """Limit target and bounds of resource `i` to minAllowed and maxAllowed; the latter wins."""
    resource = RESOURCES[i]
    if least := rules.min_allowed[i]:
        band = _recorded(applied, "MinAllowed", resource, band, [max(amount, least) for amount in band])
    own, common = rules.max_allowed[i], shared.maximum[i]
    if most := own if own is not None else common:
        name = "GlobalMaximum" if own is None else "MaxAllowed"
        band = _recorded(applied, name, resource, band, [min(amount, most) for amount in band])
    return band


def _recorded(
    applied: list[AppliedLimit], name: str, resource: str, before: list[float], after: list[float]
) -> list[float]:
    """Return `after`, and append a change of the target (the first amount) to `applied`, OUT."""
    if before[0] != after[0]:
        applied.append(AppliedLimit(name, resource, before[0], after[0]))
    return after


def _pair(amounts: list[float]) -> Amounts:
    return amounts[0], amounts[1]


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
