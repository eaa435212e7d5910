"""The stage that a pod reports to be in, since when, and when it last saved a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from recommender.readings import Reading, Stage

MAX_LATE_S = 600.0
"""How late a report may come. After an earlier one the clock was set back, and the present stage is the older one."""


@dataclass(slots=True)
class Stages:
    """The stages of one pod."""

    name: str = ""  # the present stage; empty if unknown
    since_s: float = -math.inf  # start of the present stage, unix seconds
    saved_s: float | None = None  # unix seconds of the last checkpoint; None before the first
    lasting: str = ""  # the last stage reported by name, to which the pod returns after a passing one

    def observe(self, stage: Stage) -> None:
        """Take in a stage, unless it is older than the present one or polled and unchanged."""
        is_new = stage.event or stage.name != self.name
        if not is_new or 0.0 < self.since_s - stage.time_s <= MAX_LATE_S:
            return
        if stage.is_checkpoint:
            self.saved_s = stage.time_s
        if stage.name != self.name:
            self.name, self.since_s = stage.name, stage.time_s
        if not stage.passing:
            self.lasting = stage.name

    def observe_reading(self, reading: Reading) -> None:
        """Return from a passing stage, which ends with the next loss."""
        if self.name != self.lasting and not 0.0 <= self.since_s - reading.time_s <= MAX_LATE_S:
            self.name, self.since_s = self.lasting, reading.time_s

    def to_state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self | None:
        """Read what `to_state` wrote; None if it is invalid, since the pod will report its stage again."""
        try:
            since_s, saved_s = float(state["since_s"]), state["saved_s"]
            saved_s = None if saved_s is None else float(saved_s)
            found = cls(str(state["name"]), since_s, saved_s, str(state["lasting"]))
        except (KeyError, TypeError, ValueError):
            return None
        return found if math.isfinite(since_s) and (saved_s is None or math.isfinite(saved_s)) else None
