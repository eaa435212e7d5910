"""What may be published of an estimate: the user's and the operator's limits, in the default recommender's order.

1 containers with mode Off go; 2 the pod's minimum is shared among the rest; 3 what is not controlled goes; 4 amounts
are rounded up to whole units; 5 CPU of marked containers to whole cores; 6 minAllowed, then maxAllowed or the global
maximum. Only the last step spares the uncapped target. `fit_largest_node` comes after, and knows the whole pod.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/logic` and `pkg/utils/vpa/capping.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, RESOURCES
from recommender.units import BYTES_PER_MIB, format_cpu, format_memory

Amounts = tuple[float, float]
"""(cpu_cores, memory_bytes); NaN where nothing is recommended."""

Limits = tuple[float | None, float | None]
"""(cpu_cores, memory_bytes); None or 0 where there is no limit."""

OFF = "Off"
WHOLE_UNITS = (1000, 1)
"""Whole units in a core and in a byte: amounts are published in millicores and bytes."""

HAIR = 1e-6
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
class SharedLimits:
    """What the operator says of all containers."""

    pod_minimum: Amounts = (0.025, 250 * BYTES_PER_MIB)
    """Least for a whole pod, shared evenly by its recommended containers; upstream's flags at their defaults."""

    maximum: Limits = NO_LIMITS
    """Most for a container whose policy sets no maxAllowed."""

    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    """Amounts are rounded up to multiples of these; below 1 counts as 1."""


class Rail(NamedTuple):
    """One limit that changed a target, and by how much; amounts in cores or bytes."""

    name: str
    resource: str
    before: float
    after: float

    def __str__(self) -> str:
        shown = format_cpu if self.resource == RESOURCES[CPU] else format_memory
        return f"{self.name}: {self.resource} {shown(self.before)} -> {shown(self.after)}"


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """What is published for one container, in whole millicores and whole bytes.

    Attributes
    ----------
    uncapped
        The target before minAllowed, maxAllowed and what came after.
    rails
        The limits that changed the target, in the order in which they did.
    """

    container: str
    target: Amounts
    lower: Amounts
    upper: Amounts
    uncapped: Amounts
    rails: tuple[Rail, ...] = ()


def constrain(
    estimates: Mapping[str, Estimate],
    rules_of: Callable[[str], ContainerRules],
    shared: SharedLimits,
    whole_cores: Collection[str] = (),
) -> tuple[ContainerRecommendation, ...]:
    """The recommendations of one VPA, by container name.

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
        _constrained(name, estimates[name], rules_of(name), shared, minimum, name in whole_cores) for name in names
    )


def pod_share(pod_minimum: Amounts, containers: int) -> Amounts:
    """Each container's share of a pod's minimum, truncated to millicores and bytes.

    Examples
    --------
    >>> pod_share((0.025, 250 * 2**20), 2)
    (0.012, 131072000.0)
    """
    if containers == 0:
        return pod_minimum
    cpu, memory = (math.floor(pod_minimum[i] * WHOLE_UNITS[i] / containers + HAIR) for i in (CPU, MEMORY))
    return cpu / WHOLE_UNITS[CPU], float(memory)


def integer_cpu_containers(annotations: Mapping[str, str], containers: Iterable[str]) -> frozenset[str]:
    """The containers for which a VPA's annotations ask for whole cores."""
    return frozenset(name for name in containers if annotations.get(INTEGER_CPU_ANNOTATION.format(name)) == "true")


def fit_largest_node(
    recommendations: Sequence[ContainerRecommendation], beside: Amounts, nodes: Iterable[Amounts]
) -> tuple[ContainerRecommendation, ...]:
    """Cut the targets of one pod until it fits one of the nodes; a pod that fits none would wait for ever.

    All targets of a resource shrink by the same share, and lower bounds follow, on the node that asks for the mildest
    cut. It goes below minAllowed where it must.

    Parameters
    ----------
    beside
        What the pod asks for besides these targets: containers without one, the pod's overhead.
    nodes
        What the nodes offer that the pod may run on; without any, nothing is known and nothing is cut.
    """
    wanted = tuple(math.fsum(r.target[i] for r in recommendations if r.target[i] >= 0) for i in (CPU, MEMORY))
    mildest: Amounts | None = None
    for node in nodes:
        if node[CPU] <= beside[CPU] or node[MEMORY] <= beside[MEMORY]:
            continue
        cpu, memory = (min(1.0, (node[i] - beside[i]) / wanted[i]) if wanted[i] else 1.0 for i in (CPU, MEMORY))
        mildest = max(mildest or (0.0, 0.0), (cpu, memory), key=lambda shares: (min(shares), max(shares)))
        if mildest == (1.0, 1.0):
            break
    if mildest is None or mildest == (1.0, 1.0):
        return tuple(recommendations)
    return tuple(_cut(recommendation, mildest) for recommendation in recommendations)


def _constrained(
    name: str, estimate: Estimate, rules: ContainerRules, shared: SharedLimits, minimum: Amounts, whole_cores: bool
) -> ContainerRecommendation:
    rails: list[Rail] = []
    bounds = estimate.target.tolist(), estimate.lower.tolist(), estimate.upper.tolist()
    target, lower, upper, uncapped = [math.nan] * 2, [math.nan] * 2, [math.nan] * 2, [math.nan] * 2
    multiples = max(shared.round_cpu_millicores, 1), max(shared.round_memory_bytes, 1)
    for i, resource in enumerate(RESOURCES):
        if resource not in rules.controlled:
            continue
        three = [bound[i] for bound in bounds]
        three = _step(rails, "PodMinimum", resource, three, [max(amount, minimum[i]) for amount in three])
        three = [_up_to_multiple(amount, multiples[i], WHOLE_UNITS[i]) for amount in three]
        if whole_cores and i == CPU:
            three = _step(rails, "IntegerCpu", resource, three, [float(math.ceil(amount)) for amount in three])
        uncapped[i] = three[0]
        if least := rules.min_allowed[i]:
            three = _step(rails, "MinAllowed", resource, three, [max(amount, least) for amount in three])
        own, common = rules.max_allowed[i], shared.maximum[i]
        if most := own if own is not None else common:
            rail = "GlobalMaximum" if own is None else "MaxAllowed"
            three = _step(rails, rail, resource, three, [min(amount, most) for amount in three])
        target[i], lower[i], upper[i] = three
    return ContainerRecommendation(name, _pair(target), _pair(lower), _pair(upper), _pair(uncapped), tuple(rails))


def _step(rails: list[Rail], name: str, resource: str, before: list[float], after: list[float]) -> list[float]:
    """`after`; a changed target (the first of the three) is noted in `rails`, OUT."""
    if before[0] != after[0]:
        rails.append(Rail(name, resource, before[0], after[0]))
    return after


def _up_to_multiple(amount: float, multiple: int, units: int) -> float:
    """The next multiple in whole units (millicores, bytes); what float arithmetic adds to one does not count."""
    return math.ceil(amount * units / multiple - HAIR) * multiple / units


def _cut(recommendation: ContainerRecommendation, shares: Amounts) -> ContainerRecommendation:
    target, lower, rails = list(recommendation.target), list(recommendation.lower), list(recommendation.rails)
    for i, resource in enumerate(RESOURCES):
        if shares[i] < 1.0 and target[i] >= 0:
            cut = math.floor(target[i] * shares[i] * WHOLE_UNITS[i] + HAIR) / WHOLE_UNITS[i]
            rails.append(Rail("LargestNode", resource, target[i], cut))
            target[i], lower[i] = cut, min(lower[i], cut)
    return replace(recommendation, target=_pair(target), lower=_pair(lower), rails=tuple(rails))


def _pair(amounts: list[float]) -> Amounts:
    return amounts[0], amounts[1]
