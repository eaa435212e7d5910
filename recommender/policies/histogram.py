"""The recommendation of the default Vertical Pod Autoscaler, as the baseline to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from recommender.base.records import CPU, MEMORY, Amounts, Block, FloatArray, PolicyOutput
from recommender.kernels import histogram as kernel
from recommender.kernels.histogram import DAY_S, FLOOR_BYTES, FLOOR_MILLICORES

DEFAULT_INTERVAL_S = 60.0
"""Interval of the default recommender's rounds."""

WINDOW_S = DAY_S  # default length of a memory window, of which the peak is kept

FLOORS = (FLOOR_MILLICORES, FLOOR_BYTES)

FIRST_REFERENCE_S = -719_162 * DAY_S
"""Upstream's zero time, 1 January of year 1: so early that the first sample moves it."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Lower bound, target and upper bound, float64 (2,) each, cores and bytes; compared by identity."""

    lower: FloatArray
    target: FloatArray
    upper: FloatArray


def empty_histograms() -> FloatArray:
    """Histograms of both resources without samples, float64 (2, WIDTH)."""
    histograms = np.zeros((2, kernel.WIDTH))
    for resource in range(2):
        histogram = histogram_of(histograms, resource)
        histogram.sums[kernel.REFERENCE_S] = FIRST_REFERENCE_S
        histogram.sums[[kernel.FIRST_S, kernel.LAST_S]] = np.nan
    return histograms


def histogram_of(histograms: FloatArray, resource: int) -> kernel.Histogram:
    """Views of the row of a resource, without compiling a kernel."""
    return kernel.histogram_of.py_func(histograms, resource)


def decide_by_histogram(block: Block, cycle_samples: int) -> PolicyOutput:
    """The 90th percentile of a decaying histogram plus 15 %, as the default recommender computes its target.

    The memory in force is what this policy allocated (before its first decision: the declared request); the first of a
    run of samples above it is an OOM, which is added to the histogram with upstream's bump.
    """
    session = HistogramSession()
    allocations = session.advance(block)
    return allocations, {
        "rule": "90th percentile of a decaying histogram plus 15 %",
        "samples": session.samples,
        "oom_events": int(session.state[kernel.OOM_EVENTS]),
        "confidence": session.confidence(),
        "cpu_cores": float(session.state[kernel.IN_FORCE_CPU]),
        "memory_bytes": float(session.state[kernel.IN_FORCE_MEMORY]),
    }


class HistogramSession:
    """Histograms and memory windows of one container.

    `shared`: session whose histograms this one adds to, as replicas of one workload do.
    `memory_interval_s`: length of a memory window; None for upstream's default.
    `sample_interval_s`: of the cells of a grid, only the latest known in each such interval counts; 0: all do.
    """

    __slots__ = ("_interval", "cpu", "histograms", "memory", "sample_interval_s", "state", "window_s")

    def __init__(self, shared: HistogramSession | None = None, memory_interval_s: float | None = None) -> None:
        self.window_s = WINDOW_S if memory_interval_s is None else float(memory_interval_s)
        if shared is None:
            self.histograms = empty_histograms()
            self.cpu, self.memory = histogram_of(self.histograms, CPU), histogram_of(self.histograms, MEMORY)
        else:
            self.histograms, self.cpu, self.memory = shared.histograms, shared.cpu, shared.memory
        self.sample_interval_s, self._interval = 0.0, -math.inf
        self.state = np.zeros(kernel.N_STATE)
        self.state[[kernel.WINDOW_END_S, kernel.IN_FORCE_CPU, kernel.IN_FORCE_MEMORY]] = np.nan

    def advance(self, block: Block) -> FloatArray:
        """Add the next samples and decide at the decision points of the block: float64 (d, 2), cores and bytes."""
        requests = np.full(block.usage.shape, np.nan) if block.requests is None else block.requests
        usage, allocations = np.ascontiguousarray(block.usage), np.empty((len(block.decisions), 2))
        kernel.advance(
            self.histograms, self.window_s, usage, np.ascontiguousarray(requests), block.timestamps, block.decisions,
            self.state, allocations,
        )  # fmt: skip
        return allocations

    def observe_grid(self, usage: FloatArray, first_cell: int, step_s: float) -> None:
        """Add the use in successive cells of a grid, float64 (n, 2), NaN in gaps, without deciding."""
        if self.sample_interval_s > step_s:
            usage = self._once_per_interval(usage, first_cell, step_s)
        kernel.observe_grid(self.histograms, self.window_s, usage, first_cell, step_s, self.state)

    def _once_per_interval(self, usage: FloatArray, first_cell: int, step_s: float) -> FloatArray:
        """The same with NaN in all cells that do not count."""
        known, kept = np.flatnonzero(~np.isnan(usage[:, CPU])), np.full_like(usage, np.nan)
        if len(known):
            intervals = np.ceil((first_cell + known) * step_s / self.sample_interval_s)
            latest = known[(np.diff(intervals, append=np.inf) != 0.0) & (intervals != self._interval)]
            kept[latest], self._interval = usage[latest], float(intervals[-1])
        return kept

    def observe_oom(self, at_s: float, memory_bytes: float) -> None:
        """Add the memory that a container OOM-killed at `at_s` is assumed to have needed, including the bump."""
        # Floats, or the kernel is compiled again for integers, which takes a second of a round.
        kernel.add_memory(self.memory, self.window_s, self.state, float(memory_bytes), float(at_s), True)
        self.state[kernel.OOM_EVENTS] += 1.0

    @property
    def last_s(self) -> float:
        """Unix seconds of the latest CPU sample in the shared histograms; NaN before the first."""
        return float(self.cpu.sums[kernel.LAST_S])

    @property
    def samples(self) -> int:
        """Number of CPU samples in the shared histograms."""
        return int(self.cpu.sums[kernel.SAMPLES])

    @property
    def usage_peak_bytes(self) -> float:
        """Peak memory use in the current window, without kills; 0 before the first sample."""
        return float(self.state[kernel.USAGE_PEAK])

    def confidence(self) -> float:
        """Days of history, or of samples at one a minute, whichever is less; from CPU samples only."""
        return float(kernel.confidence_of.py_func(self.cpu.sums))

    def estimate(self, floors: tuple[float, float] = FLOORS) -> Estimate:
        """The recommendation so far; at least `floors`, millicores and bytes: by default a pod of one container."""
        requests = np.empty((3, 2))
        kernel.estimate(self.histograms, floors, requests)
        return Estimate(*requests)


NO_FLOORS = (0.0, 0.0)


class HistogramAggregate:
    """Histograms of one container name of a workload, shared by all its replicas, and the memory windows of each.

    `past`: earlier history, as from a checkpoint. `memory_interval_s`: as for the sessions of containers to come.
    """

    def __init__(self, past: HistogramSession | None = None) -> None:
        self.past = past or HistogramSession()
        self._sessions: dict[object, HistogramSession] = {}
        self.memory_interval_s: float | None = None
        self.sample_interval_s = 0.0

    def sample_every(self, interval_s: float) -> None:
        """Set the `sample_interval_s` of all sessions, present and to come."""
        self.sample_interval_s = interval_s
        for session in self._sessions.values():
            session.sample_interval_s = interval_s

    def session(self, who: object) -> HistogramSession:
        """The session of one container, which adds to the shared histograms."""
        if who not in self._sessions:
            session = self._sessions[who] = HistogramSession(self.past, self.memory_interval_s)
            session.sample_interval_s = self.sample_interval_s
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
        """Write the recommendation before the pod minimum into `requests`, OUT float64 (3, 2); returns the confidence.

        Lower, target and upper are 0 before the first sample. A kill for memory counts as one: a container that is
        killed as soon as it has started has no other.
        """
        return float(kernel.estimate(self.past.histograms, NO_FLOORS, requests))

    def most_used(self) -> Amounts:
        """Cores and bytes: upper end of the highest non-empty bucket of CPU and of memory; 0 without one."""
        cpu, memory = self.past.cpu, self.past.memory
        return _highest(cpu, kernel.CPU_STARTS), _highest(memory, kernel.MEMORY_STARTS)


def _highest(histogram: kernel.Histogram, starts: FloatArray) -> float:
    filled = kernel.filled_buckets(histogram)
    return float(starts[min(filled[-1] + 1, len(starts) - 1)]) if len(filled) else 0.0
