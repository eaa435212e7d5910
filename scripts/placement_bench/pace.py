"""Time in the bench: recorded seconds, the longer jobs that they stand for, and the bench's own clock."""

from __future__ import annotations

from dataclasses import dataclass

HORIZON_S, CYCLE_S, LONGEST_WAIT_S = 3600.0, 600.0, 7200.0
"""The extender's defaults: an hour ahead for scores, ten minutes for refusals, two hours for pods that wait."""


@dataclass(frozen=True)
class Pace:
    """How time is compressed, for jobs, demand curves and the extender's horizon alike.

    Attributes
    ----------
    stretch
        Seconds of a job that a recorded second stands for. The recordings last two minutes; at 30 they stand for jobs
        of an hour, whose phases last minutes as in the clusters the extender is for.
    speed
        Recorded seconds played in a second of the bench.
    """

    stretch: float = 30.0
    speed: float = 4.0

    @property
    def horizon_s(self) -> float:
        """The extender's hour, in seconds of the bench."""
        return HORIZON_S / self.stretch / self.speed

    @property
    def cycle_s(self) -> float:
        """Its ten minutes, in seconds of the bench."""
        return CYCLE_S / self.stretch / self.speed

    @property
    def patience_s(self) -> float:
        """Its two hours, in seconds of the bench."""
        return LONGEST_WAIT_S / self.stretch / self.speed
