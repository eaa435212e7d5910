"""One VPA with what belongs to it: the record that the steps of a round hand to each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.growth import Growth
from recommender.live.advice.book import Book
from recommender.live.advice.recommend import Advice, Standing
from recommender.live.fleet.member import Decision, Instance, Member
from recommender.live.view.view import Selection


@dataclass(slots=True)
class Workload:
    """One VPA.

    Attributes
    ----------
    books
        By container name; they outlive rounds.
    advice
        What this round wants to publish, by container name.
    standing
        What was advised last, and as long as what it stands, by container name.
    members
        The live containers, by container name.
    expected
        What containers that have not used anything yet are to have, by container name.
    workload_class
        Of its pods, the one seen last; None before any pod.
    growth
        How training comes along, by pod uid; of pods that tell of it.
    kept
        What its PhaseProfile kept over a restart, until it was taken over: `books` by container name, `members` by
        `pod uid/container`, `growth` by pod uid.
    said, said_to
        What its status was last made from, once it stood, and the VPA that it was said to.
    shown, shown_s
        What its PhaseProfile was last made from, and when (unix seconds).
    kept_of, kept_s
        The same of what is kept over a restart.
    all_known_of
        The `members` all of which that holds.
    waits
        The profile is to be written again.
    """

    vpa: Vpa
    selection: Selection = field(default_factory=lambda: Selection((), {}))
    books: dict[str, Book] = field(default_factory=dict)
    advice: dict[str, Advice] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    members: dict[str, list[Member]] = field(default_factory=dict)
    expected: dict[str, list[Decision]] = field(default_factory=dict)
    workload_class: str | None = None
    growth: dict[str, Growth] = field(default_factory=dict)
    kept: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    said: object = None
    said_to: Vpa | None = None
    shown: object = None
    shown_s: float = -math.inf
    kept_of: tuple[list[Instance], list[tuple[str, float]]] | None = None
    kept_s: float = -math.inf
    all_known_of: Mapping[str, Sequence[Member]] | None = None
    waits: bool = False

    def name(self) -> ObjectKey:
        """Where its VPA is."""
        return self.vpa.key

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on with what the profile kept; what does not fit is left out."""
        self.workload_class = kept.get("class") if isinstance(kept.get("class"), str) else None
        for part in ("books", "members", "growth"):
            if isinstance(kept.get(part), dict):
                self.kept[part] = dict(kept[part])

    def kept_book(self, container: str) -> Mapping[str, Any] | None:
        """What was kept of a book, once."""
        return self.kept.get("books", {}).pop(container, None)

    def kept_member(self, instance: Instance) -> Mapping[str, Any] | None:
        """What was kept of a container, once."""
        return self.kept.get("members", {}).pop(f"{instance.pod_uid}/{instance.container}", None)

    def kept_growth(self, pod_uid: str) -> Mapping[str, Any] | None:
        """What was kept of a pod's progress, once."""
        return self.kept.get("growth", {}).pop(pod_uid, None)
