"""What may be published of an estimate: the user's and the operator's limits, in the default recommender's order.

1 containers with mode Off go; 2 the pod's minimum is shared among the rest; 3 what is not controlled goes; 4 amounts
are rounded up to whole units; 5 CPU of marked containers to whole cores; 6 minAllowed, then maxAllowed or the global
maximum. Only the last step spares the uncapped target. `room.fit_room` comes after, and knows the whole pod.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/logic` and `pkg/utils/vpa/capping.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, RESOURCES, Amounts, AppliedLimit, ContainerRecommendation
from recommender.units import BYTES_PER_MIB

Limits = tuple[float | None, float | None]
"""(cpu_cores, memory_bytes); None or 0 where there is no limit."""

OFF = "Off"
WHOLE_UNITS = (1000, 1)
"""Whole units in a core and in a byte: amounts are published in millicores and bytes."""

ROUNDING_TOLERANCE = 1e-6
"""Of a unit; far above float error, far below anything meant."""

NO_LIMITS: Limits = (None, None)
INTEGER_CPU_ANNOTATION = "vpa-post-processor.kubernetes.io/{}_integerCPU"


class ContainerRules(Protocol):
    """What a VPA says of one container."""

    @property
    def mode(self) -> str: ...
    @property
    def min_allowed(self) -> Limits: ...
    @property
    def max_allowed(self) -> Limits: ...
    @property
    def controlled(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class NoRules:
    """A VPA that says nothing of its containers."""

    mode: str = "Auto"
    min_allowed: Limits = NO_LIMITS
    max_allowed: Limits = NO_LIMITS
    controlled: frozenset[str] = frozenset(RESOURCES)


class OomRules(Protocol):
    """What a VPA says of kills for memory of one container; None where it says nothing."""

    @property
    def oom_bump_up_ratio(self) -> float | None: ...
    @property
    def oom_min_bump_up_bytes(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """What the operator says of all containers."""

    pod_minimum: Amounts = (0.025, 250 * BYTES_PER_MIB)
    """Least for a whole pod, shared evenly by its recommended containers; upstream's flags at their defaults."""

    maximum: Limits = NO_LIMITS
    """Most for a container whose policy sets no maxAllowed."""

    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    """Amounts are rounded up to multiples of these; below 1 counts as 1."""

    namespace_maximum: Mapping[str, Limits] = field(default_factory=dict)
    """The same for the containers of one namespace; where `maximum` says less, that counts."""

    integer_cpu: bool = True
    """Whether the annotation for whole cores is obeyed."""

    oom_bump_up_ratio: float | None = None
    oom_min_bump_up_bytes: float | None = None
    """After a kill for memory, for a container whose policy does not say; None for upstream's defaults."""

    def within(self, namespace: str) -> SharedLimits:
        """What holds in a namespace."""
        own = self.namespace_maximum.get(namespace)
        if own is None:
            return self
        least = (min((most for most in pair if most), default=None) for pair in zip(own, self.maximum, strict=True))
        return replace(self, maximum=(next(least), next(least)))

    def oom_bump(self, rules: OomRules) -> Limits:
        """Ratio and least bump in bytes for a container; None where upstream's defaults hold."""
        ratio, least_bytes = rules.oom_bump_up_ratio, rules.oom_min_bump_up_bytes
        return (
            self.oom_bump_up_ratio if ratio is None else ratio,
            self.oom_min_bump_up_bytes if least_bytes is None else least_bytes,
        )


def constrain(
    estimates: Mapping[str, Estimate],
    rules_of: Callable[[str], ContainerRules],
    shared: SharedLimits,
    whole_cores: Collection[str] = (),
) -> tuple[ContainerRecommendation, ...]:
    """The recommendations of one VPA, by container name; none for a container of which nothing is controlled.

    Parameters
    ----------
    estimates
        By container.
    rules_of
        The policy of a container of this name.
    whole_cores
        The containers whose CPU is to be whole cores.
    """
    names = sorted(name for name in estimates if rules_of(name).mode != OFF)
    minimum = pod_share(shared.pod_minimum, len(names))
    return tuple(
        _constrained(name, estimates[name], rules_of(name), shared, minimum, name in whole_cores)
        for name in names
        if rules_of(name).controlled
    )


def constrain_again(
    standing: ContainerRecommendation, rules: ContainerRules, shared: SharedLimits
) -> ContainerRecommendation | None:
    """What stands published, within the limits of now; None when nothing of its container is controlled any more."""
    if rules.mode == OFF or not rules.controlled:
        return None
    applied: list[AppliedLimit] = []
    target, lower, upper, uncapped = [math.nan] * 2, [math.nan] * 2, [math.nan] * 2, [math.nan] * 2
    for i, resource in enumerate(RESOURCES):
        if resource in rules.controlled:
            three = [amounts[i] for amounts in (standing.target, standing.lower, standing.upper)]
            target[i], lower[i], upper[i] = _within_limits(applied, i, three, rules, shared)
            uncapped[i] = standing.uncapped[i]
    amounts = _pair(target), _pair(lower), _pair(upper), _pair(uncapped)
    return ContainerRecommendation(standing.container, *amounts, tuple(applied))


def pod_share(pod_minimum: Amounts, containers: int) -> Amounts:
    """Each container's share of a pod's minimum, truncated to millicores and bytes.

    Examples
    --------
    >>> pod_share((0.025, 250 * 2**20), 2)
    (0.012, 131072000.0)
    """
    if containers == 0:
        return pod_minimum
    cpu, memory = (math.floor(pod_minimum[i] * WHOLE_UNITS[i] / containers + ROUNDING_TOLERANCE) for i in (CPU, MEMORY))
    return cpu / WHOLE_UNITS[CPU], float(memory)


def integer_cpu_containers(annotations: Mapping[str, str], containers: Iterable[str]) -> frozenset[str]:
    """The containers for which a VPA's annotations ask for whole cores."""
    return frozenset(name for name in containers if annotations.get(INTEGER_CPU_ANNOTATION.format(name)) == "true")


def _constrained(
    name: str, estimate: Estimate, rules: ContainerRules, shared: SharedLimits, minimum: Amounts, whole_cores: bool
) -> ContainerRecommendation:
    applied: list[AppliedLimit] = []
    bounds = estimate.target.tolist(), estimate.lower.tolist(), estimate.upper.tolist()
    target, lower, upper, uncapped = [math.nan] * 2, [math.nan] * 2, [math.nan] * 2, [math.nan] * 2
    multiples = max(shared.round_cpu_millicores, 1), max(shared.round_memory_bytes, 1)
    for i, resource in enumerate(RESOURCES):
        if resource not in rules.controlled:
            continue
        three = [bound[i] for bound in bounds]
        if min(three) < minimum[i]:
            three = _step(applied, "PodMinimum", resource, three, [max(amount, minimum[i]) for amount in three])
        multiple, units = multiples[i], WHOLE_UNITS[i]
        # The next multiple in whole units; what float arithmetic adds to one does not count.
        three = [math.ceil(amount * units / multiple - ROUNDING_TOLERANCE) * multiple / units for amount in three]
        if whole_cores and i == CPU:
            three = _step(applied, "IntegerCpu", resource, three, [float(math.ceil(amount)) for amount in three])
        uncapped[i] = three[0]
        target[i], lower[i], upper[i] = _within_limits(applied, i, three, rules, shared)
    return ContainerRecommendation(name, _pair(target), _pair(lower), _pair(upper), _pair(uncapped), tuple(applied))


def _within_limits(
    applied: list[AppliedLimit], i: int, three: list[float], rules: ContainerRules, shared: SharedLimits
) -> list[float]:
    """Target and bounds of resource `i` between minAllowed and maxAllowed; the latter wins."""
    resource = RESOURCES[i]
    if least := rules.min_allowed[i]:
        three = _step(applied, "MinAllowed", resource, three, [max(amount, least) for amount in three])
    own, common = rules.max_allowed[i], shared.maximum[i]
    if most := own if own is not None else common:
        which = "GlobalMaximum" if own is None else "MaxAllowed"
        three = _step(applied, which, resource, three, [min(amount, most) for amount in three])
    return three


def _step(
    applied: list[AppliedLimit], name: str, resource: str, before: list[float], after: list[float]
) -> list[float]:
    """`after`; a changed target (the first of the three) is noted in `applied`, OUT."""
    if before[0] != after[0]:
        applied.append(AppliedLimit(name, resource, before[0], after[0]))
    return after


def _pair(amounts: list[float]) -> Amounts:
    return amounts[0], amounts[1]
