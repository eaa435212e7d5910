"""CPU judged by samples, with changes two samples late and a budget of changes: the engine, parts of it, references.

The engine decides in the simulated cluster, under models that were not trained on what they judge.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.process_pool import process_pool
from recommender.base.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, UsageSeries
from recommender.engine.classes import Classes
from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH, BY_PAST, BY_USE, POLICIES
from recommender.engine.options import Options, RailOptions
from recommender.learning.model import PhaseModel
from recommender.learning.training import TrainingOptions, train
from recommender.phases.features import USAGE_FEATURES
from recommender.report.timeline_data import allocation_at
from recommender.simulate.clock import Trace
from recommender.simulate.judging import ClusterRules, interval_s
from recommender.simulate.phasewise import Phasewise
from recommender.simulate.playing import play
from recommender.simulate.rows import ENGINE_ROWS, PHASEWISE

FIRST_DECISION, LONG_SAMPLES, FOLDS = 4, 200, 3
LEAD_SAMPLES = 2
PHASES, CYCLE_SAMPLES = 12, 40
DECLARED_PEAKS = 2.0
"""Without requests, so many times the peak of a container counts as declared."""

TARGET, OFF = 0.05, 0.15
WINDOWS, MARGINS = (3, 5, 10, 20, 40, 80), (1.0, 1.05, 1.1, 1.2, 1.3)
"""Share of samples that a rule may violate, and by which it is off when it changes; windows, and factors on their
peaks."""

ORACLE = "oracle, same number of changes"


@dataclass(frozen=True, slots=True)
class Result:
    """Slack ratio, share of samples in violation, its 90th percentile over long containers (None without any), and
    changes per hour."""

    slack: float
    violation: float
    violation_p90: float | None
    changes_per_hour: float


def compare(series: Sequence[UsageSeries], models: Sequence[PhaseModel], changes_per_hour: int) -> dict[str, Result]:
    """Judge the engine, whole and in parts, and its references; there is a model for each container."""
    experts = experts_of_rows(has_classes=any(one.workload is not None for one in series))
    with process_pool(os.cpu_count() or 1) as pool:
        decided = pool.starmap(engine, [(series, models, changes_per_hour, of) for of in experts.values()], chunksize=1)
    found = {row: judge(series, in_force) for row, in_force in zip(experts, decided, strict=True)}
    rule, of_rule = best_rule(series, changes_per_hour)
    of_oracle = judge(series, [oracle(one, changes_per_hour) for one in series])
    return {**found, f"best rule of one line: {rule}": of_rule, ORACLE: of_oracle}


def experts_of_rows(*, has_classes: bool) -> dict[str, BoolArray]:
    """The experts that may decide in each row of the engine, bool (EXPERTS,): all, all but one kind, one kind alone."""
    kinds = [POLICIES[by] for by in (BY_GRAPH, BY_CLASS, BY_PAST, BY_USE) if has_classes or by != BY_CLASS]
    without = {f"{PHASEWISE} without {kind}": ~ENGINE_ROWS[kind] for kind in kinds}
    return {PHASEWISE: ENGINE_ROWS[PHASEWISE], **without, **{f"{kind} alone": ENGINE_ROWS[kind] for kind in kinds}}


def engine(
    series: Sequence[UsageSeries], models: Sequence[PhaseModel], changes_per_hour: int, experts: BoolArray
) -> list[FloatArray]:
    """Cores in force at each sample when the engine decides with these experts; NaN before it is judged.

    What was declared stays in force until one of these experts knows what is needed.
    """
    traces = [Trace(with_requests(one), int(np.flatnonzero(one.present)[FIRST_DECISION])) for one in series]
    step_s = min(map(interval_s, series))
    rules = ClusterRules(apply_delay_s=LEAD_SAMPLES * step_s, restart_s=0.0, limits="none")
    options = Options(rails=RailOptions(resizes_per_hour=changes_per_hour))
    row = Phasewise(traces, models, rules, step_s, CYCLE_SAMPLES, options, Classes(), experts)
    outcomes = play(traces, row, rules, step_s)
    if row.problems:
        raise RuntimeError(f"the engine failed: {row.problems}")
    return [
        allocation_at(np.flatnonzero(one.present), np.array(outcome.positions), np.array(outcome.amounts))[:, CPU]
        for one, outcome in zip(series, outcomes, strict=True)
    ]


def with_requests(series: UsageSeries) -> UsageSeries:
    """The container with its requests, or with `DECLARED_PEAKS` times its own peak where some are missing."""
    if series.requests is not None and not np.isnan(series.requests).any():
        return series
    return replace(series, requests=np.tile(DECLARED_PEAKS * np.nanmax(series.usage, axis=0), (len(series), 1)))


def best_rule(series: Sequence[UsageSeries], changes_per_hour: float) -> tuple[str, Result]:
    """The rule with the least slack of those that hold the budget and the target, chosen in hindsight; and its name.

    If none holds both, it is the one that violates least within the budget, or else of all.
    """
    found: dict[str, Result] = {}
    for samples, margin in product(WINDOWS, MARGINS):
        in_force = [largest_of_the_last(one, samples, margin) for one in series]
        found[f"largest of the last {samples} x {margin:g}"] = judge(series, in_force)

    def rank(rule: str) -> tuple[bool, float, float]:
        of = found[rule]
        return of.changes_per_hour > changes_per_hour, max(of.violation, TARGET), of.slack

    return (best := min(found, key=rank)), found[best]


def largest_of_the_last(series: UsageSeries, samples: int, margin: float) -> FloatArray:
    """Cores in force by the largest of the last samples with a margin, changed when it is off by the share `OFF`."""
    cores = series.usage[series.present, CPU]
    wanted = sliding_window_view(np.append(np.zeros(samples - 1), cores), samples).max(axis=1) * margin
    in_force = np.full(len(cores) + LEAD_SAMPLES + 1, np.nan)
    current = np.nan
    for row, cores_wanted in enumerate(wanted.tolist()):
        if not abs(cores_wanted - current) <= OFF * current:
            current = cores_wanted
        in_force[row + LEAD_SAMPLES + 1] = current
    return in_force[: len(cores)]


def oracle(series: UsageSeries, changes_per_hour: float) -> FloatArray:
    """As many segments as the budget allows, each at its largest use; the cheapest pairs are merged."""
    cores = series.usage[series.present, CPU]
    peaks, lengths = cores.copy(), np.ones(len(cores), np.int64)
    changes = round(len(cores) * changes_per_hour * interval_s(series) / 3600.0)
    for _ in range(len(cores) - max(1, changes)):
        both = np.maximum(peaks[:-1], peaks[1:])
        added_slack = (both - peaks[:-1]) * lengths[:-1] + (both - peaks[1:]) * lengths[1:]
        at = int(added_slack.argmin())
        peaks[at], lengths[at] = both[at], lengths[at] + lengths[at + 1]
        peaks, lengths = np.delete(peaks, at + 1), np.delete(lengths, at + 1)
    return np.repeat(peaks, lengths)


def judge(series: Sequence[UsageSeries], in_force: Sequence[FloatArray]) -> Result:
    """Judge the cores in force at each sample of each container, from the sample `FIRST_DECISION` on."""
    slack = used = hours = 0.0
    violated: list[BoolArray] = []
    changes = 0
    for one, allocated in zip(series, in_force, strict=True):
        cores, cores_in_force = one.usage[one.present, CPU][FIRST_DECISION:], allocated[FIRST_DECISION:]
        slack += float(np.maximum(cores_in_force - cores, 0.0).sum())
        used += float(cores.sum())
        violated.append(cores > cores_in_force * VIOLATION_TOLERANCE)
        changes += int(np.count_nonzero(np.diff(cores_in_force)))
        hours += len(one) * interval_s(one) / 3600.0
    shares = [float(v.mean()) for v in violated if len(v) >= LONG_SAMPLES - FIRST_DECISION]
    p90 = float(np.quantile(shares, 0.9)) if shares else None
    return Result(slack / used, float(np.concatenate(violated).mean()), p90, changes / hours)


def models_of_others(series: Sequence[UsageSeries], *, by_program: bool, seed: int) -> list[PhaseModel]:
    """For each container a model of the other folds; with `by_program`, those of one program share a fold."""
    if by_program:
        programs = sorted({one.workload or one.container for one in series})
        places = [programs.index(one.workload or one.container) for one in series]
    else:
        places = np.random.default_rng(seed).permutation(len(series)).tolist()
    groups, options = [place % FOLDS for place in places], TrainingOptions(USAGE_FEATURES, phases=PHASES, seed=seed)
    models: dict[int, PhaseModel] = {}
    for group in set(groups):
        models[group] = train([one for one, of in zip(series, groups, strict=True) if of != group], options)
    return [models[group] for group in groups]
