"""Moments: every decision of the training containers with the facts before it and the samples after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recommender.errors import NotEnoughData
from recommender.kernels import past as facts_of
from recommender.records import BoolArray, FloatArray, IntArray, PhaseTrace, UsageSeries

FLOORS = np.array([facts_of.CPU_FLOOR, facts_of.MEMORY_FLOOR])


@dataclass(frozen=True, slots=True)
class Moments:
    """Decisions in training containers.

    Attributes
    ----------
    past
        float64 (m, N_PAST), from `read_past`.
    coming
        float64 (m, cycle, 2): the samples of the coming cycle, NaN where there is none.
    owners
        int64 (m,): which container.
    workloads
        The class of each container, None where unknown.
    """

    past: FloatArray
    coming: FloatArray
    owners: IntArray
    workloads: tuple[str | None, ...]

    @property
    def samples(self) -> IntArray:
        """int64 (m,): how many samples came."""
        samples: IntArray = np.count_nonzero(~np.isnan(self.coming[:, :, 0]), axis=1)
        return samples

    def take(self, which: BoolArray | IntArray) -> Moments:
        """Some of the moments."""
        return Moments(self.past[which], self.coming[which], self.owners[which], self.workloads)

    def outcomes(self) -> FloatArray:
        """float64 (m, 4): natural logarithm of the coming peak (cpu, memory) and mean."""
        coming = np.fmax(self.coming, FLOORS)
        coming[np.isnan(self.coming)] = np.nan
        levels: FloatArray = np.log(np.concatenate([np.nanmax(coming, axis=1), np.nanmean(coming, axis=1)], axis=1))
        return levels


def fresh_past(cycle_samples: int) -> facts_of.Past:
    """What is known of a container before its first sample."""
    counts = np.zeros(7, np.int64)
    counts[[facts_of.PHASE, facts_of.PHASE_BEFORE]] = -1
    return facts_of.Past(np.full((cycle_samples, 2), np.nan), np.zeros((6, 2)), counts)


def decisions_of(present: BoolArray, cycle_samples: int, lag: int) -> IntArray:
    """Where a policy decides: after lag + 1 samples, then every cycle, but not where a cycle holds no sample."""
    samples = np.flatnonzero(present)
    if len(samples) < lag + 2:
        return np.empty(0, np.int64)
    starts = np.arange(samples[lag] + 1, len(present), cycle_samples, dtype=np.int64)
    return starts[np.searchsorted(samples, starts + cycle_samples) > np.searchsorted(samples, starts)]


def collect_moments(
    series: Sequence[UsageSeries], phases: Sequence[PhaseTrace], cycle_samples: int, lag: int
) -> Moments:
    """All decisions of the containers that have a sample after them.

    Raises
    ------
    NotEnoughData
        There is none.
    """
    pasts, comings, owners = [], [], []
    for owner, (one, trace) in enumerate(zip(series, phases, strict=True)):
        decisions = decisions_of(one.present, cycle_samples, lag)
        past = np.empty((len(decisions), facts_of.N_PAST))
        usage = np.ascontiguousarray(one.usage, float)
        facts_of.read_past(usage, trace.labels, decisions, fresh_past(cycle_samples), past)
        padded = np.concatenate([usage, np.full((cycle_samples, 2), np.nan)])
        coming = padded[decisions[:, np.newaxis] + np.arange(cycle_samples)]
        pasts.append(past)
        comings.append(coming)
        owners.append(np.full(len(decisions), owner, np.int64))
    if not sum(map(len, owners)):
        raise NotEnoughData(f"no container has {lag + 2} samples. Give longer series, or a finer --step.")
    return Moments(
        np.concatenate(pasts), np.concatenate(comings), np.concatenate(owners), tuple(s.workload for s in series)
    )
