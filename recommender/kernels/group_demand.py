"""What the containers of each group want, and what is known of them together."""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import njit

from recommender.kernels import BoolArray, FloatArray, IntArray
from recommender.kernels.samples import HEADROOM, LIMIT_HEADROOM, MIN_CENSORED_SAMPLES

PROBE_FACTOR = 2.0
"""CPU as a multiple of the request while demand is censored."""

MAX_MISSED_SAMPLES = 3
"""After so many missing samples the usage of a container counts as unknown."""

YOUNG_HEADROOM = 1.1
"""CPU of a young container as a multiple of its own usage, while mature ones determine what its group needs."""


DemandArrays = namedtuple(
    "DemandArrays",
    "group samples promised wanted used requests censored_samples free_cpu_cores tested withheld foreseen "
    "cycle_cpu_cores least_bytes sampled_s sample_interval_s start_cell",
)
"""Arrays of containers, see `ContainerArrays`."""

RUNNING, DEMANDS, HEARD, UNPROMISED, EXPERIENCED, UNFORESEEN = range(6)
"""Numbers of running containers: all, those with a demand, with a recent sample, without a bound of their memory, with
a demand from experience, and with CPU that can be withheld without anything that foresees it."""

WORKING_SET, PROBE, HEADROOM_CORES, RECENT, LEAST = range(5)
"""Largest bytes and cores, NaN where nothing is known, see `engine.situation.Situation`; and `least_bytes`."""


@njit(cache=True, nogil=True)
def demand_of_groups(
    slots: IntArray, decided: BoolArray, from_experience: BoolArray, mature_samples: int,
    tolerance: float, now_s: float, step_s: float, containers: DemandArrays, published: FloatArray,
    limit_follows: BoolArray, established: BoolArray, keeps_published: BoolArray, wanted: FloatArray,
    leading: IntArray, youngest_s: FloatArray, counts: IntArray, largest: FloatArray,
) -> None:  # fmt: skip
    """Take together the containers in `slots`, of which `decided` have a decision, bool (m,).

    The CPU forecast of a container that has just started differs from its later ones, so a young container does not
    override what mature ones established. Beside a mature one it gets its own usage with headroom; while all are young,
    the published CPU stays as long as it is enough.

    `established`, bool (n,), is IN OUT: a mature container has determined the CPU target. The others of shape (n, ...)
    and `counts` and `largest`, int64 (6, n) and float64 (5, n), are OUT, see `engine.situation`.
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
                keeps_published[group] = True
        if cores > wanted[group, 0] or (math.isnan(wanted[group, 0]) and not math.isnan(cores)):
            wanted[group, 0], leading[group] = cores, slot
        wanted[group, 1] = np.fmax(wanted[group, 1], memory_bytes)
        youngest_s[group] = min(youngest_s[group], max(0.0, now_s - c.start_cell[slot] * step_s))
        counts[RUNNING, group] += 1
        counts[DEMANDS, group] += not (math.isnan(cores) or math.isnan(memory_bytes))
        timeout_s = MAX_MISSED_SAMPLES * max(c.sample_interval_s[slot], step_s)
        counts[HEARD, group] += now_s - c.sampled_s[slot] <= timeout_s
        counts[UNPROMISED, group] += not c.promised[slot]
        counts[EXPERIENCED, group] += from_experience[k]
        largest[WORKING_SET, group] = np.fmax(largest[WORKING_SET, group], c.used[slot, 1])
        if c.censored_samples[slot] >= MIN_CENSORED_SAMPLES:
            largest[PROBE, group] = np.fmax(largest[PROBE, group], PROBE_FACTOR * c.requests[slot, 0])
        if limit_follows[group] or c.tested[slot]:
            headroom = c.free_cpu_cores[slot] * (LIMIT_HEADROOM if limit_follows[group] else HEADROOM)
            largest[HEADROOM_CORES, group] = np.fmax(largest[HEADROOM_CORES, group], headroom)
        counts[UNFORESEEN, group] += (limit_follows[group] or c.withheld[slot]) and not c.foreseen[slot]
        peak_cores = np.fmax(c.cycle_cpu_cores[slot, 0], c.cycle_cpu_cores[slot, 1])
        largest[RECENT, group] = np.fmax(largest[RECENT, group], peak_cores)
        largest[LEAST, group] = np.fmax(largest[LEAST, group], c.least_bytes[slot])
