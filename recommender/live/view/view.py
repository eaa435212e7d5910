"""What a round sees of the cluster, and the door through which it writes: the seam between deciding and the outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition
from recommender.cluster.workloads.waiting_pods import Change
from recommender.policies.histogram import HistogramSession
from recommender.policies.room import Room
from recommender.records import ContainerRecommendation, Sample


@dataclass(frozen=True)
class SelectedPods:
    """The pods of a VPA.

    Attributes
    ----------
    pods
        Those that its target controls; pending ones while none else is alive: what is recommended then is for these.
    workload
        The class of each pod by its uid: what makes runs comparable.
    problem
        Why the pods cannot be told, in words; None when they can.
    declared
        Cores and bytes that its target's owner requests, by container name, where that is known.
    pending
        Those that wait for a node, or for their images.
    """

    pods: Sequence[Pod]
    workload: Mapping[str, str | None]
    problem: str | None = None
    declared: Mapping[str, Pair] = field(default_factory=dict)
    pending: Sequence[Pod] = ()

    @cached_property
    def containers(self) -> Sequence[str]:
        """The names of the containers that the pods have, in order."""
        return sorted({container.name for pod in self.pods for container in pod.containers})


def pods_to_recommend_for(pods: Sequence[Pod], pending: Sequence[Pod]) -> Sequence[Pod]:
    """The pods that a recommendation is for: those that have begun, or all where none of them is alive.

    It is one for all: would it be for who has not begun as well, that would hold up all that run.
    """
    return pods if not pending or any(not pod.finished for pod in pods) else (*pods, *pending)


class View(Protocol):
    """The cluster as a round needs it. Every call may raise a `ClusterError`, which spoils that call's object only."""

    def vpas(self) -> Sequence[Vpa]:
        """The VPAs that name us."""

    def select(self, vpa: Vpa) -> SelectedPods:
        """The pods that a VPA is for; a `ClusterError` when they cannot be told now."""

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        """What containers used since the last call, oldest first for each."""

    def kills(self) -> Sequence[OomObservation]:
        """Kills for memory since the last call."""

    def finished_pods(self) -> Sequence[Pod]:
        """Pods that have finished by themselves since the last call, of which some may be gone by now."""

    def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        """What the nodes offer that any of the pods of a VPA may run on, and what quotas leave each."""

    def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
        """What is left of these nodes by the requests of all pods but those of these UIDs; only of nodes that are
        known."""

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        """Make the status of a VPA say this."""

    def resize_waiting(self, pod: Pod, changes: Sequence[Change]) -> None:
        """Change what a pod asks for, unless it has a node by now."""

    def is_current(self, vpa: Vpa) -> bool:
        """Whether the status of a VPA is known to be what we published last."""

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        """Make the PhaseProfile of a VPA say this."""

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        """What a checkpoint knows of a container name; None when there is none."""

    def containers_with_history(self, vpa: ObjectKey) -> Collection[str]:
        """The containers of a VPA of which a checkpoint knows something."""

    def saved_state(self, vpa: Vpa) -> str | None:
        """The state that the PhaseProfile of a VPA kept; None when there is none."""

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        """By namespace and name of each workload class: the state its profile kept, and when it was used last."""

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any]) -> None:
        """Make the PhaseProfile of a workload class say this."""

    def delete_class_profile(self, key: ObjectKey) -> None:
        """Delete the PhaseProfile of a workload class."""
