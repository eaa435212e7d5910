"""Recorded traces under the rows of the simulated cluster: what is in force, what it saves, whom it kills."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from recommender.judging import ClusterRules, KillRules, ReplayOptions, durations_s, judge, judge_run, standing_limits
from recommender.kernels.windows import carried_forward
from recommender.records import CPU, MARKS, MEMORY, FloatArray, Played, UsageSeries
from recommender.simulate.clock import RoundInput, SimulatedRecommender, Trace, rounds
from recommender.simulate.in_force import InForce, Outcome

PEAK_MARGIN, PEAK_RUNS = 1.15, 3
"""Of `class.peak`; a class of fewer runs has what was declared."""


def play(
    traces: Sequence[Trace],
    recommender: SimulatedRecommender,
    rules: ClusterRules,
    step_s: float,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """What each container has while somebody speaks for it; `progress` is told how many samples were just taken."""
    usage = np.concatenate([trace.series.usage for trace in traces])
    declared = np.concatenate([declared_of(trace.series) for trace in traces])
    limit_bytes = np.concatenate([limits_of(trace.series, rules.kills) for trace in traces])
    begins = np.cumsum([0, *(len(trace.series) for trace in traces)])[:-1]
    first = np.array([trace.first for trace in traces])
    in_force = InForce(declared[begins], rules, step_s)
    for now in rounds(traces, step_s):
        rows = begins[now.numbers] + now.positions
        in_force.apply(now.now_s)
        if rules.resizes_waiting and now.began:
            in_force.begin(recommender.expect(now, in_force.has), now.now_s)
        judged = now.positions >= first[now.numbers]
        kills = in_force.use(now, judged, usage[rows, MEMORY], limit_bytes[rows])
        told = RoundInput(now, usage[rows], in_force.take_changed(), in_force.has, kills)
        in_force.say(recommender.recommend(told), now.now_s)
        for number in now.ended:
            in_force.end(number)
        progress(len(rows))
    return in_force.kept


def played(trace: Trace, kept: Outcome, options: ReplayOptions, rules: KillRules) -> Played | None:
    """What came of one container, judged by what it had; None where that is not known of every sample."""
    series, positions = trace.series, np.array(kept.positions, np.int64)
    amounts = np.array(kept.amounts).reshape(-1, 2)
    if np.isnan(amounts).any():
        return None
    lasting_s = durations_s(series)
    stays = limits_of(series, rules)
    run = judge_run(series.usage, declared_of(series), positions, amounts, lasting_s, rules, stays)
    return Played(
        tally=judge(series.usage, positions, amounts, lasting_s, options.violation_tolerance),
        run=run,
        decisions=(series.timestamps[positions], amounts),
        marks={name: np.array(kept.marks[name], np.int64) for name in MARKS},
    )


def as_declared(trace: Trace) -> Outcome:
    """What a container has that nobody speaks for."""
    declared, kept = declared_of(trace.series), Outcome()
    judged = np.flatnonzero(trace.series.present)
    judged = judged[judged >= trace.first]
    changes = judged[np.append(True, (np.diff(declared[judged], axis=0) != 0.0).any(axis=1))]
    kept.positions, kept.amounts = changes.tolist(), [(row[CPU], row[MEMORY]) for row in declared[changes].tolist()]
    return kept


def class_peaks(traces: Sequence[Trace], step_s: float, history: Sequence[UsageSeries] = ()) -> list[Outcome]:
    """What containers have that are made with the largest peak of the runs of their class that had ended; those of
    `history` had before the first began."""
    ended: dict[str, list[tuple[float, FloatArray]]] = {}
    runs = [(series, -np.inf) for series in history]
    runs += [(trace.series, float(trace.series.timestamps[-1]) + step_s) for trace in traces if trace.series.facts.over]
    for series, end_s in runs:
        if series.workload is not None:
            ended.setdefault(series.workload, []).append((end_s, np.nanmax(series.usage, axis=0)))
    found = []
    for trace in traces:
        start_s = float(trace.series.timestamps[0])
        peaks = [peak for end_s, peak in ended.get(trace.series.workload or "", []) if end_s <= start_s]
        if len(peaks) < PEAK_RUNS:
            found.append(as_declared(trace))
            continue
        cpu_cores, memory_bytes = (np.max(peaks, axis=0) * PEAK_MARGIN).tolist()
        found.append(Outcome([first_judged(trace)], [(cpu_cores, memory_bytes)]))
    return found


def first_judged(trace: Trace) -> int:
    """The first sample that counts, an index of the series."""
    samples = np.flatnonzero(trace.series.present)
    return int(samples[np.searchsorted(samples, trace.first)])


def limits_of(series: UsageSeries, rules: KillRules) -> FloatArray:
    """The memory limit that stays at each sample, float64 (n,): as the cluster told it, else what was declared."""
    told_bytes = series.facts.limits[MEMORY]
    declared = declared_of(series)[:, MEMORY] if math.isnan(told_bytes) else np.full(len(series), told_bytes)
    return standing_limits(declared, rules.limits)


def declared_of(series: UsageSeries) -> FloatArray:
    """What was declared at each sample, float64 (n, 2): the latest that is known, or the first one; NaN for none."""
    declared = np.full((len(series), 2), np.nan) if series.requests is None else series.requests
    declared = carried_forward(declared, np.isnan(declared))
    first = declared[(~np.isnan(declared)).argmax(axis=0), [CPU, MEMORY]]
    return np.where(np.isnan(declared), first, declared)
