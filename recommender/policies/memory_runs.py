"""Memory by runs: what a run may still need, promised by the earlier runs of its class.

Two facts of each earlier run are kept: its peak, and by how much its memory rose above its use of late, since it was a
quarter to half as old, within the time that a change takes (`kernels.memory_rises`). The next run is allocated the
smaller of the class's peak and its own largest use of late x the class's largest rise: a peak that is over is
forgotten, unless earlier runs had another. One run in n + 1 exceeds the largest of n others, so both have a margin that
shrinks with n. Before a class has enough runs, what was declared stays, for ten minutes at least.

Where runs tell the size of their input, a straight line leads from it to the peak (as in Bader et al., "Predicting
Dynamic Memory Requirements for Scientific Workflow Tasks", 2023): the peaks of earlier runs are taken as they would be
with the input of the next one, each by the line through the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from recommender.kernels.memory_rises import observe_memory
from recommender.records import FloatArray, IntArray
from recommender.slots import SlotArrays

AGES = 12
"""Rises are kept from 1, 2, 4, ... 2048 samples on."""

GROWN_UP_STEPS = 4
"""Before so many samples a run has the peak of its class: how soon after its start the first one is told is chance."""

MOST_LEAD = 40
"""A change that takes more samples is looked back at by so many."""

FEWEST_RUNS = 3
"""A class with fewer runs promises nothing, nor does an age that fewer runs reached: for one kill in a hundred runs."""

MAX_RUNS = 256
"""The latest ones are kept: a class changes with its code."""

MOST_INPUTS = 4096
"""For so many sizes of input a class remembers what it promised."""

MARGIN, SMALL_SAMPLE_MARGIN = 0.05, 1.0
"""Above the largest of n runs: this share, and the second one divided by n: so likely is it to be exceeded."""

BOUNDS = 2
"""A run is killed where its peak or its rises are above what was promised: each may be so for its part of the runs."""

LOOSE, STRICTEST = 0.1, 3.0
"""For one kill in ten runs the first margin is none; for each tenth of that it is one `MARGIN` more, up to three."""

SLOWER = 1
"""A run may take 2 ** this times as long as the earlier ones to come to the same point: rises count from that much
earlier on."""

LEAST_INPUT, ROUNDED = 1e-3, 1e-9
"""An input smaller than this share of the mean one counts as that; inputs whose squares differ by less are the same."""

FARTHEST = 4.0
"""An input more times as large as any known one makes a run a stranger; one more times smaller counts as that small."""

OWN_PEAK_MARGIN = 1.1
"""A run that comes up to the peak of its class keeps this much above its own largest use."""

NO_BOUNDS_WAIT_S, NO_BOUNDS_MARGIN = 600.0, 1.15
"""Without a promise: what was declared for ten minutes, then the largest use so far x the margin."""


class RunMemory(NamedTuple):
    """What a run leaves behind.

    Attributes
    ----------
    peak_bytes
        Its largest use; of one that was killed, what it is taken to have needed.
    rises
        float64 (AGES,): by how much it rose, at most, above what had been used of late when the allocation was decided,
        among decisions from each age on; a ratio, 0 for ages that it did not reach.
    killed
        For memory: nobody knows what it would have come to.
    input_size
        Of what it worked on, in a unit that the runs of its class share; NaN where it told none.
    """

    peak_bytes: float
    rises: FloatArray
    killed: bool = False
    input_size: float = math.nan


class MemoryBounds(NamedTuple):
    """What a class promises.

    Attributes
    ----------
    runs
        Earlier runs that came to their end, of those that are compared.
    peak_bytes
        What a run stays below; NaN where nothing is promised.
    rises
        float64 (AGES,): what the next rise stays below, as a ratio to the largest use of late; infinite where too few
        runs became that old.
    least_bytes
        Where nothing is promised: what a killed run showed to be needed; 0 without one.
    by_input
        The peak is that of runs with this one's input.
    """

    runs: int
    peak_bytes: float
    rises: FloatArray
    least_bytes: float = 0.0
    by_input: bool = False


NO_BOUNDS = MemoryBounds(0, np.nan, np.full(AGES, np.inf))


class MemoryOfRuns(SlotArrays):
    """Memory of many runs under way.

    Attributes
    ----------
    age_steps
        Samples since it was first seen, gaps counted.
    largest_bytes
        The largest use so far, 0 before the first.
    octave_bytes
        (n, 2): the largest use in the last doubling of its age, and since; 0 where nothing was seen.
    rises
        (n, AGES): see `RunMemory`.
    """

    age_steps: IntArray
    largest_bytes: FloatArray
    octave_bytes: FloatArray
    rises: FloatArray
    lately_before: FloatArray

    def __init__(self, slots: int = 0) -> None:
        of_age = {"age_steps": 0, "rises": np.zeros(AGES), "lately_before": np.zeros(MOST_LEAD)}
        super().__init__({**of_age, "largest_bytes": 0.0, "octave_bytes": np.zeros(2)}, slots)

    def observe(self, slots: IntArray, memory_bytes: FloatArray, lead_steps: int) -> None:
        """Take in the next sample of each container; NaN is a gap.

        Parameters
        ----------
        lead_steps
            Samples from the last one that a decision knows to the first one under it; `MOST_LEAD` are looked back at.
        """
        observe_memory(
            slots, memory_bytes, min(lead_steps, MOST_LEAD),
            self.age_steps, self.largest_bytes, self.octave_bytes, self.lately_before, self.rises,
        )  # fmt: skip

    def observe_again(self, slots: IntArray, memory_bytes: FloatArray) -> None:
        """Take in more of the latest sample of each container; one may stand there several times."""
        np.maximum.at(self.largest_bytes, slots, memory_bytes)
        np.maximum.at(self.octave_bytes[:, 1], slots, memory_bytes)

    def recent_peak_bytes(self, slots: IntArray) -> FloatArray:
        """float64 (m,): the largest use since it was a quarter to half as old; 0 where nothing was seen."""
        lately: FloatArray = self.octave_bytes[slots].max(axis=1)
        return lately

    def run(self, slot: int) -> RunMemory:
        """What a run leaves behind when it ends now."""
        return RunMemory(float(self.largest_bytes[slot]), self.rises[slot].copy())

    def killed_run(self, slot: int, needed_bytes: float) -> RunMemory:
        """What a run leaves behind that was killed now, and is taken to have needed so much."""
        ended, recent_peak_bytes = self.run(slot), float(self.recent_peak_bytes(np.array([slot]))[0])
        rise = needed_bytes / recent_peak_bytes if recent_peak_bytes > 0.0 else 0.0
        rises = np.where(ended.rises > 0.0, np.fmax(ended.rises, rise), 0.0)
        return RunMemory(max(needed_bytes, ended.peak_bytes), rises, killed=True)


class ClassMemory:
    """What earlier runs of a class leave behind: the latest of them, oldest first.

    Parameters
    ----------
    runs
        As `add` takes them.

    Attributes
    ----------
    peaks_bytes, rises, killed, input_sizes
        float64 (runs,) and (runs, AGES), bool (runs,), float64 (runs,): see `RunMemory`.
    """

    def __init__(self, runs: Iterable[RunMemory] = ()) -> None:
        self.peaks_bytes, self.rises, self.killed = np.zeros(0), np.zeros((0, AGES)), np.zeros(0, bool)
        self.input_sizes = np.zeros(0)
        self._bounds: dict[tuple[float, float | None], MemoryBounds] = {}
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return len(self.peaks_bytes)

    def __iter__(self) -> Iterator[RunMemory]:
        sizes = self.input_sizes.tolist()
        return map(RunMemory, self.peaks_bytes.tolist(), self.rises, self.killed.tolist(), sizes)

    def add(self, run: RunMemory) -> None:
        """A run came to its end, or was killed."""
        self.peaks_bytes = np.append(self.peaks_bytes, run.peak_bytes)[-MAX_RUNS:]
        self.rises = np.concatenate([self.rises, run.rises[np.newaxis]])[-MAX_RUNS:]
        self.killed = np.append(self.killed, run.killed)[-MAX_RUNS:]
        self.input_sizes = np.append(self.input_sizes, run.input_size)[-MAX_RUNS:]
        self._bounds.clear()

    def bounds(self, target_kills: float, input_size: float = math.nan) -> MemoryBounds:
        """What the next run stays below with a chance of all but `target_kills`.

        Parameters
        ----------
        input_size
            The next run's; NaN where it tells none, and then all earlier ones are compared as they were.
        """
        key = target_kills, None if math.isnan(input_size) else input_size
        if key not in self._bounds:
            if len(self._bounds) >= MOST_INPUTS:
                self._bounds.clear()
            self._bounds[key] = self._bound(target_kills, input_size)
        return self._bounds[key]

    def _bound(self, target_kills: float, input_size: float) -> MemoryBounds:
        told = ~np.isnan(self.input_sizes)
        by_input = not math.isnan(input_size) and int(np.count_nonzero(told & ~self.killed)) >= FEWEST_RUNS
        compared = told if by_input else np.ones(len(self), bool)
        sizes, peaks_bytes = self.input_sizes[compared], self.peaks_bytes[compared]
        ended = int(np.count_nonzero(compared & ~self.killed))
        if ended < _fewest(target_kills) or (by_input and input_size > FARTHEST * sizes.max()):
            least_bytes = float(self.peaks_bytes[self.killed].max(initial=0.0))
            return NO_BOUNDS._replace(runs=ended, least_bytes=least_bytes, by_input=by_input)
        if by_input:
            scaled = peaks_with(max(input_size, float(sizes.min()) / FARTHEST), sizes, peaks_bytes)
            # A size that is none, as 1e-300, must not have a line foretell next to nothing, or without end.
            peaks_bytes = np.clip(scaled, peaks_bytes.min() / FARTHEST, FARTHEST * peaks_bytes.max())
        of_ages = np.array([_bound(column[column > 0], target_kills) for column in self.rises.T])
        return MemoryBounds(ended, _bound(peaks_bytes, target_kills), of_ages, by_input=by_input)


def peaks_with(input_size: float, input_sizes: FloatArray, peaks_bytes: FloatArray) -> FloatArray:
    """The peaks of n runs as they would be with another input.

    Of each the ratio to what the line through all others foretells is kept (leave-one-out, as the jackknife+ of Barber,
    Candes, Ramdas and Tibshirani, 2021): a line through itself would flatter it. Lines neither fall nor start below
    zero: then the mean, or the line through the origin, is taken. So it is where the others have one input.

    Parameters
    ----------
    input_size
        What the other input is.
    input_sizes, peaks_bytes
        float64 (n,): of three runs and more; sizes are positive.

    Returns
    -------
    float64 (n,)
        Bytes.
    """
    scale, n = float(input_sizes.mean()), len(input_sizes) - 1
    x, y = np.maximum(input_sizes / scale, LEAST_INPUT), peaks_bytes
    # Of all but one: sums over all, less its own.
    sum_x, sum_y, sum_xx, sum_xy = (values.sum() - values for values in (x, y, x * x, x * y))
    spread = n * sum_xx - sum_x**2
    differ = spread > ROUNDED * n * (x * x).sum()
    slope = np.where(differ, (n * sum_xy - sum_x * sum_y) / np.where(differ, spread, 1.0), 0.0)
    slope = np.maximum(slope, 0.0)
    start = (sum_y - slope * sum_x) / n
    slope, start = np.where(start < 0.0, sum_xy / sum_xx, slope), np.maximum(start, 0.0)
    scaled: FloatArray = (start + slope * (input_size / scale)) * y / (start + slope * x)
    return scaled


def memory_targets(
    age_steps: IntArray,
    largest_bytes: FloatArray,
    recent_peak_bytes: FloatArray,
    declared_bytes: FloatArray,
    peak_bytes: FloatArray,
    rises: FloatArray,
    stranger_waits_steps: float,
    stranger_margin: float = NO_BOUNDS_MARGIN,
) -> FloatArray:
    """What each run needs until the next decision is in force.

    Parameters
    ----------
    age_steps, largest_bytes, recent_peak_bytes
        (n,): samples seen, the largest of them and the largest of late, 0 before the first.
    declared_bytes
        float64 (n,): NaN where nothing was declared.
    peak_bytes, rises
        float64 (n,) and (n, AGES), or (AGES,) for all: `MemoryBounds` of each run's class.
    stranger_waits_steps
        How long what was declared stays where a class promises nothing.
    stranger_margin
        How far above its own largest use a run is kept from then on: a factor.

    Returns
    -------
    float64 (n,)
        NaN where nothing was declared, promised or seen.
    """
    doublings = np.log2(np.maximum(age_steps, 1)).astype(np.int64)
    column = np.minimum(np.maximum(doublings - SLOWER, 0), AGES - 1)
    # Memory that only ever fell may do so later, or never: what was used of late stays allowed.
    rise = np.maximum(np.broadcast_to(rises, (len(column), AGES))[np.arange(len(column)), column], 1.0)
    known = (age_steps >= GROWN_UP_STEPS) & (recent_peak_bytes > 0.0)
    # 0 x infinity where nothing is known yet: replaced by the class's peak.
    following = np.where(known, np.where(known, recent_peak_bytes, 1.0) * rise, np.inf)
    promised = np.where(following < peak_bytes, following, np.maximum(peak_bytes, largest_bytes * OWN_PEAK_MARGIN))
    waits = (age_steps < stranger_waits_steps) & ~np.isnan(declared_bytes)
    own = np.where(largest_bytes > 0, largest_bytes * stranger_margin, declared_bytes)
    targets: FloatArray = np.where(np.isnan(peak_bytes), np.where(waits, declared_bytes, own), promised)
    return targets


def _bound(values: FloatArray, target: float) -> float:
    """What the next one of the same kind stays below; infinite where too few are known.

    With n values the k-th smallest is not exceeded with a chance of k / (n + 1), whatever their distribution.
    """
    n = len(values)
    if n < _fewest(target):
        return np.inf
    place = min(int(np.ceil((n + 1) * (1.0 - target / BOUNDS))), n)
    return float(np.sort(values)[place - 1]) * (1.0 + MARGIN * _strictness(target) + SMALL_SAMPLE_MARGIN / n)


def _strictness(target: float) -> float:
    """How many times a tenth was taken of `LOOSE` to come to this share of the runs: 1 for one in a hundred.

    What the largest of n runs promises is n / (n + 1), whatever is asked for: beyond that only a margin can go.
    """
    return float(np.clip(np.log10(LOOSE / max(target, LOOSE / 10.0**STRICTEST)), 0.0, STRICTEST))


def _fewest(target: float) -> int:
    """So many runs a class must have shown."""
    return max(FEWEST_RUNS, round(FEWEST_RUNS * _strictness(target)))
