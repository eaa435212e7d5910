"""Jobs that train and evaluate by turns, in the simulated cluster: what is saved, and which needs were met ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recommender import model as models
from recommender.engine.options import Options
from recommender.judging import ClusterRules, ReplayOptions
from recommender.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray, UsageSeries
from recommender.simulate.rows import CLASS_PEAK, CLASS_RUNS, PHASEWISE, STATIC, VPA, Cluster, play_rows

START = 1_700_000_000
PACE = 0.15
"""Jobs are up to so much slower or faster than the middling one: their waits, not their work."""

NOISE = 0.05
LOAD, TRAIN, EVALUATE = 0.03, 0.12, 0.95
"""Cores."""

DECLARED_CORES, DECLARED_GIB, GIB = 1.0, 1.25, 2.0**30
CYCLE_S = 600.0

Decisions = tuple[IntArray, FloatArray]
"""Unix seconds of the first sample that each amount was in force at, and float64 (n, 2) cores and bytes."""


@dataclass(frozen=True)
class World:
    """Jobs of one kind.

    Attributes
    ----------
    epoch_s
        How long an epoch takes, in the middle of the jobs.
    step_s, delay_s
        Between samples; and how long a change takes.
    epochs
        The fewest and the most of a job.
    jobs
        One after the other.
    jitter
        Standard deviation of how long the stages of one job take, beside `PACE`: a share.
    known
        They are of one class; otherwise each is a stranger.
    """

    epoch_s: float
    step_s: float
    delay_s: float
    epochs: tuple[int, int] = (3, 5)
    jobs: int = 30
    jitter: float = 0.0
    known: bool = True

    def __str__(self) -> str:
        fewest, most = self.epochs
        return f"{fewest} to {most} epochs of {self.epoch_s:.0f} s{'' if self.known else ', of no class'}"


MANY = (30, 40)
WORLDS = (
    World(80.0, 10.0, 20.0),
    World(288.0, 10.0, 30.0),
    World(1152.0, 15.0, 30.0),
    *(
        World(epoch_s, step_s, 30.0, MANY, jobs=12, jitter=0.05, known=known)
        for epoch_s, step_s in ((288.0, 10.0), (1152.0, 15.0))
        for known in (True, False)
    ),
)


@dataclass(frozen=True)
class Result:
    """What came of a row.

    Attributes
    ----------
    saved, violation
        Of the CPU that was declared; of the samples.
    ahead, late, kept
        Evaluations that had what they need when they began, after there had been less of it while the job trained; that
        had it later or never; and that had it all the time.
    lead_s
        How long before they began those ahead were given it: the median; NaN without any.
    """

    saved: float
    violation: float
    ahead: int
    late: int
    kept: int
    lead_s: float


def made(world: World, seed: int) -> list[UsageSeries]:
    """Jobs of one class, one after the other; an epoch evaluates for a sixth of its time."""
    chance, start, found = np.random.default_rng(seed), START, list[UsageSeries]()
    epoch_samples = world.epoch_s / world.step_s
    for number in range(world.jobs):
        pace, size = chance.uniform(1.0 - PACE, 1.0 + PACE, 2)
        load, n = round(epoch_samples * pace), int(chance.integers(world.epochs[0], world.epochs[1] + 1))
        samples = np.tile([epoch_samples * 5 / 6 * pace, epoch_samples / 6 * size], n)
        if world.jitter:
            samples *= chance.normal(1.0, world.jitter, len(samples))
        cores = np.repeat([LOAD, *[TRAIN, EVALUATE] * n], [load, *np.rint(samples).astype(np.int64)])
        memory_gib = np.concatenate([np.linspace(0.2, size, load), np.full(len(cores) - load, 0.8 * size)])
        usage = np.column_stack([cores, memory_gib * GIB]) * chance.lognormal(0.0, NOISE, (len(cores), 2))
        requests = np.tile([DECLARED_CORES, DECLARED_GIB * GIB], (len(cores), 1))
        at_s = start + (np.arange(len(cores)) * world.step_s).astype(np.int64)
        of = "job" if world.known else None
        found.append(UsageSeries(f"job-{number}", at_s, world.step_s, usage, requests, workload=of))
        start = int(at_s[-1] + CYCLE_S)
    return found


def compare(world: World, seed: int = 0) -> dict[str, Result]:
    """Each row of a simulated cluster; the bundled model knows no such jobs."""
    series, bundled = made(world, seed), models.load(models.BUNDLED)
    options = ReplayOptions(cycle_samples=round(CYCLE_S / world.step_s))
    cluster = Cluster(lambda _: bundled, options, ClusterRules(world.delay_s), world.step_s, Options())
    rows = (STATIC, VPA, CLASS_PEAK, CLASS_RUNS, PHASEWISE) if world.known else (STATIC, VPA, PHASEWISE)
    played, _ = play_rows(rows, series, cluster)
    judged = [one for one in series if one.container in played]
    return {row: result([(one, played[one.container][row].decisions) for one in judged]) for row in rows}


def result(runs: Sequence[tuple[UsageSeries, Decisions]]) -> Result:
    """What came of jobs that were given so much."""
    declared = given = above = samples = 0.0
    ahead = late = kept = 0
    leads_s: list[float] = []
    for series, decisions in runs:
        used, had = series.usage[:, CPU], _had(series, decisions)
        judged = ~np.isnan(had)
        declared, given = declared + DECLARED_CORES * int(judged.sum()), given + float(np.nansum(had))
        above, samples = above + int((used > had * VIOLATION_TOLERANCE)[judged].sum()), samples + int(judged.sum())
        evaluates = used > (TRAIN + EVALUATE) / 2
        for begin in np.flatnonzero(evaluates[1:] & ~evaluates[:-1]) + 1:
            trains = _training_before(int(begin), evaluates)
            if np.isnan(had[trains]).any():
                continue
            lower = np.flatnonzero(had[trains] < EVALUATE)
            if not len(lower):
                kept += 1
            elif had[begin] < EVALUATE:
                late += 1
            else:
                ahead += 1
                leads_s.append((len(had[trains]) - 1 - lower[-1]) * series.step_s)
    lead_s = float(np.median(leads_s)) if leads_s else float("nan")
    return Result(1.0 - given / declared, above / samples, ahead, late, kept, lead_s)


def _training_before(begin: int, evaluates: np.ndarray) -> slice:
    before = np.flatnonzero(evaluates[:begin])
    return slice(int(before[-1]) + 1 if len(before) else 0, begin)


def _had(series: UsageSeries, decisions: Decisions) -> FloatArray:
    """float64 (n,): cores in force at each sample; NaN before the first."""
    since_s, amounts = decisions
    place = np.searchsorted(since_s, series.timestamps, side="right") - 1
    return np.where(place >= 0, amounts[np.maximum(place, 0), CPU], np.nan)
