"""Moments: every decision of the training containers with the facts before it and the samples after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recommender.errors import NotEnoughData
from recommender.kernels import past as facts_of
from recommender.policies.schedule import decision_positions
from recommender.records import BoolArray, FloatArray, IntArray, PhaseTrace, UsageSeries

MOST_SCHEDULES = 5
"""Decisions a fifth of a cycle apart tell something new; nearer ones are copies."""

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
    schedules
        int64 (m,): 0 for the decisions of a dry run; above, decisions as many steps later as a cycle is divided into,
        which teach what happens between.
    workloads
        The class of each container, None where unknown.
    """

    past: FloatArray
    coming: FloatArray
    owners: IntArray
    schedules: IntArray
    workloads: tuple[str | None, ...]

    @property
    def samples(self) -> IntArray:
        """int64 (m,): how many samples came."""
        samples: IntArray = np.count_nonzero(~np.isnan(self.coming[:, :, 0]), axis=1)
        return samples

    def take(self, which: BoolArray | IntArray) -> Moments:
        """Some of the moments."""
        return Moments(self.past[which], self.coming[which], self.owners[which], self.schedules[which], self.workloads)

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


def collect_moments(
    series: Sequence[UsageSeries], phases: Sequence[PhaseTrace], cycle_samples: int, lag: int, most: int = 0
) -> Moments:
    """All decisions of the containers that have a sample after them.

    Parameters
    ----------
    series, phases
        Containers, and the phase of each of their samples.
    cycle_samples
        How long an allocation holds.
    lag
        The first decision comes after lag + 1 samples.
    most
        As long as there are fewer moments than this, further schedules are added, up to `MOST_SCHEDULES`.

    Raises
    ------
    NotEnoughData
        There is none.
    """
    number = sum(len(decision_positions(one.present, cycle_samples, lag)) for one in series)
    if not number:
        raise NotEnoughData(f"no container has {lag + 2} samples. Give longer series, or a finer --step.")
    n_schedules = max(1, min(MOST_SCHEDULES, cycle_samples, most // number))
    parts = [
        _moments_of(one, trace, owner, schedule, n_schedules, cycle_samples, lag)
        for owner, (one, trace) in enumerate(zip(series, phases, strict=True))
        for schedule in range(n_schedules)
    ]
    past, coming, owners, schedules = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Moments(past, coming, owners, schedules, tuple(s.workload for s in series))


def _moments_of(
    series: UsageSeries, trace: PhaseTrace, owner: int, schedule: int, n_schedules: int, cycle_samples: int, lag: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Facts, coming samples, owner and schedule of one container's decisions on one schedule."""
    decisions = decision_positions(series.present, cycle_samples, lag, schedule * cycle_samples // n_schedules)
    past = np.empty((len(decisions), facts_of.N_PAST))
    usage = np.ascontiguousarray(series.usage, float)
    facts_of.read_past(usage, trace.labels, decisions, fresh_past(cycle_samples), past)
    padded = np.concatenate([usage, np.full((cycle_samples, 2), np.nan)])
    coming = padded[decisions[:, np.newaxis] + np.arange(cycle_samples)]
    new = slice(1 if schedule else 0, None)  # every schedule starts with the same decision
    kept = len(decisions[new])
    return past[new], coming[new], np.full(kept, owner, np.int64), np.full(kept, schedule, np.int64)
