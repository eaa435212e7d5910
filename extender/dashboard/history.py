"""An hour of what each container used, had and was to have, for drawing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from extender.dashboard.job import Running
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.records import FloatArray

COLUMNS = ("use", "request", "limit", "target")
WIDTH = 2 * len(COLUMNS) + 6
PHASE, KILLED, DEFERRED, VALUE, REVERTED, SAVED = range(2 * len(COLUMNS), WIDTH)
LOOKS = 240
"""An hour of looks every 15 s: 13 kB a container."""


class History:
    """Rings of float32, all turning together; a container that is gone for a whole turn is forgotten."""

    def __init__(self, looks: int = LOOKS) -> None:
        self._moments = np.full(looks, np.nan)
        self._rings: dict[ContainerKey, tuple[FloatArray, int]] = {}
        self._turn = 0

    def add(self, now_s: float, running: Iterable[Running]) -> None:
        """Keep one look."""
        column = self._turn % len(self._moments)
        self._moments[column] = now_s
        for one in running:
            ring, _ = self._rings.get(one.key, (None, 0))
            if ring is None:
                ring = np.full((len(self._moments), WIDTH), np.nan, dtype=np.float32)
            pairs = (one.use, one.request, one.limit, one.target)
            ring[column] = [
                *(amount for pair in pairs for amount in pair), one.phase, one.killed_s - now_s,
                bool(one.deferred), one.value, one.reverted, one.saved_s - now_s,
            ]  # fmt: skip
            self._rings[one.key] = ring, self._turn
        self._forget(column)
        self._turn += 1

    def of(self, key: ContainerKey) -> tuple[FloatArray, FloatArray]:
        """Moments in unix seconds, the oldest first, and (n, `WIDTH`): CPU and memory of each of `COLUMNS`, the phase,
        the seconds since the last kill for memory, below zero, whether a resize waited, what training told last,
        whether a resize was taken back, and the seconds since the last checkpoint, below zero."""
        if key not in self._rings:
            return np.empty(0), np.empty((0, WIDTH))
        order = (np.arange(len(self._moments)) + self._turn) % len(self._moments)
        rows = self._rings[key][0][order].astype(float)
        kept = np.isfinite(self._moments[order]) & np.isfinite(rows[:, PHASE])
        return self._moments[order][kept], rows[kept]

    def saved_before(self, key: ContainerKey, moment_s: float) -> float:
        """When a checkpoint was last saved before a moment; minus infinity where none was seen."""
        moments, rows = self.of(key)
        saved_s = moments + rows[:, SAVED]
        return float(saved_s[saved_s <= moment_s].max(initial=-np.inf))

    def _forget(self, column: int) -> None:
        for key, (ring, last) in [*self._rings.items()]:
            if self._turn - last >= len(self._moments):
                del self._rings[key]
            elif last != self._turn:
                ring[column] = np.nan
