"""What the containers of each group want, and what is known of them together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from recommender.kernels import BoolArray, FloatArray, IntArray

MIN_SATURATED_SAMPLES = 4
"""Fewer samples near the request are noise."""

MAX_MISSED_SAMPLES = 3
"""After so many missing samples the usage of a container counts as unknown."""

YOUNG_HEADROOM = 1.1
"""CPU of a young container as a multiple of its own usage, while mature ones determine what its group needs."""


class DemandArrays(NamedTuple):
    """Arrays of containers, see `ContainerArrays`."""

    group: IntArray
    samples: IntArray
    phase: IntArray
    promised: BoolArray
    wanted: FloatArray
    used: FloatArray
    requests: FloatArray
    saturated_samples: IntArray
    cycle_cpu_cores: FloatArray
    least_bytes: FloatArray
    sampled_s: FloatArray
    sample_interval_s: FloatArray
    start_cell: IntArray


class GroupDemand(NamedTuple):
    """By group, for its running containers; see `engine.situation.Situation`."""

    wanted: FloatArray
    leading: IntArray
    keeps_published_cpu: BoolArray
    youngest_s: FloatArray
    """float64 (n, 2), int64, bool and float64 (n,)."""
    running: IntArray
    demands: IntArray
    unknown: IntArray
    heard: IntArray
    unpromised: IntArray
    experienced: IntArray
    """int64 (n,): numbers of all of them, of those with a demand, in an unknown phase, with a recent sample, without a
    bound of their memory, and with a demand from experience."""
    working_set_bytes: FloatArray
    saturated_cpu_cores: FloatArray
    recent_cpu_cores: FloatArray
    least_bytes: FloatArray
    """float64 (n,): largest of each; NaN where nothing is known."""


@njit(cache=True, nogil=True, inline="always")
def larger(one: float, other: float) -> float:
    """The larger amount, or that which is not NaN."""
    return one if one >= other or math.isnan(other) else other


@njit(cache=True, nogil=True)
def demand_of_groups(
    slots: IntArray, decided: BoolArray, from_experience: BoolArray, mature_samples: int, unknown_phase: int,
    tolerance: float, now_s: float, step_s: float, containers: DemandArrays, published: FloatArray,
    established: BoolArray, found: GroupDemand,
) -> None:  # fmt: skip
    """Take together the containers in `slots`, of which `decided` have a decision, bool (m,).

    The CPU forecast of a container that has just started differs from its later ones, so a young container does not
    override what mature ones established. Beside a mature one it gets its own usage with headroom; while all are young,
    the published CPU stays as long as it is enough.

    `established`, bool (n,), is IN OUT: a mature container has determined the CPU target. `found` is OUT.
    """
    c = containers
    has_mature = np.zeros(len(established), np.bool_)
    for k in range(len(slots)):
        group, grown = c.group[slots[k]], c.samples[slots[k]] >= mature_samples
        has_mature[group] |= decided[k] and (from_experience[k] or grown)
        established[group] |= decided[k] and grown and not from_experience[k]
    for k in range(len(slots)):
        slot, group = slots[k], c.group[slots[k]]
        mature = decided[k] and (from_experience[k] or c.samples[slot] >= mature_samples)
        cores = c.wanted[slot, 0] if decided[k] else math.nan
        memory_bytes = c.wanted[slot, 1] if decided[k] or c.promised[slot] else math.nan
        if not mature and (has_mature[group] or established[group]):
            cores = c.used[slot, 0] * YOUNG_HEADROOM
            if not has_mature[group] and c.used[slot, 0] <= published[group, 0] * tolerance:
                cores = published[group, 0]
                found.keeps_published_cpu[group] = True
        if cores > found.wanted[group, 0] or (math.isnan(found.wanted[group, 0]) and not math.isnan(cores)):
            found.wanted[group, 0], found.leading[group] = cores, slot
        found.wanted[group, 1] = larger(found.wanted[group, 1], memory_bytes)
        found.youngest_s[group] = min(found.youngest_s[group], max(0.0, now_s - c.start_cell[slot] * step_s))
        found.running[group] += 1
        found.demands[group] += not (math.isnan(cores) or math.isnan(memory_bytes))
        found.unknown[group] += decided[k] and not from_experience[k] and c.phase[slot] == unknown_phase
        timeout_s = MAX_MISSED_SAMPLES * max(c.sample_interval_s[slot], step_s)
        found.heard[group] += now_s - c.sampled_s[slot] <= timeout_s
        found.unpromised[group] += not c.promised[slot]
        found.experienced[group] += from_experience[k]
        found.working_set_bytes[group] = larger(found.working_set_bytes[group], c.used[slot, 1])
        if c.saturated_samples[slot] >= MIN_SATURATED_SAMPLES:
            found.saturated_cpu_cores[group] = larger(found.saturated_cpu_cores[group], c.requests[slot, 0])
        peak_cores = larger(c.cycle_cpu_cores[slot, 0], c.cycle_cpu_cores[slot, 1])
        found.recent_cpu_cores[group] = larger(found.recent_cpu_cores[group], peak_cores)
        found.least_bytes[group] = larger(found.least_bytes[group], c.least_bytes[slot])
