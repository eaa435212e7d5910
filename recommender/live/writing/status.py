"""What is said of a VPA: what stands of before, the conditions, and what its pods request besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recommender.cluster.objects.pods import PENDING
from recommender.cluster.vpas.status import DISRUPTIVE, LOW_CONFIDENCE, Condition, published_in
from recommender.cluster.vpas.warning import warning_of
from recommender.live.vpa_state import VpaState
from recommender.policies.constraints import SharedLimits, constrain_again
from recommender.policies.room import Room
from recommender.records import CPU, MEMORY, Amounts, ContainerRecommendation

PROVIDED, NO_PODS, UNSUPPORTED, DEPRECATED = (
    "RecommendationProvided",
    "NoPodsMatched",
    "ConfigUnsupported",
    "ConfigDeprecated",
)


class Status(NamedTuple):
    """What the status of a VPA is to say.

    Attributes
    ----------
    signature
        What it was made from.
    recommendations
        What is new; `entries` holds also what stands of before, by container name.
    """

    state: VpaState
    signature: object
    recommendations: Sequence[ContainerRecommendation]
    entries: Mapping[str, ContainerRecommendation]
    conditions: Mapping[str, Condition | None]


def signature_of(state: VpaState, room: Room) -> object:
    """What a status is made from: while it is the same, and the status stood, it need not be made again."""
    vpa = state.vpa
    return vpa.uid, vpa.generation, vpa.annotations, state.selection, room, list(state.targets.items())


def standing(state: VpaState, limits: SharedLimits) -> dict[str, ContainerRecommendation]:
    """What stands published of containers of which nothing new can be said: it is better than nothing at all.

    It is kept within what the user and the operator say now. A container that the user takes out (mode Off, nothing
    controlled) or that its pods no longer have is not kept.
    """
    present = state.selection.containers
    kept = {}
    for name, entry in published_in(state.vpa.status, but=state.targets).items():
        if present and name not in present:
            continue
        within = constrain_again(entry, state.vpa.policy_for(name), limits)
        if within is not None:
            kept[name] = within
    return kept


def conditions_of(state: VpaState, entries: Mapping[str, ContainerRecommendation]) -> dict[str, Condition | None]:
    """The conditions of a VPA, None for those that are to go."""
    problem, pods = state.selection.problem, state.selection.pods
    matches = any(pod.phase != PENDING for pod in pods)  # those that wait for a node do not, here as with the default
    nobody = None if matches or problem else Condition("True", "NoPodsMatched", "No pods match this VPA object")
    provided = Condition("True") if entries else Condition("False", *(nobody[1:] if nobody else ()))
    doubts = {name: target.doubt for name, target in state.targets.items() if target.doubt}
    words = "; ".join(f"{name}: {doubt}" for name, doubt in sorted(doubts.items()))
    return {
        PROVIDED: provided,
        NO_PODS: nobody,
        UNSUPPORTED: Condition("True", "", problem) if problem else None,
        LOW_CONFIDENCE: Condition("True", "Fallback", words) if doubts else None,
        DEPRECATED: None,
        DISRUPTIVE: warning_of(state.vpa, pods),
    }


def beside(state: VpaState) -> Amounts:
    """What a pod of this VPA requests besides containers of which something is recommended."""
    most = (0.0, 0.0)
    for pod in state.selection.pods:
        rest = [container.requests for container in pod.containers if container.name not in state.targets]
        cpu_cores, memory_bytes = (pod.beside[i] + sum(r[i] for r in rest if r[i] >= 0) for i in (CPU, MEMORY))
        most = max(most[CPU], cpu_cores), max(most[MEMORY], memory_bytes)
    return most
