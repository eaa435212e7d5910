"""The history of one container name of a workload, to which all its replicas and their successors add."""

from __future__ import annotations

import numpy as np

from recommender.kernels import histogram as kernel
from recommender.policies.histogram import Estimate, HistogramSession, confidence_of, requests_of
from recommender.records import Amounts, FloatArray


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
        """Let a container go: what it added stays, and so do the times and the number of its samples."""
        session = self._sessions.pop(who, None)
        if session is None or not session.state[kernel.CPU_SAMPLES]:
            return
        before, gone = self.past.state, session.state
        before[kernel.FIRST_CPU_S] = np.fmin(before[kernel.FIRST_CPU_S], gone[kernel.FIRST_CPU_S])
        before[kernel.LAST_CPU_S] = np.fmax(before[kernel.LAST_CPU_S], gone[kernel.LAST_CPU_S])
        before[kernel.CPU_SAMPLES] += gone[kernel.CPU_SAMPLES]

    @property
    def sessions(self) -> tuple[HistogramSession, ...]:
        """All that have a part in it: what was known before, then the containers."""
        return (self.past, *self._sessions.values())

    @property
    def samples(self) -> int:
        """CPU samples so far."""
        return int(sum(session.state.item(kernel.CPU_SAMPLES) for session in self.sessions))

    def confidence(self) -> float:
        """Days of history, or days' worth of samples at one a minute, whichever is less."""
        return confidence_of(self.sessions)

    def estimate(self) -> Estimate | None:
        """What the default recommender would say, before the minimum of a pod, which its containers share.

        None before the first sample. A kill for memory counts as one: of a container that is killed again and again
        as soon as it has started, there is no other.
        """
        requests = self.requests(self.confidence())
        return None if requests is None else Estimate(*requests)

    def requests(self, confidence: float) -> FloatArray | None:
        """The same as one array, float64 (3, 2), when the confidence is known already."""
        if not confidence and not self.samples and not self.past.memory.sums[kernel.TOTAL]:
            return None
        return requests_of(self.past, confidence, floors=(0.0, 0.0))

    def most_used(self) -> Amounts:
        """Cores and bytes: the end of the highest bucket that holds anything, of CPU and of memory; 0 for none."""
        cpu, memory = self.past.cpu, self.past.memory
        return _highest(cpu, kernel.CPU_STARTS), _highest(memory, kernel.MEMORY_STARTS)


def _highest(histogram: kernel.Histogram, starts: FloatArray) -> float:
    highest = int(histogram.marks[kernel.HIGHEST])
    if not histogram.sums[kernel.TOTAL]:
        return 0.0
    return float(starts[min(highest + 1, len(starts) - 1)])
