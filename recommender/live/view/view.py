"""What a round sees of the cluster, and how it writes to it: the interface between deciding and the real cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from recommender.base.records import ContainerKey, ContainerRecommendation, Sample
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition
from recommender.cluster.workloads.waiting_pods import Change
from recommender.policies.constraints import Room
from recommender.policies.histogram import HistogramSession

MAX_CONTAINERS = 64
"""Container names that a VPA gets recommendations for: anybody who may create pods can invent any number of them."""


@dataclass(frozen=True)
class SelectedPods:
    """The pods of a VPA; `problem` says why they cannot be determined."""

    pods: Sequence[Pod]
    """Those that its target controls; pending ones only while no other is live: only then is a target for them."""
    workload: Mapping[str, str | None]
    """The workload class of each pod by its UID: what makes runs comparable."""
    problem: str | None = None
    declared: Mapping[str, Pair] = field(default_factory=dict)
    """Cores and bytes that the owner's pod template requests, by container name, where known."""
    pending: Sequence[Pod] = ()
    """Pods that wait for a node, or for their images."""

    @cached_property
    def all_containers(self) -> Sequence[str]:
        return sorted({container.name for pod in self.pods for container in pod.containers})

    @cached_property
    def containers(self) -> Sequence[str]:
        """The first `MAX_CONTAINERS` of them: those to recommend for."""
        return self.all_containers[:MAX_CONTAINERS]


def pods_to_recommend_for(pods: Sequence[Pod], pending: Sequence[Pod]) -> Sequence[Pod]:
    """The pods that a recommendation is for: those that have started, or all where none of them is live.

    There is one target for all of them: if it were for pending pods as well, these would delay it for the running ones.
    """
    return pods if not pending or any(not pod.finished for pod in pods) else (*pods, *pending)


class View(Protocol):
    """The cluster as a round needs it. Any call may raise a `ClusterError`, which affects only its own object."""

    def vpas(self) -> Sequence[Vpa]:
        """The VPAs that name us."""

    def select(self, vpa: Vpa) -> SelectedPods:
        """The pods of a VPA; a `ClusterError` when they cannot be determined now."""

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        """Samples of containers since the last call, oldest first for each."""

    def kills(self) -> Sequence[OomObservation]:
        """Kills for memory since the last call."""

    def finished_pods(self) -> Sequence[Pod]:
        """Pods that have finished by themselves since the last call; some may be deleted by now."""

    def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        """What the nodes that can run any of these pods offer, and what quotas leave for each pod."""

    def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
        """Capacity of these nodes not requested by pods, except those with UIDs in `but`; only of known nodes."""

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        """Write the status of a VPA."""

    def resize_waiting(self, pod: Pod, changes: Sequence[Change]) -> None:
        """Change the requests of a pod, unless it has a node by now."""

    def is_current(self, vpa: Vpa) -> bool:
        """Whether the status of a VPA is known to be what we published last."""

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        """Write the PhaseProfile of a VPA."""

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        """The history of a container name from its checkpoint; None when there is none."""

    def containers_with_history(self, vpa: ObjectKey) -> Collection[str]:
        """The container names of a VPA that have a checkpoint."""

    def saved_state(self, vpa: Vpa) -> str | None:
        """The state saved in the PhaseProfile of a VPA; None when there is none."""

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        """By namespace and name of each workload class: the state saved in its profile, and when it was last used."""

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        """Write the PhaseProfile of a workload class; None deletes it."""
