"""Plays recorded traces in the simulated cluster, and evaluates allocations, savings and kills."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from recommender.base.records import (
    CPU,
    MARKS,
    MEMORY,
    Amounts,
    FloatArray,
    IntArray,
    Played,
    UsageSeries,
    amounts_of,
)
from recommender.kernels.tally import ROUNDING, after_kill
from recommender.simulate.clock import RoundInput, SimulatedRecommender, Trace, rounds
from recommender.simulate.in_force import InForce, SimulatedRun
from recommender.simulate.judging import (
    ClusterRules,
    ReplayOptions,
    decision_positions,
    durations_s,
    fixed_limits,
    interval_s,
    judge,
    judge_run,
)

PEAK_MARGIN, PEAK_RUNS = 1.15, 3  # of `class.peak`; a class of fewer runs keeps what was declared


def judgeable_traces(series: Sequence[UsageSeries], options: ReplayOptions) -> list[Trace]:
    """The series that have a decision to be judged."""
    traces = []
    for one in series:
        positions = decision_positions(one.present, options.samples_per_cycle(interval_s(one)), options.lag)
        if len(positions):
            traces.append(Trace(one, int(positions[0])))
    return traces


def play(
    traces: Sequence[Trace],
    recommender: SimulatedRecommender,
    rules: ClusterRules,
    step_s: float,
    progress: Callable[[int], None] = lambda _: None,
) -> list[SimulatedRun]:
    """Play traces under a recommender; `progress` is called with the number of samples just played."""
    usage = np.concatenate([trace.series.usage for trace in traces])
    declared = np.concatenate([trace.declared for trace in traces])
    limit_bytes = np.concatenate([limits_of(trace, rules) for trace in traces])
    offsets = np.cumsum([0, *(len(trace.series) for trace in traces)])[:-1]
    first = np.array([trace.first for trace in traces])
    in_force = InForce(declared[offsets], rules, step_s)
    for now in rounds(traces, step_s):
        rows = offsets[now.numbers] + now.positions
        used = usage[rows]
        in_force.apply(now.now_s)
        if rules.resizes_waiting and now.began:
            in_force.begin(recommender.expect(now, in_force.has), now.now_s)
        judged = now.positions >= first[now.numbers]
        kills = in_force.observe(now, judged, used[:, MEMORY], limit_bytes[rows])
        observed = RoundInput(now, used, in_force.take_changed(), in_force.has, kills)
        in_force.recommend(recommender.recommend(observed), now.now_s)
        for number in now.ended:
            in_force.end(number)
        progress(len(rows))
    return in_force.outcomes


def evaluate(trace: Trace, outcome: SimulatedRun, rules: ClusterRules) -> Played | None:
    """Evaluate one container by its allocations; None if these are not known for every sample."""
    series, positions = trace.series, np.array(outcome.positions, np.int64)
    amounts = np.array(outcome.amounts).reshape(-1, 2)
    if np.isnan(amounts).any():
        return None
    lasting_s = durations_s(series)
    return Played(
        tally=judge(series.usage, positions, amounts, lasting_s),
        run=judge_run(series.usage, trace.declared, positions, amounts, lasting_s, rules, limits_of(trace, rules)),
        decisions=(series.timestamps[positions], amounts),
        marks={name: np.array(outcome.marks[name], np.int64) for name in MARKS},
        reasons=outcome.reasons,
    )


def as_declared(trace: Trace) -> SimulatedRun:
    """The declared allocations of a container."""
    judged = judged_samples(trace)
    return changes(judged, trace.declared[judged])


def with_kills(trace: Trace, outcome: SimulatedRun, rules: ClusterRules) -> SimulatedRun:
    """Allocations that no recommender changes, raised by kills as in `play`: from the sample after each kill on."""
    judged = judged_samples(trace)
    memory_bytes, limit_bytes = trace.series.usage[judged, MEMORY], limits_of(trace, rules)[judged]
    has = np.array(outcome.amounts)[np.searchsorted(outcome.positions, judged, side="right") - 1]
    killed_s: list[float] = []
    above = memory_bytes > np.maximum(has[:, MEMORY], limit_bytes) * (1.0 + ROUNDING)
    for row in np.flatnonzero(above).tolist():
        had_bytes = max(float(has[row, MEMORY]), float(limit_bytes[row]))
        while memory_bytes[row] > had_bytes * (1.0 + ROUNDING):
            killed_s.append(float(trace.series.timestamps[judged[row]]))
            had_bytes = after_kill(had_bytes)
            has[row + 1 :, MEMORY] = np.maximum(has[row + 1 :, MEMORY], had_bytes)
    raised = changes(judged, has)
    raised.marks["killed"] = killed_s
    return raised


def class_peaks(traces: Sequence[Trace], step_s: float, history: Sequence[UsageSeries] = ()) -> list[SimulatedRun]:
    """Allocations at the largest peak of the runs of the class that had succeeded, those of `history` included."""
    ended: dict[str, list[tuple[float, FloatArray]]] = {}
    runs = [(series, -np.inf) for series in history]
    runs += [(trace.series, float(trace.series.timestamps[-1]) + step_s) for trace in traces]
    for series, end_s in runs:
        if series.workload is not None and series.facts.succeeded and series.present.any():
            ended.setdefault(series.workload, []).append((end_s, np.nanmax(series.usage, axis=0)))
    found = []
    for trace in traces:
        start_s = float(trace.series.timestamps[0])
        peaks = [peak for end_s, peak in ended.get(trace.series.workload or "", []) if end_s <= start_s]
        if len(peaks) < PEAK_RUNS:
            found.append(as_declared(trace))
            continue
        found.append(fixed(trace, amounts_of(np.max(peaks, axis=0) * PEAK_MARGIN)))
    return found


def fixed(trace: Trace, amounts: Amounts) -> SimulatedRun:
    """The same allocation for the whole run."""
    return SimulatedRun([int(judged_samples(trace)[0])], [amounts])


def judged_samples(trace: Trace) -> IntArray:
    """Indices in the series of the judged samples."""
    samples = np.flatnonzero(trace.series.present)
    return samples[samples >= trace.first]


def changes(judged: IntArray, amounts: FloatArray) -> SimulatedRun:
    """The allocations of a container from those at its judged samples, float64 (m, 2)."""
    changed = np.append(True, (np.diff(amounts, axis=0) != 0.0).any(axis=1))
    return SimulatedRun(judged[changed].tolist(), [(row[CPU], row[MEMORY]) for row in amounts[changed].tolist()])


def limits_of(trace: Trace, rules: ClusterRules) -> FloatArray:
    """The memory limit that stays at each sample, float64 (n,): as recorded, else as declared; 0 if it follows."""
    samples, recorded_bytes = len(trace.series), trace.series.facts.limits[MEMORY]
    if math.isinf(recorded_bytes):  # no limit follows, either
        return np.full(samples, np.inf)
    declared_bytes = trace.declared[:, MEMORY] if math.isnan(recorded_bytes) else np.full(samples, recorded_bytes)
    return fixed_limits(declared_bytes, rules.limits)


def has_no_limit(trace: Trace, rules: ClusterRules) -> bool:
    """No memory limit is known of the container, nor a memory request that one might equal: nothing kills it."""
    return bool(np.isinf(limits_of(trace, rules)).all())
