"""One VPA with everything that belongs to it: the record that the steps of a round pass on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recommender.base.records import Amounts, ContainerRecommendation
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import NOTHING
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.vpas.status import recommendations_in
from recommender.engine.keys import Group, Instance
from recommender.engine.seen import GroupStart, Memory
from recommender.engine.target import Target
from recommender.live.view.view import SelectedPods, View
from recommender.policies.histogram import HistogramAggregate
from recommender.progress.growth import Growth
from recommender.progress.readings import Stages


@dataclass(slots=True)
class VpaState:
    """One VPA. Dictionaries are by container name, or by pod UID."""

    vpa: Vpa
    selection: SelectedPods = field(default_factory=lambda: SelectedPods((), {}))
    pods_resolved: bool = False  # at least once
    absent_since_s: dict[str, float] = field(default_factory=dict)
    """Unix seconds since when no pod has such a container, although pods had one before."""
    groups: dict[str, Group] = field(default_factory=dict)
    last_pods: Sequence[Pod] = ()  # that it has or had: the next one will be like them
    rules_source: tuple[Vpa, SelectedPods] | None = None  # what the engine's rules were last derived from
    targets: dict[str, Target] = field(default_factory=dict)  # to be published in this round
    published: Mapping[str, ContainerRecommendation] = field(default_factory=dict)
    """The recommendations in its status as last written, or as it would be while observing."""
    growth: dict[str, Growth] = field(default_factory=dict)  # only of pods that report it
    stages: dict[str, Stages] = field(default_factory=dict)
    saved: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    """State from its PhaseProfile after a restart, until it is consumed: `groups`, `members` by `pod uid/container`,
    `growth` and `stages`."""
    published_signature: object = None  # what its status was last made from once that was written
    published_to: Vpa | None = None  # the object that it was written to
    profile_signature: object = None  # what its PhaseProfile was last made from
    profile_written_s: float = -math.inf  # monotonic seconds, as in `saved_s`
    saved_versions: list[int] | None = None  # of the restart state in the profile
    saved_kill_s: float = -math.inf  # the latest kill that this contains
    saved_s: float = -math.inf
    profile_pending: bool = False  # the profile must be written again

    def name(self) -> ObjectKey:
        return self.vpa.key

    def group(self, container: str) -> Group:
        return Group(self.vpa.key.namespace, self.vpa.key.name, container)

    def latest_containers(self) -> list[str]:
        """The container names of its latest pods, which may be gone."""
        return [name for name in self.groups if name not in self.absent_since_s]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from the state in the PhaseProfile; ignore parts of the wrong type."""
        for part in ("groups", "members", "growth", "stages"):
            if isinstance(state.get(part), dict):
                self.saved[part] = dict(state[part])
        groups = [group for group in self.saved.get("groups", {}).values() if isinstance(group, Mapping)]
        killed_s = [when_s for group in groups if isinstance(when_s := group.get("killed_s"), float)]
        self.saved_kill_s = max(killed_s, default=-math.inf)

    def pop_saved(self, part: str, name: str) -> Mapping[str, Any] | None:
        """Remove and return one entry of a part of `saved`; None where there is none."""
        return self.saved.get(part, {}).pop(name, None)

    def unclaimed(self, part: str) -> dict[str, Mapping[str, Any]]:
        """Entries of a part of `saved` that still wait for their containers, without those of pods that are gone."""
        entries = self.saved.get(part, {})
        if self.pods_resolved and part != "groups":  # a group outlives its pods
            uids = {pod.uid for pod in self.selection.pods}
            for gone in [name for name in entries if name.split("/")[0] not in uids]:
                del entries[gone]
        return entries


class RestoredState(Memory):
    """What the cluster holds from before a restart, in checkpoints, VPA statuses and PhaseProfiles."""

    def __init__(self, view: View, states: Mapping[ObjectKey, VpaState]) -> None:
        self._view, self._states = view, states

    def group(self, group: Group) -> GroupStart:
        """History from the checkpoint, the target in force from the status, everything else from the PhaseProfile."""
        key = ObjectKey(group.namespace, group.vpa)
        state = self._states[key]
        history = HistogramAggregate(self._view.history(key, group.container))
        return GroupStart(history, _target_in_force(state, group.container), state.pop_saved("groups", group.container))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        state = self._states[ObjectKey(group.namespace, group.vpa)]
        return state.pop_saved("members", f"{instance.pod_uid}/{instance.container}")


def _target_in_force(state: VpaState, container: str) -> Amounts:
    """The target in force, before limits.

    The values that a process publishes when it stops are in the status, but applied to no container. The target that
    was in force before is then the uncapped target in the status, and stays in force.
    """
    published = recommendations_in(state.vpa.status).get(container)
    if published is None:
        return NOTHING
    cpu_cores, memory_bytes = (
        target if math.isnan(uncapped) else uncapped
        for uncapped, target in zip(published.uncapped, published.target, strict=True)
    )
    return cpu_cores, memory_bytes
