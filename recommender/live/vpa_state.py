"""One VPA with everything that belongs to it: the record that the steps of a round pass on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.engine.keys import Group
from recommender.engine.target import Target
from recommender.growth import Growth
from recommender.live.view.view import SelectedPods
from recommender.readings import Stages
from recommender.records import ContainerRecommendation


@dataclass(slots=True)
class VpaState:
    """One VPA.

    Attributes
    ----------
    pods_resolved
        Its pods have been resolved at least once.
    absent_since_s
        By container name: since when no pod has such a container although pods had one before, unix seconds.
    groups
        The engine's group of each container name.
    rules_source
        The VPA and the pods from which the engine's rules were last derived.
    targets
        Targets to publish in this round, by container name.
    published
        Recommendations in its status as last written, or as it would be while observing, by container name.
    growth
        Training progress by pod UID; only of pods that report it.
    stages
        Stages that pods report, by pod UID.
    saved
        State read from its PhaseProfile after a restart, until it is consumed: `groups` by container name, `members` by
        `pod uid/container`, `growth` and `stages` by pod UID.
    published_signature, published_to
        What its status was last made from once that was written, and the VPA object it was written to.
    profile_signature, profile_written_s
        What its PhaseProfile was last made from, and when (monotonic seconds).
    saved_versions, saved_kill_s, saved_s
        The same for the restart state in the profile, and the time of the latest kill that it contains.
    profile_pending
        The profile must be written again.
    """

    vpa: Vpa
    selection: SelectedPods = field(default_factory=lambda: SelectedPods((), {}))
    pods_resolved: bool = False
    absent_since_s: dict[str, float] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    rules_source: tuple[Vpa, SelectedPods] | None = None
    targets: dict[str, Target] = field(default_factory=dict)
    published: Mapping[str, ContainerRecommendation] = field(default_factory=dict)
    growth: dict[str, Growth] = field(default_factory=dict)
    stages: dict[str, Stages] = field(default_factory=dict)
    saved: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    published_signature: object = None
    published_to: Vpa | None = None
    profile_signature: object = None
    profile_written_s: float = -math.inf
    saved_versions: list[int] | None = None
    saved_kill_s: float = -math.inf
    saved_s: float = -math.inf
    profile_pending: bool = False

    def name(self) -> ObjectKey:
        return self.vpa.key

    def group(self, container: str) -> Group:
        return Group(self.vpa.key.namespace, self.vpa.key.name, container)

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
        """The entries of a part of `saved` that still wait for their containers: another restart may come first.

        Those of pods that are gone are dropped.
        """
        entries = self.saved.get(part, {})
        if self.pods_resolved and part != "groups":  # a group outlives its pods
            uids = {pod.uid for pod in self.selection.pods}
            for gone in [name for name in entries if name.split("/")[0] not in uids]:
                del entries[gone]
        return entries
