"""What is said of a VPA: what stands of before, the conditions, and what its pods request besides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recommender.cluster.objects.pair import Pair
from recommender.cluster.vpas.status import Condition, published_in
from recommender.live.advice.workload import Workload
from recommender.policies.constraints import SharedLimits, constrain_again
from recommender.records import CPU, MEMORY, Amounts, ContainerRecommendation

PROVIDED, NO_PODS, UNSUPPORTED, UNSURE, DEPRECATED = (
    "RecommendationProvided",
    "NoPodsMatched",
    "ConfigUnsupported",
    "LowConfidence",
    "ConfigDeprecated",
)


class Status(NamedTuple):
    """What the status of a workload's VPA is to say.

    Attributes
    ----------
    signature
        What it was made from.
    recommendations
        What is new; `entries` holds also what stands of before, by container name.
    """

    workload: Workload
    signature: object
    recommendations: Sequence[ContainerRecommendation]
    entries: Mapping[str, ContainerRecommendation]
    conditions: Mapping[str, Condition | None]


def said_of(workload: Workload, room: tuple[Pair, ...]) -> object:
    """What a status is made from: while it is the same, and the status stood, it need not be made again."""
    advised = [(name, advice.doubt, advice.estimate) for name, advice in workload.advice.items()]
    vpa = workload.vpa
    return vpa.uid, vpa.generation, vpa.annotations, workload.selection, room, advised


def standing(workload: Workload, limits: SharedLimits) -> dict[str, ContainerRecommendation]:
    """What stands published of containers of which nothing new can be said: it is better than nothing at all.

    It is kept within what the user and the operator say now. A container that the user takes out (mode Off, nothing
    controlled) or that its pods no longer have is not kept.
    """
    present = workload.selection.containers
    kept = {}
    for name, entry in published_in(workload.vpa.status, but=workload.advice).items():
        if present and name not in present:
            continue
        within = constrain_again(entry, workload.vpa.policy_for(name), limits)
        if within is not None:
            kept[name] = within
    return kept


def conditions_of(workload: Workload, entries: Mapping[str, ContainerRecommendation]) -> dict[str, Condition | None]:
    """The conditions of a VPA, None for those that are to go."""
    problem, pods = workload.selection.problem, workload.selection.pods
    nobody = Condition("True", "NoPodsMatched", "No pods match this VPA object") if not pods and not problem else None
    provided = Condition("True") if entries else Condition("False", *(nobody[1:] if nobody else ()))
    doubts = {name: advice.doubt for name, advice in workload.advice.items() if advice.doubt}
    words = "; ".join(f"{name}: {doubt}" for name, doubt in sorted(doubts.items()))
    return {
        PROVIDED: provided,
        NO_PODS: nobody,
        UNSUPPORTED: Condition("True", "", problem) if problem else None,
        UNSURE: Condition("True", "Fallback", words) if doubts else None,
        DEPRECATED: None,
    }


def requests_of(workload: Workload, container: str) -> Amounts:
    """The most that one of its running containers has of each resource; NaN where none is requested."""
    cpu_cores = memory_bytes = math.nan
    for pod in workload.selection.pods:
        if not pod.finished and (state := pod.container(container)) is not None:
            cpu, memory = state.requests
            cpu_cores = cpu if not cpu <= cpu_cores and not math.isnan(cpu) else cpu_cores
            memory_bytes = memory if not memory <= memory_bytes and not math.isnan(memory) else memory_bytes
    return cpu_cores, memory_bytes


def beside(workload: Workload) -> Amounts:
    """What a pod of this workload requests for containers of which nothing is recommended."""
    most = (0.0, 0.0)
    for pod in workload.selection.pods:
        rest = [container.requests for container in pod.containers if container.name not in workload.advice]
        cpu_cores, memory_bytes = (sum(r[i] for r in rest if r[i] >= 0) for i in (CPU, MEMORY))
        most = max(most[CPU], cpu_cores), max(most[MEMORY], memory_bytes)
    return most
