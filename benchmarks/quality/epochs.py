"""Jobs that train and evaluate in turns, in the simulated cluster: CPU saved, evaluations raised ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recommender.base.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray, UsageSeries
from recommender.engine.container_arrays import BY_CLASS, POLICIES
from recommender.engine.options import Options
from recommender.learning import model as models
from recommender.report.timeline_data import allocation_at
from recommender.simulate.judging import ClusterRules, ReplayOptions
from recommender.simulate.rows import CLASS_PEAK, PHASEWISE, STATIC, VPA, Cluster, play_rows

START = 1_700_000_000
PACE_VARIATION = 0.15
"""Largest relative deviation of the waits of a job from the average job; the work does not vary."""

NOISE = 0.05
LOAD, TRAIN, EVALUATE = 0.03, 0.12, 0.95
"""Cores."""

DECLARED_CORES, DECLARED_GIB, GIB = 1.0, 1.25, 2.0**30
CYCLE_S = 600.0

Decisions = tuple[IntArray, FloatArray]
"""Unix seconds of the first sample at which each amount was in force, and float64 (n, 2) cores and bytes."""


@dataclass(frozen=True)
class World:
    """A kind of job.

    `epoch_s`: Average duration of an epoch.
    `step_s`, `delay_s`: Sampling interval, and time until a change takes effect.
    `epochs`: Smallest and largest number of epochs of a job.
    `jobs`: Number of jobs, run one after the other.
    `jitter`: Relative standard deviation of the durations of stages within a job, in addition to `PACE_VARIATION`.
    `has_class`: Whether the jobs share a workload class; otherwise they have none.
    """

    epoch_s: float
    step_s: float
    delay_s: float
    epochs: tuple[int, int] = (3, 5)
    jobs: int = 30
    jitter: float = 0.0
    has_class: bool = True

    def __str__(self) -> str:
        fewest, most = self.epochs
        return f"{fewest} to {most} epochs of {self.epoch_s:.0f} s{'' if self.has_class else ', of no class'}"


MANY_EPOCHS = (30, 40)
WORLDS = (
    World(80.0, 10.0, 20.0),
    World(288.0, 10.0, 30.0),
    World(1152.0, 15.0, 30.0),
    *(
        World(epoch_s, step_s, 30.0, MANY_EPOCHS, jobs=12, jitter=0.05, has_class=has_class)
        for epoch_s, step_s in ((288.0, 10.0), (1152.0, 15.0))
        for has_class in (True, False)
    ),
)


@dataclass(frozen=True)
class Result:
    """Figures of a row.

    `saved`, `violation`: Share of the declared CPU that was saved; share of samples in violation.
    `ahead`, `late`, `kept`: Evaluations that had their CPU when they began after less during training; that got it
        later or never; and for which it was never lowered.
    `lead_s`: Median time by which those `ahead` were raised before they began; NaN without any.
    """

    saved: float
    violation: float
    ahead: int
    late: int
    kept: int
    lead_s: float


def simulated_jobs(world: World, seed: int) -> list[UsageSeries]:
    """Create the jobs, one after the other; a sixth of an epoch is evaluation."""
    chance, start, found = np.random.default_rng(seed), START, list[UsageSeries]()
    epoch_samples = world.epoch_s / world.step_s
    for number in range(world.jobs):
        pace, size = chance.uniform(1.0 - PACE_VARIATION, 1.0 + PACE_VARIATION, 2)
        load, n = round(epoch_samples * pace), int(chance.integers(world.epochs[0], world.epochs[1] + 1))
        samples = np.tile([epoch_samples * 5 / 6 * pace, epoch_samples / 6 * size], n)
        if world.jitter:
            samples *= chance.normal(1.0, world.jitter, len(samples))
        cores = np.repeat([LOAD, *[TRAIN, EVALUATE] * n], [load, *np.rint(samples).astype(np.int64)])
        memory_gib = np.concatenate([np.linspace(0.2, size, load), np.full(len(cores) - load, 0.8 * size)])
        usage = np.column_stack([cores, memory_gib * GIB]) * chance.lognormal(0.0, NOISE, (len(cores), 2))
        requests = np.tile([DECLARED_CORES, DECLARED_GIB * GIB], (len(cores), 1))
        at_s = start + (np.arange(len(cores)) * world.step_s).astype(np.int64)
        of = "job" if world.has_class else None
        found.append(UsageSeries(f"job-{number}", at_s, world.step_s, usage, requests, workload=of))
        start = int(at_s[-1] + CYCLE_S)
    return found


def compare(world: World, seed: int = 0) -> dict[str, Result]:
    """Run all rows of the simulated cluster; the bundled model has never seen such jobs."""
    series, bundled = simulated_jobs(world, seed), models.load(models.BUNDLED)
    options = ReplayOptions(cycle_samples=round(CYCLE_S / world.step_s))
    cluster = Cluster(lambda _: bundled, options, ClusterRules(world.delay_s), world.step_s, Options())
    rows = (STATIC, VPA, CLASS_PEAK, POLICIES[BY_CLASS], PHASEWISE) if world.has_class else (STATIC, VPA, PHASEWISE)
    played = play_rows(rows, series, cluster).containers
    judged = [one for one in series if one.container in played]
    return {row: judge([(one, played[one.container][row].decisions) for one in judged]) for row in rows}


def judge(runs: Sequence[tuple[UsageSeries, Decisions]]) -> Result:
    declared = given = above = samples = 0.0
    ahead = late = kept = 0
    leads_s: list[float] = []
    for series, decisions in runs:
        used, in_force = series.usage[:, CPU], allocation_at(series.timestamps, *decisions)[:, CPU]
        judged = ~np.isnan(in_force)
        declared, given = declared + DECLARED_CORES * int(judged.sum()), given + float(np.nansum(in_force))
        above, samples = above + int((used > in_force * VIOLATION_TOLERANCE)[judged].sum()), samples + int(judged.sum())
        evaluates = used > (TRAIN + EVALUATE) / 2
        for begin in np.flatnonzero(evaluates[1:] & ~evaluates[:-1]) + 1:
            before = np.flatnonzero(evaluates[:begin])
            trains = slice(int(before[-1]) + 1 if len(before) else 0, begin)
            if np.isnan(in_force[trains]).any():
                continue
            lower = np.flatnonzero(in_force[trains] < EVALUATE)
            if not len(lower):
                kept += 1
            elif in_force[begin] < EVALUATE:
                late += 1
            else:
                ahead += 1
                leads_s.append((len(in_force[trains]) - 1 - lower[-1]) * series.step_s)
    lead_s = float(np.median(leads_s)) if leads_s else float("nan")
    return Result(1.0 - given / declared, above / samples, ahead, late, kept, lead_s)
