"""What a pod says that it does, since when, and when it last saved what it has learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from recommender.readings import Reading, Stage


@dataclass(slots=True)
class Stages:
    """Of one pod.

    Attributes
    ----------
    name
        The stage it is in; empty where it is in none that it tells.
    since_s
        When that began, or ended, unix seconds.
    saved_s
        When it last said that a checkpoint is saved; None before.
    lasting
        The stage that it told last by name: the one that it is in unless something else passes.
    """

    name: str = ""
    since_s: float = -math.inf
    saved_s: float | None = None
    lasting: str = ""

    def observe(self, stage: Stage) -> None:
        """Take in what it says; what is older than what it said last, or no news, is left out."""
        news = stage.event or stage.name != self.name
        if stage.time_s < self.since_s or not news:
            return
        if stage.saves:
            self.saved_s = stage.time_s
        if stage.name != self.name:
            self.name, self.since_s = stage.name, stage.time_s
        if not stage.passing:
            self.lasting = stage.name

    def went_on(self, reading: Reading) -> None:
        """A loss that is told after words in passing says that these are over."""
        if self.name != self.lasting and reading.time_s > self.since_s:
            self.name, self.since_s = self.lasting, reading.time_s

    def to_state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, kept: Mapping[str, Any]) -> Self | None:
        """What `kept` gave; None where it does not fit, and the pod says it again."""
        try:
            since_s, saved_s = float(kept["since_s"]), kept["saved_s"]
            saved_s = None if saved_s is None else float(saved_s)
            found = cls(str(kept["name"]), since_s, saved_s, str(kept["lasting"]))
        except (KeyError, TypeError, ValueError):
            return None
        return found if math.isfinite(since_s) and (saved_s is None or math.isfinite(saved_s)) else None
