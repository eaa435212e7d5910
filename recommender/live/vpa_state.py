"""One VPA with what belongs to it: the record that the steps of a round hand to each other."""

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
from recommender.records import ContainerRecommendation
from recommender.stages import Stages


@dataclass(slots=True)
class VpaState:
    """One VPA.

    Attributes
    ----------
    told
        Its pods were told once.
    lost_s
        Since when no pod has a container of a name that pods had, unix seconds.
    groups
        What the engine calls the containers of each name.
    ruled_by
        The VPA and the pods from which the engine was last told what becomes of its targets.
    targets
        What this round wants to publish, by container name.
    entries
        What its status says since it was written last, by container name.
    growth
        How training comes along, by pod uid; of pods that tell of it.
    stages
        What pods say that they do, by pod uid.
    kept
        What its PhaseProfile kept over a restart, until it was taken over: `groups` by container name, `members` by
        `pod uid/container`, `growth` and `stages` by pod uid.
    said, said_to
        What its status was last made from, once it stood, and the VPA that it was said to.
    shown, shown_s
        What its PhaseProfile was last made from, and when (unix seconds).
    kept_of, kept_kill_s, kept_s
        The same of what is kept over a restart; and when the latest kill was that it tells of.
    waits
        The profile is to be written again.
    """

    vpa: Vpa
    selection: SelectedPods = field(default_factory=lambda: SelectedPods((), {}))
    told: bool = False
    lost_s: dict[str, float] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    ruled_by: tuple[Vpa, SelectedPods] | None = None
    targets: dict[str, Target] = field(default_factory=dict)
    entries: Mapping[str, ContainerRecommendation] = field(default_factory=dict)
    growth: dict[str, Growth] = field(default_factory=dict)
    stages: dict[str, Stages] = field(default_factory=dict)
    kept: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    said: object = None
    said_to: Vpa | None = None
    shown: object = None
    shown_s: float = -math.inf
    kept_of: list[int] | None = None
    kept_kill_s: float = -math.inf
    kept_s: float = -math.inf
    waits: bool = False

    def name(self) -> ObjectKey:
        """Where its VPA is."""
        return self.vpa.key

    def group(self, container: str) -> Group:
        """What the engine calls the containers of a name."""
        return Group(self.vpa.key.namespace, self.vpa.key.name, container)

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on with what the profile kept; what does not fit is left out."""
        for part in ("groups", "members", "growth", "stages"):
            if isinstance(kept.get(part), dict):
                self.kept[part] = dict(kept[part])

    def kept_once(self, part: str, name: str) -> Mapping[str, Any] | None:
        """What was kept of one thing in a part of `kept`; None where nothing was, or when asked again."""
        return self.kept.get(part, {}).pop(name, None)
