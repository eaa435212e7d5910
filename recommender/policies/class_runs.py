"""What earlier runs of a workload class needed from the point on where a run is now.

Runs of one class go through the same stages at about the same levels, but faster or slower, and slower still where they
share a node. So the point is not found by the clock alone: in each earlier run the moment is looked for whose age, work
done and levels are most alike, and for how long CPU has been about as it is, and that run's next samples say what may
come. Before the first sample the age decides. Less than it uses is given to a run only once it uses less: earlier runs
tell when a stage is over, this one may be unlike them, and to fall late costs a little where to fall early starves.

That is for CPU. Memory that is missed kills: what the runs promise of it is told by their peaks and rises alone
(`memory_runs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.kernels.earlier_runs import look_ahead
from recommender.policies.demand_curve import POINTS, DemandCurve
from recommender.policies.memory_runs import ClassMemory
from recommender.records import CPU, MEMORY, VIOLATION_TOLERANCE, FloatArray, IntArray

MAX_RUNS = 32
"""The latest ones are kept: a class changes with its code."""

CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES = 0.02, 16.0 * 2**20
"""Levels are compared as logarithms above these; use below them is the same to us."""

SCALES = np.array([0.25, 0.35, 0.8, 0.25, 0.25, 0.25])
"""What makes a difference of one in age, work done, CPU, memory, largest memory so far, and time since CPU jumped:
natural logarithms. Runs of a class agree best in memory and in their stages' order, worst in CPU."""

JUMP = 1.0
"""From one sample to the next, natural logarithm: CPU that changes by less is about as it was, noisy as it is."""

UNLIKE = 3.0
"""A run whose nearest moment is farther than this tells nothing."""

FALLEN = 3
"""Less use in so many samples is a fall; at once where it is no more than earlier runs had then."""

BELIEVED = 6
"""So many earlier runs like this one are believed that use will fall; with fewer it must have fallen."""

OUTLIVED = 1.5
"""A run this many times as old as an earlier one became is not told anything by it."""

INITIAL_LEVEL, LOWEST_LEVEL, HIGHEST_LEVEL = 0.95, 0.5, 0.99
"""Quantile of the largest use in the coming window over the earlier runs: CPU at the start, and how far it may move."""

PACE = 0.02
"""How fast the level follows violations: adaptive conformal inference (Gibbs and Candes, NeurIPS 2021), equation 2."""

AIM = 0.5
"""Of the violations that are accepted, so many are aimed at: a run has a few dozen samples at most, so that with all of
them every other run would have more than are accepted."""


class Progress(NamedTuple):
    """Where a run is.

    Attributes
    ----------
    curve
        What it used so far; None before the first sample.
    seen_s
        Its age at the end of its latest sample, seconds since the start.
    age_s
        Its age now.
    """

    curve: DemandCurve | None
    seen_s: float
    age_s: float


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """What earlier runs say of a run.

    Attributes
    ----------
    cpu_cores, soon_cores
        To allocate for all of the time that was asked for, and for its beginning.
    alike, runs
        How many of the runs were like this one, of how many.
    """

    cpu_cores: float
    soon_cores: float
    alike: int
    runs: int


class ClassRuns:
    """The finished runs of one container name of a workload class.

    Parameters
    ----------
    runs
        Oldest first; the latest `MAX_RUNS` are kept.
    level
        Quantile at which CPU is allocated.

    Attributes
    ----------
    memory
        What they, and more of them, left behind.
    typical_s
        How long half of the runs take at most; 0 without runs.
    bucket_s
        The widest that one of them is kept in: of what is shorter only the largest use is known.
    """

    def __init__(self, runs: Iterable[DemandCurve] = (), level: float = INITIAL_LEVEL) -> None:
        self.level = min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL)
        self.memory = ClassMemory()
        self._known: _Known | None = None
        self.replace(runs)

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, run: DemandCurve) -> None:
        """A run came to its end."""
        self.replace([*self.runs, run])

    def replace(self, runs: Iterable[DemandCurve]) -> None:
        """Know these instead, oldest first."""
        self.runs = [without_gaps(run) for run in runs if len(run.levels)][-MAX_RUNS:]
        self.typical_s = float(np.median([run.duration_s for run in self.runs])) if self.runs else 0.0
        self.bucket_s = max((run.step_s for run in self.runs), default=0.0)
        self._known = None

    def judge(self, violated: bool, target_violation: float) -> None:
        """A sample of a run that the class decided for was, or was not, above its CPU: the level follows."""
        moved = self.level + PACE * (float(violated) - AIM * target_violation)
        self.level = min(max(moved, LOWEST_LEVEL), HIGHEST_LEVEL)

    def forecast(self, progress: Progress, soon_s: float, ahead_s: float) -> ClassForecast | None:
        """The CPU a run needs soon, and for so long; None when no earlier run was like it, or it outlived them all."""
        if self._known is None:
            self._known = _known(self.runs)
        here, passed_s, used_cores = np.empty(0, np.float32), progress.age_s, np.zeros(1, np.float32)
        if progress.curve is not None and np.isfinite(progress.curve.levels[-1]).all():
            whole = without_gaps(progress.curve)
            here = _points_of(whole, progress.seen_s)[-1]
            passed_s, used_cores = passed_s - progress.seen_s, whole.levels[-FALLEN:, CPU]
        squares, largest_cores = np.empty(len(self.runs)), np.empty((len(self.runs), 2))
        look_ahead(here, *self._known[:4], passed_s, np.array([soon_s, ahead_s]), squares, largest_cores)
        alike = (squares < UNLIKE**2) & (progress.age_s < OUTLIVED * self._known.duration_s)
        if not alike.any():
            return None
        likeness, n_alike = np.exp(-0.5 * squares[alike]), int(alike.sum())
        soon_cores, cpu_cores = (_weighted_quantile(cores, likeness, self.level) for cores in largest_cores[alike].T)
        if n_alike < BELIEVED:
            soon_cores, cpu_cores = (_unless_used(used_cores, cores) for cores in (soon_cores, cpu_cores))
        return ClassForecast(cpu_cores, soon_cores, n_alike, len(self.runs))

    def expected(self) -> DemandCurve | None:
        """What a run is expected to use by the time since its start: mean CPU and largest memory; None without runs."""
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
        running = ~np.isnan(levels[:, :, CPU])
        cpu = np.where(running, levels[:, :, CPU], 0.0).sum(axis=0) / np.maximum(running.sum(axis=0), 1)
        wanted_core_s = sum(float(run.levels[:, CPU].sum()) * run.step_s for run in self.runs)
        used = sum(run.used_core_s for run in self.runs) / wanted_core_s if wanted_core_s else 0.0
        levels = np.column_stack([cpu, np.nanmax(levels[:, :, MEMORY], axis=0)])
        return DemandCurve(float(step_s), levels, used * float(cpu.mean()))


class _Known(NamedTuple):
    """Runs as `look_ahead` takes them, and how long each was."""

    points: NDArray[np.float32]
    cpu_cores: NDArray[np.float32]
    starts: IntArray
    step_s: FloatArray
    duration_s: FloatArray


def _known(runs: Sequence[DemandCurve]) -> _Known:
    starts = np.cumsum([0, *(len(run.levels) for run in runs)])
    points = np.concatenate([np.empty((0, len(SCALES)), np.float32), *map(_points_of, runs)])
    cpu_cores = np.concatenate([np.empty(0, np.float32), *(run.levels[:, CPU] for run in runs)])
    step_s = np.array([run.step_s for run in runs], np.float64)
    return _Known(points, cpu_cores, starts, step_s, np.diff(starts) * step_s)


def without_gaps(run: DemandCurve) -> DemandCurve:
    """What was not seen is taken from the samples around it.

    CPU is that of the next sample, which is a mean over the time before it; memory the larger of both neighbours.
    """
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


def _points_of(run: DemandCurve, seen_s: float | None = None) -> NDArray[np.float32]:
    """float32 (n, 6): where a run is after each bucket, in `SCALES`."""
    cpu, memory = run.levels[:, CPU].astype(np.float64), run.levels[:, MEMORY].astype(np.float64)
    age = run.step_s * np.arange(1.0, len(cpu) + 1.0)
    if seen_s is not None:
        age[-1] = seen_s
    work = np.cumsum(cpu) * run.step_s
    # One sample's width is added to times and work: differences below it are chance.
    points = np.column_stack(
        [
            np.log(age + run.step_s),
            np.log(work + run.step_s * CPU_FLOOR_CORES * 10.0),
            np.log(cpu + CPU_FLOOR_CORES),
            np.log(memory + MEMORY_FLOOR_BYTES),
            np.log(np.maximum.accumulate(memory) + MEMORY_FLOOR_BYTES),
            np.log(run.step_s * _steady_for(cpu) + run.step_s),
        ]
    )
    scaled: NDArray[np.float32] = (points / SCALES).astype(np.float32)
    return scaled


def _steady_for(cpu_cores: FloatArray) -> FloatArray:
    """float64 (n,): how many samples it is since CPU jumped, this one included.

    Examples
    --------
    >>> _steady_for(np.array([0.1, 0.12, 0.9, 1.0, 0.95, 0.1])).tolist()
    [1.0, 2.0, 1.0, 2.0, 3.0, 1.0]
    """
    level, numbers = np.log(cpu_cores + CPU_FLOOR_CORES), np.arange(len(cpu_cores))
    jumps = np.concatenate([[True], np.abs(np.diff(level)) > JUMP])
    steady: FloatArray = (numbers - np.maximum.accumulate(np.where(jumps, numbers, 0)) + 1).astype(np.float64)
    return steady


def _unless_used(used_cores: NDArray[np.float32], cpu_cores: float) -> float:
    """So much, or what a run used in its latest samples, while it uses more."""
    return cpu_cores if used_cores[-1] <= cpu_cores * VIOLATION_TOLERANCE else float(used_cores.max())


def _weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """The least value that at least `share` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    covered = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(covered, share - 1e-12)), len(values) - 1)])
