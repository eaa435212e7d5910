"""Time scales: recorded seconds, the longer jobs that recordings stand for, and the clock of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass

HORIZON_S, CYCLE_S, LONGEST_WAIT_S = 3600.0, 600.0, 7200.0
"""Defaults of the extender: horizon of scores, horizon of refusals, patience of waiting pods."""


@dataclass(frozen=True)
class Pace:
    """Compression of time for jobs, demand curves and the extender's horizons.

    `stretch`: Seconds of a job per recorded second. Recordings last two minutes; at 30 they stand for jobs of an hour
        with phases of minutes.
    `speed`: Recorded seconds played per second of the benchmark.
    """

    stretch: float = 30.0
    speed: float = 4.0

    @property
    def horizon_s(self) -> float:
        return HORIZON_S / self.stretch / self.speed

    @property
    def cycle_s(self) -> float:
        return CYCLE_S / self.stretch / self.speed

    @property
    def patience_s(self) -> float:
        return LONGEST_WAIT_S / self.stretch / self.speed
