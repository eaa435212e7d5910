"""Whether the wall clock has run evenly for long: a node may start with a wrong clock, until it is synchronised."""

from __future__ import annotations

import math

from recommender.base.units import MonotonicClock, WallClock

STEADY_S = 3600.0
"""Nothing is deleted for its age within this time of the start, or of a jump of the clock by more than this."""


class SteadyClock:
    """Compares the wall clock with a monotonic one."""

    def __init__(self, clock: WallClock, stopwatch: MonotonicClock) -> None:
        self._clock, self._stopwatch = clock, stopwatch
        self._offset_s, self._since_s = -math.inf, 0.0

    def is_steady(self) -> bool:
        """Whether the first call, and the last jump that a call has noticed, are `STEADY_S` ago."""
        now_s = self._stopwatch()
        offset_s = self._clock() - now_s
        if abs(offset_s - self._offset_s) > STEADY_S:
            self._offset_s, self._since_s = offset_s, now_s
        return now_s - self._since_s >= STEADY_S
