"""The history of one container name of a workload, to which all its replicas and their successors add."""

from __future__ import annotations

import numpy as np

from recommender.kernels import histogram as kernel
from recommender.policies.histogram import Estimate, HistogramSession
from recommender.records import Amounts, FloatArray

NO_FLOORS = (0.0, 0.0)


class HistogramAggregate:
    """Shared histograms, with the memory peaks of each container beside.

    Parameters
    ----------
    past
        What is known from before, as a checkpoint gives it.

    Attributes
    ----------
    memory_interval_s
        Of one memory peak, for containers that come from now on; None for upstream's default.
    """

    def __init__(self, past: HistogramSession | None = None) -> None:
        self.past = past or HistogramSession()
        self._sessions: dict[object, HistogramSession] = {}
        self.memory_interval_s: float | None = None

    def session(self, who: object) -> HistogramSession:
        """The session of one container, which adds to the shared histograms."""
        if who not in self._sessions:
            self._sessions[who] = HistogramSession(self.past, self.memory_interval_s)
        return self._sessions[who]

    def leave(self, who: object) -> None:
        """Let a container go: what it added stays."""
        self._sessions.pop(who, None)

    @property
    def sessions(self) -> tuple[HistogramSession, ...]:
        """All that have a part in it: what was known before, then the containers."""
        return (self.past, *self._sessions.values())

    @property
    def samples(self) -> int:
        """CPU samples so far."""
        return self.past.samples

    def confidence(self) -> float:
        """Days of history, or days' worth of samples at one a minute, whichever is less."""
        return self.past.confidence()

    def estimate(self) -> Estimate | None:
        """What the default recommender would say, before the minimum of a pod, which its containers share.

        None before the first sample. A kill for memory counts as one: of a container that is killed again and again
        as soon as it has started, there is no other.
        """
        requests = np.empty((3, 2))
        self.ask(requests)
        return Estimate(*requests) if requests.any() else None

    def ask(self, requests: FloatArray) -> float:
        """The same into an array, OUT float64 (3, 2), 0 of what nothing is known of; returns the confidence."""
        return float(kernel.estimate(self.past.histograms, NO_FLOORS, requests))

    def most_used(self) -> Amounts:
        """Cores and bytes: the end of the highest bucket that holds anything, of CPU and of memory; 0 for none."""
        cpu, memory = self.past.cpu, self.past.memory
        return _highest(cpu, kernel.CPU_STARTS), _highest(memory, kernel.MEMORY_STARTS)


def _highest(histogram: kernel.Histogram, starts: FloatArray) -> float:
    highest = int(histogram.marks[kernel.HIGHEST])
    if not histogram.sums[kernel.TOTAL]:
        return 0.0
    return float(starts[min(highest + 1, len(starts) - 1)])
