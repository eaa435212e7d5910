"""CPU forecast from earlier runs of the same workload class.

Runs of a class go through the same stages at about the same levels, but at different speeds, slower still on a shared
node. So a run is not aligned with earlier ones by age alone, but by its nearest neighbour in each of them: the moment
most similar in age, work done, levels, and time since CPU jumped. What follows there is the forecast. Before the first
sample the age decides. With few similar runs a run is not given less than it uses: lowering CPU late costs a little,
lowering it early starves.

Memory has hard bounds from peaks and rises instead (`memory_runs`), since a shortage kills.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.base.records import CPU, MEMORY, VIOLATION_TOLERANCE, FloatArray, IntArray
from recommender.kernels.experts import EXPERTS
from recommender.kernels.runs import peak_after_nearest
from recommender.policies.demand_curve import POINTS, DemandCurve
from recommender.policies.evidence import LIGHT_SHARE, Turnover, typical_s
from recommender.policies.memory_runs import ClassMemory

MAX_RUNS = 32  # latest runs kept of a class, which changes with its code

CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES = 0.02, 16.0 * 2**20
"""Added to levels before their logarithms are compared: differences below these do not matter."""

SCALES = np.array([0.25, 0.35, 0.8, 0.25, 0.25, 0.25])
"""Scale of the distance in age, work done, CPU, memory, peak memory so far, and time since CPU jumped, all natural
logarithms. Runs of a class agree best in memory and in the order of their stages, worst in CPU."""

JUMP = 1.0  # a change of CPU by more than this between two samples, natural logarithm, is a jump; less is noise
MAX_DISTANCE = 3.0  # a run whose nearest moment is farther away is not similar

FALL_SAMPLES = 3
"""With fewer similar runs than below, one that uses more than the forecast is given its peak over so many samples."""

MIN_RUNS_TO_FALL = 6  # similar runs needed to lower CPU below the present use
MAX_AGE_RATIO = 1.5  # earlier runs tell nothing about a run of more than this many times their duration

INITIAL_LEVEL, LOWEST_LEVEL, HIGHEST_LEVEL = 0.95, 0.5, 0.99
"""Quantile, over the earlier runs, of peak CPU in the coming window: its initial value, and its limits."""

STEP_SIZE = 0.02  # of adaptive conformal inference (Gibbs and Candes, NeurIPS 2021, equation 2) on the level

TARGET_SHARE = 0.5
"""Share of the accepted violations to aim at: with all of them, every other run of a few dozen samples would have more
than are accepted."""


PRIOR_SAMPLES = 200.0
"""Weight of what experts cost elsewhere against what they cost in runs of the class, in samples."""

MOST_SAMPLES = 1000.0
"""A longer run tells no more of the experts than one of this length: it would outweigh all others."""


class Progress(NamedTuple):
    """How far a run has come."""

    curve: DemandCurve | None  # its use so far; None before the first sample
    seen_s: float  # age at the end of its latest sample
    age_s: float  # age now


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """Forecast for a run from earlier ones."""

    # To allocate for the whole horizon, and for its beginning.
    cpu_cores: float
    soon_cores: float
    # Number of similar runs, and of all.
    alike: int
    runs: int

    @property
    def foresees(self) -> bool:
        """Similar runs are enough for less CPU than is used now, and for a lower limit."""
        return self.alike >= MIN_RUNS_TO_FALL


class ClassRuns:
    """The finished runs of one container name of a workload class; `level` is the quantile at which CPU is allocated.

    `kept` are the latest, `runs` those of them that tell about the next one (see `evidence`): all but the light ones,
    which last less than `light_s`.

    `losses` is what each expert (`kernels.experts`) has cost in them, `charged` the mean over all experts in the same
    samples, float64 (EXPERTS,) each, and `samples` their number: some classes are too unlike to be worth following.

    `withheld`: a container of it used much more CPU once there was more, and none since has shown that its node is not
    full.

    `memory` is that of these runs and of older ones, `typical_s` the median duration (0 without runs), `bucket_s` the
    width of the widest buckets: only the peak within one is known.
    """

    def __init__(self, runs: Iterable[DemandCurve] = (), level: float = INITIAL_LEVEL) -> None:
        self.level = min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL)
        self.losses, self.charged, self.samples = np.zeros(EXPERTS), np.zeros(EXPERTS), 0.0
        self.memory, self._turnover = ClassMemory(), Turnover()
        self.withheld = False
        self.replace(runs)

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, run: DemandCurve) -> None:
        """Add a run that ended."""
        self.replace([*self.kept, run])

    def replace(self, runs: Iterable[DemandCurve]) -> None:
        """Replace all runs by these, oldest first."""
        self.kept: list[DemandCurve] = []
        for run in (without_gaps(run) for run in runs if len(run.levels)):
            self.kept.append(run)
            if len(self.kept) > MAX_RUNS:
                del self.kept[self._turnover.displaced(self.durations_s)]
        self.light_s = LIGHT_SHARE * typical_s(self.durations_s) if self.kept else 0.0
        self.runs = [run for run in self.kept if not run.duration_s < self.light_s]
        self.typical_s = float(np.median([run.duration_s for run in self.runs])) if self.runs else 0.0
        self.bucket_s = max((run.step_s for run in self.runs), default=0.0)
        self._packed: _PackedRuns | None = None

    @property
    def durations_s(self) -> FloatArray:
        """float64 (n,): durations of the runs that are kept."""
        return np.array([run.duration_s for run in self.kept])

    def judge(self, violated: bool, target_violation: float) -> None:
        """Adjust the level by whether a sample exceeded the CPU that the class decided."""
        level = self.level + STEP_SIZE * (float(violated) - TARGET_SHARE * target_violation)
        self.level = min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL)

    def charge(self, losses: FloatArray, charged: FloatArray, samples: float) -> None:
        """Add what each expert has cost in a run, and the mean over all of them, float64 (EXPERTS,) each."""
        share = min(1.0, MOST_SAMPLES / max(samples, 1.0))
        self.losses, self.charged = self.losses + share * losses, self.charged + share * charged
        self.samples += share * samples

    def expected_losses(self, elsewhere: FloatArray) -> FloatArray:
        """Losses of the experts in the next run relative to their mean, float64 (EXPERTS,), shrunk towards those in
        other classes."""
        most = float(self.charged.max())
        prior = PRIOR_SAMPLES * most / self.samples if most > 0.0 else 1.0
        shrunk: FloatArray = (self.losses + prior * elsewhere) / (self.charged + prior)
        return shrunk

    def forecast(self, progress: Progress, soon_s: float, ahead_s: float) -> ClassForecast | None:
        """Forecast the CPU of a run for `soon_s` and for `ahead_s` from now; None without a similar run."""
        if self._packed is None:
            self._packed = _packed(self.runs)
        here, passed_s, used_cores = np.empty(0, np.float32), progress.age_s, np.zeros(1, np.float32)
        if progress.curve is not None and np.isfinite(progress.curve.levels[-1]).all():
            whole = without_gaps(progress.curve)
            here = _features_of(whole, progress.seen_s)[-1]
            passed_s, used_cores = passed_s - progress.seen_s, whole.levels[-FALL_SAMPLES:, CPU]
        squared, peak_cores = np.empty(len(self.runs)), np.empty((len(self.runs), 2))
        peak_after_nearest(here, *self._packed[:4], passed_s, np.array([soon_s, ahead_s]), squared, peak_cores)
        alike = (squared < MAX_DISTANCE**2) & (progress.age_s < MAX_AGE_RATIO * self._packed.duration_s)
        if not alike.any():
            return None
        weights, n_alike = np.exp(-0.5 * squared[alike]), int(alike.sum())
        soon_cores, cpu_cores = _weighted_quantiles(peak_cores[alike], weights, self.level).tolist()
        if n_alike < MIN_RUNS_TO_FALL:
            soon_cores, cpu_cores = (_own_use_if_above(used_cores, cores) for cores in (soon_cores, cpu_cores))
        return ClassForecast(cpu_cores, soon_cores, n_alike, len(self.runs))

    def expected(self) -> DemandCurve | None:
        """Expected use by the time since the start: mean CPU and peak memory over the runs; None without runs."""
        if not self.runs:
            return None
        duration_s = max(run.duration_s for run in self.runs)
        step_s = max(min(run.step_s for run in self.runs), duration_s / POINTS)
        moments = step_s * np.arange(np.ceil(duration_s / step_s - 1e-9))
        levels = np.full((len(self.runs), len(moments), 2), np.nan, np.float32)
        for number, run in enumerate(self.runs):
            at = (moments / run.step_s).astype(np.int64)
            known = at < len(run.levels)
            levels[number, known] = run.levels[at[known]]
            # Of all buckets that begin within the step: a short run has narrower ones than a long one.
            levels[number, known, MEMORY] = np.maximum.reduceat(run.levels[:, MEMORY], at[known])
        running = ~np.isnan(levels[:, :, CPU])
        cpu = np.where(running, levels[:, :, CPU], 0.0).sum(axis=0) / np.maximum(running.sum(axis=0), 1)
        wanted_core_s = sum(float(run.levels[:, CPU].sum()) * run.step_s for run in self.runs)
        used_share = sum(run.used_core_s for run in self.runs) / wanted_core_s if wanted_core_s else 0.0
        levels = np.column_stack([cpu, np.nanmax(levels[:, :, MEMORY], axis=0)])
        return DemandCurve(float(step_s), levels, used_share * float(cpu.mean()))


class _PackedRuns(NamedTuple):
    """Runs as arguments of `peak_after_nearest`, and their durations."""

    features: NDArray[np.float32]
    cpu_cores: NDArray[np.float32]
    starts: IntArray
    step_s: FloatArray
    duration_s: FloatArray


def _packed(runs: Sequence[DemandCurve]) -> _PackedRuns:
    starts = np.cumsum([0, *(len(run.levels) for run in runs)])
    features = np.concatenate([np.empty((0, len(SCALES)), np.float32), *map(_features_of, runs)])
    cpu_cores = np.concatenate([np.empty(0, np.float32), *(run.levels[:, CPU] for run in runs)])
    step_s = np.array([run.step_s for run in runs], np.float64)
    return _PackedRuns(features, cpu_cores, starts, step_s, np.diff(starts) * step_s)


def without_gaps(run: DemandCurve) -> DemandCurve:
    """Fill gaps: CPU from the next sample, a mean over the time before it; memory from the larger neighbour."""
    seen = np.flatnonzero(~np.isnan(run.levels[:, CPU]))
    if len(seen) == len(run.levels):
        return run
    if not len(seen):
        return replace(run, levels=np.zeros((len(run.levels), 2), np.float32))
    places = np.arange(len(run.levels))
    before = seen[np.maximum(np.searchsorted(seen, places, side="right") - 1, 0)]
    after = seen[np.minimum(np.searchsorted(seen, places), len(seen) - 1)]
    memory = np.maximum(run.levels[before, MEMORY], run.levels[after, MEMORY])
    return replace(run, levels=np.column_stack([run.levels[after, CPU], memory]))


def _features_of(run: DemandCurve, seen_s: float | None = None) -> NDArray[np.float32]:
    """float32 (n, 6): features of a run after each bucket, divided by `SCALES`; or (1, 6): of one now, at its age."""
    cpu, memory = run.levels[:, CPU].astype(np.float64), run.levels[:, MEMORY].astype(np.float64)
    age = run.step_s * np.arange(1.0, len(cpu) + 1.0)
    work = np.cumsum(cpu) * run.step_s
    # The width of one bucket is added to times and work: differences below it are chance.
    features = np.column_stack(
        [
            age + run.step_s,
            work + run.step_s * CPU_FLOOR_CORES * 10.0,
            cpu + CPU_FLOOR_CORES,
            memory + MEMORY_FLOOR_BYTES,
            np.maximum.accumulate(memory) + MEMORY_FLOOR_BYTES,
            run.step_s * _samples_since_jump(cpu) + run.step_s,
        ]
    )
    if seen_s is not None:
        features = features[-1:]
        features[0, 0] = seen_s + run.step_s
    scaled: NDArray[np.float32] = (np.log(features) / SCALES).astype(np.float32)
    return scaled


def _samples_since_jump(cpu_cores: FloatArray) -> FloatArray:
    """float64 (n,): samples since CPU jumped, including the present one.

    >>> _samples_since_jump(np.array([0.1, 0.12, 0.9, 1.0, 0.95, 0.1])).tolist()
    [1.0, 2.0, 1.0, 2.0, 3.0, 1.0]
    """
    level, numbers = np.log(cpu_cores + CPU_FLOOR_CORES), np.arange(len(cpu_cores))
    jumps = np.concatenate([[True], np.abs(np.diff(level)) > JUMP])
    samples: FloatArray = (numbers - np.maximum.accumulate(np.where(jumps, numbers, 0)) + 1).astype(np.float64)
    return samples


def _own_use_if_above(used_cores: NDArray[np.float32], cpu_cores: float) -> float:
    """The forecast, or the peak of the latest samples while the run uses more than the forecast."""
    return cpu_cores if used_cores[-1] <= cpu_cores * VIOLATION_TOLERANCE else float(used_cores.max())


def _weighted_quantiles(values: FloatArray, weights: FloatArray, share: float) -> FloatArray:
    """float64 (w,): in each column of (n, w) the smallest value with at least `share` of the weight at or below it."""
    order = values.argsort(axis=0, kind="stable")
    below = weights[order].cumsum(axis=0) / weights.sum() < share - 1e-12
    place = np.minimum(below.sum(axis=0), len(values) - 1)
    columns = np.arange(len(place))
    quantiles: FloatArray = values[order[place, columns], columns]
    return quantiles
