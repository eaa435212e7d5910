"""The default recommender on recorded traces: once a minute, from the histograms of each run alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recommender.base.records import Block, FloatArray
from recommender.engine.kills import bumped_memory_bytes
from recommender.policies.histogram import DEFAULT_INTERVAL_S, NO_FLOORS, HistogramSession
from recommender.simulate.clock import Recommended, RoundInput, SimulatedRecommender, Trace
from recommender.simulate.in_force import constrained

NO_POSITIONS = np.array([], np.int64)


class Default(SimulatedRecommender):
    """Each run is the only pod of a job whose VPA starts without history."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces
        self._sessions: dict[int, HistogramSession] = {}
        self._taken, self._available = np.zeros(len(traces), np.int64), np.zeros(len(traces), np.int64)
        self._minute = -1.0

    def recommend(self, observed: RoundInput) -> Recommended:
        """Recommendations for all, in the first round of each minute."""
        now_s = observed.round.now_s
        self._sessions |= {number: HistogramSession() for number in observed.round.began}
        self._available[observed.round.numbers] = observed.round.positions + 1
        for number, had_bytes in observed.kills:
            self._take(number)
            record_oom(self._sessions[number], now_s, had_bytes)
        for number in observed.round.ended:
            del self._sessions[number]
        minute = now_s // DEFAULT_INTERVAL_S
        if minute == self._minute:
            return Recommended()
        self._minute = minute
        estimates = np.array([self._estimate(number) for number in self._sessions]).reshape(-1, 3, 2)
        return Recommended(list(self._sessions), constrained(estimates)[1])

    def _take(self, number: int) -> None:
        series, here = self._traces[number].series, slice(self._taken[number], self._available[number])
        self._sessions[number].advance(Block(series.usage[here], series.timestamps[here], NO_POSITIONS))
        self._taken[number] = self._available[number]

    def _estimate(self, number: int) -> FloatArray:
        self._take(number)
        estimate = self._sessions[number].estimate(NO_FLOORS)
        return np.array([estimate.lower, estimate.target, estimate.upper])


def record_oom(session: HistogramSession, when_s: float, had_bytes: float) -> None:
    """Record an OOM kill of a container with this request; NaN for none."""
    bumped = bumped_memory_bytes(0.0 if math.isnan(had_bytes) else had_bytes, session.usage_peak_bytes)
    session.observe_oom(when_s, bumped)
