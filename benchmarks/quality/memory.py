"""Memory judged by runs: memory saved net of the work lost to kills, and the share of runs killed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import orjson

from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, RunTally, UsageSeries
from recommender.engine.options import BandOptions
from recommender.policies.memory_runs import (
    NO_BOUNDS,
    ClassMemory,
    MemoryOfRuns,
    NextRun,
    RunMemory,
    Spreads,
    memory_targets,
    spread_of_classes,
    variances_of_classes,
)
from recommender.simulate.judging import ClusterRules, interval_s, judge_run

FIRST_DECISION = 4
DELAY_SAMPLES = 2
PEAK_MARGIN, PEAK_RUNS = 1.15, 3
NO_BOUNDS_WAIT_S = 600.0  # without bounds the declared request stays at first
TARGET_KILLS = 0.01
RULE = "memory by runs"
QUANTILE, ORACLE = "95 % quantile of the others' peaks", "each run's own peak (oracle)"
CALIBRATED_TARGETS, CALIBRATED_RUNS, ORDERS = (0.01, 0.05, 0.1), (1, 2, 3, 5, 10, 20), 40
UNDECLARED_FACTOR = 1e3  # to the largest peak of earlier runs: as if a run could use any memory
CLASSLESS_FOLDS, CLASSLESS_KILL_SHARE = 5, 0.05
"""Cross-validation folds for runs without a class, and the share of them that may be killed."""
BAND = BandOptions()


@dataclass(frozen=True, slots=True)
class Run:
    """A run: what is known of it at each sample, and what its class learns from it when it ends."""

    series: UsageSeries
    step_s: float
    known_age_steps: IntArray
    known_largest_bytes: FloatArray
    known_recent_bytes: FloatArray
    memory: RunMemory
    end_s: float
    """When its class learns of it; minus infinity for runs that were fitted on."""

    @classmethod
    def of(cls, series: UsageSeries, *, fitted: bool = False) -> Run:
        memory = MemoryOfRuns(1)
        ages, (largest, recent) = np.empty(len(series), np.int64), np.empty((2, len(series)))
        slot = np.zeros(1, np.int64)
        for row in range(len(series)):
            ages[row], largest[row] = memory.age_steps[0], memory.largest_bytes[0]
            recent[row] = memory.recent_peak_bytes(slot)[0]
            memory.observe(slot, series.usage[row : row + 1, MEMORY], DELAY_SAMPLES + 1)
        step_s = interval_s(series)
        end_s = -np.inf if fitted else float(series.timestamps[-1]) + step_s
        ended = memory.run(0)._replace(input_size=series.facts.input_size)
        return cls(series, step_s, ages, largest, recent, ended, end_s)


Rule = Callable[[Run, Sequence[Run]], FloatArray]
"""(run, other runs of its class in the order in which they ended) -> bytes decided at each sample."""


def requests_of(run: Run) -> FloatArray:
    requests = run.series.requests
    return np.full((len(run.series), 2), np.nan) if requests is None else requests


def declared_of(run: Run) -> FloatArray:
    declared: FloatArray = requests_of(run)[:, MEMORY]
    return declared


def static(run: Run, _others: Sequence[Run]) -> FloatArray:
    return declared_of(run)


def class_peak(run: Run, others: Sequence[Run]) -> FloatArray:
    ended = [other.memory.peak_bytes for other in others if other.end_s <= run.series.timestamps[0]]
    if len(ended) < PEAK_RUNS:
        return declared_of(run)
    return np.full(len(run.series), max(ended) * PEAK_MARGIN)


def largest_so_far(run: Run, _others: Sequence[Run]) -> FloatArray:
    own = run.known_largest_bytes * PEAK_MARGIN
    return np.where(run.known_age_steps * run.step_s >= NO_BOUNDS_WAIT_S, own, declared_of(run))


def own_peak(run: Run, _others: Sequence[Run]) -> FloatArray:
    return np.full(len(run.series), run.memory.peak_bytes)


def memory_by_runs(spread: Spreads, *, rises: bool = True, inputs: bool = False) -> Rule:
    """Rule of `policies.memory_runs`, with or without the rises of earlier runs and the sizes of their inputs.

    `spread` is that of runs of other classes.

    A run learns from others of its class as soon as they end, and its target moves as in the engine.
    """

    def decide(run: Run, others: Sequence[Run]) -> FloatArray:
        ends = np.array([other.end_s for other in others])
        known = np.searchsorted(ends, run.series.timestamps, side="right")
        declared, size = declared_of(run), run.memory.input_size if inputs else np.nan
        targets = np.empty(len(declared))
        for number in np.unique(known):
            rows = known == number
            next_run = NextRun(TARGET_KILLS, size, float(declared[0]), spread)
            bounds = ClassMemory(other.memory for other in others[:number]).bounds(next_run)
            targets[rows] = memory_targets(
                run.known_age_steps[rows], run.known_largest_bytes[rows], run.known_recent_bytes[rows], declared[rows],
                np.full(np.count_nonzero(rows), bounds.peak_bytes), bounds.rises if rises else NO_BOUNDS.rises,
                PEAK_MARGIN,
            )  # fmt: skip
            if math.isnan(bounds.peak_bytes):
                waits = rows & (run.known_age_steps * run.step_s < NO_BOUNDS_WAIT_S) & ~np.isnan(declared)
                targets[waits] = declared[waits]
        return with_hysteresis(targets, float(declared[0]))

    return decide


def with_hysteresis(targets: FloatArray, current_bytes: float) -> FloatArray:
    """Targets in force: a change too small to be worth it is skipped."""
    in_force = np.empty(len(targets))
    for row, target in enumerate(targets.tolist()):
        if not current_bytes * (1.0 - BAND.hold_memory) <= target <= current_bytes * (1.0 + BAND.rise_memory):
            current_bytes = target
        in_force[row] = current_bytes
    return in_force


@dataclass(frozen=True, slots=True)
class Result:
    net_saved: float
    killed_run_share: float
    killed_runs: int
    kills: int
    changes_per_hour: float


def _tally(run: Run, declared: FloatArray, decided_bytes: FloatArray) -> RunTally:
    """Judge a run by the memory decided for it from the first decision on; CPU, and all before, is as declared."""
    allocations = np.column_stack([declared[:, CPU], decided_bytes])[FIRST_DECISION:]
    positions, lasting_s = np.arange(FIRST_DECISION, len(run.series)), np.full(len(run.series), run.step_s)
    return judge_run(
        run.series.usage, declared, positions, allocations, lasting_s, ClusterRules(),
        np.zeros(len(run.series)), DELAY_SAMPLES,
    )  # fmt: skip


def judge(runs: Sequence[Run], fitted: Sequence[Run], rule: Rule) -> Result:
    """Judge a rule on runs; `fitted` runs of the same class ended before."""
    total, changes, hours = RunTally(), 0, 0.0
    for run in runs:
        ended = sorted(
            (r for r in runs if r.series.workload == run.series.workload and r is not run), key=lambda r: r.end_s
        )
        others = [r for r in fitted if r.series.workload == run.series.workload] + ended
        decided = rule(run, others)
        total += _tally(run, requests_of(run), decided)
        changes += int(np.count_nonzero(np.diff(decided[FIRST_DECISION:])))
        hours += len(run.series) * run.step_s / 3600.0
    return Result(
        total.net_saved(MEMORY), total.killed_runs / total.runs, total.killed_runs, total.kills, changes / hours
    )


@dataclass(frozen=True, slots=True)
class ClasslessResult:
    """Memory slack, including the floors after kills, and the share of runs killed."""

    slack: float
    killed_run_share: float


def compare_unseen(series: Sequence[UsageSeries], seed: int) -> dict[str, ClasslessResult]:
    """Judge runs without a class as if the runs of the other folds were of the same class."""
    runs = [Run.of(one, fitted=True) for one in series]
    fold_of = np.random.default_rng(seed).permutation(len(runs)) % CLASSLESS_FOLDS
    decided: dict[str, list[FloatArray]] = {RULE: [], QUANTILE: [], ORACLE: []}
    for run, fold in zip(runs, fold_of, strict=True):
        others = [other.memory for other, of in zip(runs, fold_of, strict=True) if of != fold]
        bounds, unknown = ClassMemory(others).bounds(NextRun(CLASSLESS_KILL_SHARE)), np.full(len(run.series), np.nan)
        wanted = memory_targets(
            run.known_age_steps, run.known_largest_bytes, run.known_recent_bytes, unknown,
            np.full(len(unknown), bounds.peak_bytes), bounds.rises, PEAK_MARGIN,
        )  # fmt: skip
        decided[RULE].append(with_hysteresis(wanted, float(wanted[0])))
        peak_bytes = float(np.quantile([other.peak_bytes for other in others], 0.95))
        decided[QUANTILE].append(np.full(len(unknown), peak_bytes))
        decided[ORACLE].append(own_peak(run, ()))
    return {name: _judge_classless(runs, of_runs) for name, of_runs in decided.items()}


def _judge_classless(runs: Sequence[Run], decided: Sequence[FloatArray]) -> ClasslessResult:
    """Judge from the first decision on; the first decision counts as in force before it, too."""
    total, used = RunTally(), 0.0
    for run, of_run in zip(runs, decided, strict=True):
        total += _tally(run, np.tile([0.0, of_run[0]], (len(of_run), 1)), of_run)
        used += float(np.nansum(run.series.usage[FIRST_DECISION:, MEMORY])) * run.step_s
    return ClasslessResult(total.reserved[MEMORY] / used - 1.0, total.killed_runs / total.runs)


@dataclass(frozen=True, slots=True)
class Promise:
    """Of runs bounded by so many earlier ones, weighed by class: the share that would have been killed, and the median
    ratio of the bound of the peak to the largest of those."""

    killed: float
    ratio: float
    classes: int


def calibrate(series: Sequence[UsageSeries], seed: int) -> dict[str, Promise]:
    """What bounds promise and what came, by the number of earlier runs, each class by the spread of all others.

    Runs of a class follow one another in random orders. What is declared is no bound.
    """
    classes: dict[str, list[Run]] = {}
    for one in series:
        classes.setdefault(str(one.workload), []).append(Run.of(one))
    variances = {name: variances_of_classes([ClassMemory(r.memory for r in runs)]) for name, runs in classes.items()}
    spreads = {
        name: spread_of_classes(np.concatenate([one for other, one in variances.items() if other != name], axis=1))
        for name in classes
    }
    found: dict[str, Promise] = {}
    for target in CALIBRATED_TARGETS:
        for number in CALIBRATED_RUNS:
            drawn = [
                [_next_of(runs, number, NextRun(target, spread=spreads[name]), seed + order) for order in range(ORDERS)]
                for name, runs in classes.items()
                if len(runs) > number
            ]
            if drawn:
                killed, ratios = np.array(drawn).transpose(2, 0, 1)
                promise = Promise(float(killed.mean()), float(np.median(ratios)), len(drawn))
                found[f"{target:.0%} promised, {number} earlier"] = promise
    return found


def _next_of(runs: Sequence[Run], number: int, run: NextRun, seed: int) -> tuple[bool, float]:
    """Whether a run drawn at random uses more than others, drawn before it, promise; and the ratio of their bound."""
    *earlier, last = [runs[place] for place in np.random.default_rng(seed).permutation(len(runs))[: number + 1]]
    memory = ClassMemory(one.memory for one in earlier)
    largest_bytes = memory.largest_bytes(math.nan)
    bounds = memory.bounds(run._replace(declared_bytes=UNDECLARED_FACTOR * largest_bytes))
    n = len(last.series)
    targets = memory_targets(
        last.known_age_steps, last.known_largest_bytes, last.known_recent_bytes, np.full(n, np.nan),
        np.full(n, bounds.peak_bytes), bounds.rises, PEAK_MARGIN,
    )  # fmt: skip
    used = last.series.usage[FIRST_DECISION + DELAY_SAMPLES :, MEMORY]
    in_force = targets[FIRST_DECISION : n - DELAY_SAMPLES]
    return bool((used > in_force).any()), bounds.peak_bytes / largest_bytes


def with_inputs(series: Sequence[UsageSeries], origin: Path) -> list[UsageSeries]:
    """Recorded runs with the size of their input, in rows."""
    rows = {run["container"]: float(run["rows"]) for run in orjson.loads(origin.read_bytes())["runs"]}
    return [replace(one, facts=replace(one.facts, input_size=rows[one.container])) for one in series]


def by_input(series: Sequence[UsageSeries], fitted: int) -> tuple[list[UsageSeries], list[UsageSeries]]:
    """Split into runs to judge and runs to fit: of each class the `fitted` runs with the smallest inputs are fitted."""
    judged_series, before = list[UsageSeries](), list[UsageSeries]()
    for workload in sorted({str(one.workload) for one in series}):
        ordered = sorted((one for one in series if one.workload == workload), key=lambda one: one.facts.input_size)
        before += ordered[:fitted]
        judged_series += ordered[fitted:]
    return judged_series, before


def compare(judged_series: Sequence[UsageSeries], fitted: Sequence[UsageSeries], spread: Spreads) -> dict[str, Result]:
    """Judge our rule and its references on the same runs; `spread`: see `memory_by_runs`."""
    runs = [Run.of(series) for series in judged_series]
    before = [Run.of(series, fitted=True) for series in fitted]
    rules: dict[str, Rule] = {
        RULE: memory_by_runs(spread),
        f"{RULE}, by the class alone": memory_by_runs(Spreads()),
        f"{RULE}, peaks alone": memory_by_runs(spread, rises=False),
        "static": static,
        "class.peak": class_peak,
        "largest so far x 1.15 after ten minutes": largest_so_far,
        ORACLE: own_peak,
    }
    if not any(math.isnan(run.memory.input_size) for run in runs):
        rules |= {
            f"{RULE}, input sizes given": memory_by_runs(spread, inputs=True),
            f"{RULE}, peaks alone, input sizes given": memory_by_runs(spread, rises=False, inputs=True),
        }
    return {name: judge(runs, before, rule) for name, rule in rules.items()}
