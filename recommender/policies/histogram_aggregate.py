"""Histograms of one container name of a workload, shared by all its replicas and their successors."""

from __future__ import annotations

from recommender.kernels import histogram as kernel
from recommender.policies.histogram import HistogramSession
from recommender.records import Amounts, FloatArray

NO_FLOORS = (0.0, 0.0)


class HistogramAggregate:
    """Shared histograms, and the memory windows of each container.

    `past`: earlier history, as from a checkpoint.

    `memory_interval_s`: length of a memory window, for containers added from now on; None for upstream's default.
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
        """Forget a container; its samples stay."""
        self._sessions.pop(who, None)

    @property
    def sessions(self) -> tuple[HistogramSession, ...]:
        """The session of earlier history, then those of the containers."""
        return (self.past, *self._sessions.values())

    @property
    def samples(self) -> int:
        """Number of CPU samples so far."""
        return self.past.samples

    def estimate_into(self, requests: FloatArray) -> float:
        """Write the default recommendation into an array before the pod minimum, which the containers of a pod share.

        `requests`: OUT float64 (3, 2), lower, target and upper; 0 before the first sample. A kill for memory counts as
        one: a container that is killed as soon as it has started has no other.

        Returns the confidence.
        """
        return float(kernel.estimate(self.past.histograms, NO_FLOORS, requests))

    def most_used(self) -> Amounts:
        """Cores and bytes: upper end of the highest non-empty bucket of CPU and of memory; 0 without one."""
        cpu, memory = self.past.cpu, self.past.memory
        return _highest(cpu, kernel.CPU_STARTS), _highest(memory, kernel.MEMORY_STARTS)


def _highest(histogram: kernel.Histogram, starts: FloatArray) -> float:
    filled = kernel.filled_buckets(histogram)
    return float(starts[min(filled[-1] + 1, len(starts) - 1)]) if len(filled) else 0.0
