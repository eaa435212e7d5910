"""Totals of a container under an allocation: use, slack, shortage, violations; kills, and the work they lose.

And statistics of the use in each cycle, by which the policies of the papers allocate; gaps are NaN and are skipped.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from recommender.kernels import FloatArray, IntArray
from recommender.kernels.histogram import BUMP_UP_RATIO, MIN_BUMP_UP_BYTES

ROUNDING = 1e-12  # relative excess that counts as equal: far above float64 rounding, far below any measurement error

# Indices into the two result arrays of `tally_allocations`; pairs are cpu, then memory.
JUDGED_S, USED, ALLOCATED, SLACK, SHORTAGE, N_SUMS = 0, 1, 3, 5, 7, 9
SAMPLES, VIOLATIONS, OOM_EVENTS, RESIZES, N_COUNTS = 0, 1, 3, 4, 5

# Indices into the result array of `simulate_kills`; pairs are cpu, then memory.
KILLS, RESERVED, LOST, N_FIGURES = 0, 1, 3, 5


@njit(cache=True, nogil=True)
def tally_allocations(
    usage: FloatArray, decisions: IntArray, allocations: FloatArray, sample_s: FloatArray, tolerance: float,
    sums: FloatArray, counts: IntArray,
) -> None:  # fmt: skip
    """Compare every sample, float64 (n, 2) cores and bytes, from the first decision on with the allocation in force.

    `decisions`, int64 (d,), are increasing positions in 0..n-1, one or more, whose allocation, float64 (d, 2), holds
    until the next; `sample_s`, float64 (n,), is the duration that each sample represents. A sample violates when its
    use is above allocation x `tolerance`, rounded products comparing as exact ones (`ROUNDING`).

    `sums` is OUT float64 (N_SUMS,): judged seconds, then used, allocated, slack, shortage in unit-seconds, cpu and
    memory. `counts` is OUT int64 (N_COUNTS,): samples, violations of cpu and memory, OOM events, resizes. An OOM event
    is a run of memory samples above the allocation; neither a gap nor a decision ends it, only a sample at or below the
    allocation does.
    """
    sums[:] = 0.0
    counts[:] = 0
    rounding_factor = 1.0 + ROUNDING
    in_run = False
    for decision in range(len(decisions)):
        end = decisions[decision + 1] if decision + 1 < len(decisions) else usage.shape[0]
        if decision and (
            allocations[decision, 0] != allocations[decision - 1, 0]
            or allocations[decision, 1] != allocations[decision - 1, 1]
        ):
            counts[RESIZES] += 1
        for row in range(decisions[decision], end):
            if math.isnan(usage[row, 0]):
                continue
            counts[SAMPLES] += 1
            sums[JUDGED_S] += sample_s[row]
            for resource in range(2):
                used, allocated = usage[row, resource], allocations[decision, resource]
                sums[USED + resource] += used * sample_s[row]
                sums[ALLOCATED + resource] += allocated * sample_s[row]
                if allocated > used:
                    sums[SLACK + resource] += (allocated - used) * sample_s[row]
                else:
                    sums[SHORTAGE + resource] += (used - allocated) * sample_s[row]
                if used > allocated * tolerance * rounding_factor:
                    counts[VIOLATIONS + resource] += 1
            over = usage[row, 1] > allocations[decision, 1] * rounding_factor
            if over and not in_run:
                counts[OOM_EVENTS] += 1
            in_run = over


@njit(cache=True, nogil=True, inline="always")
def after_kill(had_bytes: float) -> float:
    """Floor of the allocation of a run after a kill at `had_bytes`, as the VPA bumps it."""
    return max(had_bytes * BUMP_UP_RATIO, had_bytes + MIN_BUMP_UP_BYTES)


@njit(cache=True, nogil=True)
def simulate_kills(
    memory_bytes: FloatArray, allocated: FloatArray, limit_bytes: FloatArray, sample_s: FloatArray, first: int,
    restart_s: float, checkpoint_every_s: float, recreates: bool, figures: FloatArray,
) -> None:  # fmt: skip
    """Simulate the kills of a run from sample `first` on: use above the memory limit kills, and the trace continues.

    The earlier samples only add to the age of the run. A kill loses the work since the last checkpoint and the restart,
    charged at the allocation after the kill. If that is still too little, the run is killed again at the same sample.

    `memory_bytes`, float64 (n,), are NaN in gaps; `sample_s`, float64 (n,), is the duration that each sample
    represents; `allocated`, float64 (n, 2), are cores and bytes in force, without the floors after kills.
    `limit_bytes`, float64 (n,), is a fixed limit; the larger of it and of the allocation counts. `checkpoint_every_s`,
    the age between checkpoints, is infinite without any. `recreates`: a change of what is in force recreates the
    container, which loses what a kill does.

    `figures` is OUT float64 (N_FIGURES,): kills, then reserved and lost unit-seconds of cores and bytes.
    """
    figures[:] = 0.0
    floor_bytes = 0.0
    age_s = 0.0
    had_cores, had_bytes = allocated[first]
    for row in range(len(memory_bytes)):
        if row >= first and not math.isnan(memory_bytes[row]):
            in_force = max(allocated[row, 1], floor_bytes)
            redone_s = age_s if math.isinf(checkpoint_every_s) else age_s % checkpoint_every_s
            if recreates and (allocated[row, 0] != had_cores or in_force != had_bytes):
                figures[LOST] += (redone_s + restart_s) * allocated[row, 0]
                figures[LOST + 1] += (redone_s + restart_s) * in_force
            while memory_bytes[row] > max(in_force, limit_bytes[row]) * (1.0 + ROUNDING):
                in_force = floor_bytes = after_kill(max(in_force, limit_bytes[row]))
                figures[KILLS] += 1.0
                figures[LOST] += (redone_s + restart_s) * allocated[row, 0]
                figures[LOST + 1] += (redone_s + restart_s) * in_force
            figures[RESERVED] += allocated[row, 0] * sample_s[row]
            figures[RESERVED + 1] += in_force * sample_s[row]
            had_cores, had_bytes = allocated[row, 0], in_force
        age_s += sample_s[row]


@njit(cache=True, nogil=True)
def cycle_statistics(
    usage: FloatArray, starts: IntArray, ends: IntArray, peak: FloatArray, mean: FloatArray, spread: FloatArray,
    counts: IntArray,
) -> None:  # fmt: skip
    """Largest, mean and population standard deviation of each column over stretches of samples.

    `usage` is float64 (n, c); a row whose first column is NaN is a gap. Stretch i holds the rows starts[i] up to but
    not including ends[i], int64 (d,). `peak`, `mean` and `spread` are OUT float64 (d, c), NaN where a stretch holds no
    sample; `counts` is OUT int64 (d,): samples in it.
    """
    columns = usage.shape[1]
    for stretch in range(len(starts)):
        start, end = starts[stretch], ends[stretch]
        present = 0
        for row in range(start, end):
            if not math.isnan(usage[row, 0]):
                present += 1
        counts[stretch] = present
        for column in range(columns):
            if present == 0:
                peak[stretch, column] = mean[stretch, column] = spread[stretch, column] = np.nan
                continue
            total, largest = 0.0, -np.inf
            for row in range(start, end):
                if not math.isnan(usage[row, 0]):
                    total += usage[row, column]
                    largest = max(largest, usage[row, column])
            first_mean = total / present
            # Two passes: in bytes, the variance is lost to cancellation in plain sums of squares.
            residue, squares = 0.0, 0.0
            for row in range(start, end):
                if not math.isnan(usage[row, 0]):
                    deviation = usage[row, column] - first_mean
                    residue += deviation
                    squares += deviation * deviation
            peak[stretch, column] = largest
            mean[stretch, column] = first_mean + residue / present
            spread[stretch, column] = math.sqrt(max(0.0, squares / present - (residue / present) ** 2))
