"""What to write into the manifest of each workload: one request for a whole run, from what a recommender gave its runs.

Nothing is decided here. The CPU is one of the levels that the recommender had in force, the memory that which it would
give the next run, or had in force last. Both are then played on all runs, as if they had been written there before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from recommender.base.records import (
    CPU,
    GPU_USE,
    MEMORY,
    VIOLATION_TOLERANCE,
    Amounts,
    FloatArray,
    Played,
    Tally,
    UsageSeries,
    WorkloadAdvice,
    amounts_of,
)
from recommender.base.units import SECONDS_PER_HOUR
from recommender.engine.options import RailOptions
from recommender.policies.evidence import is_light
from recommender.simulate.clock import Trace
from recommender.simulate.judging import ClusterRules, ReplayOptions, durations_s
from recommender.simulate.playing import evaluate, fixed, judgeable_traces, judged_samples, with_kills

SOME_RUNS, MANY_RUNS = 3, 20
"""Runs that give medium and high confidence: the next one is above the largest of so many once in four, and in 21."""

HOURS_OF_SOME, HOURS_OF_MUCH = 24.0, 168.0
"""Recorded hours that count as much: a day and a week hold what a service repeats."""

TARGET_SHORT = RailOptions().target_violation[CPU]
"""Share of samples that may be short of CPU with one request for the whole run, as by phases."""

GPU_IDLE = 0.05
"""GPUs that are used less than this are idle: something else keeps them waiting."""

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_GENERATED = re.compile(rf"(-{_RANDOM}{{6,10}})?-{_RANDOM}{{5}}$|-\d+$")
"""What a controller appends to its name in the names of its pods."""


def workload_advice(
    series: Sequence[UsageSeries],
    played: Mapping[str, Played],
    history: Sequence[UsageSeries],
    options: ReplayOptions,
    rules: ClusterRules,
    next_bytes: Mapping[str, float],
) -> tuple[WorkloadAdvice, ...]:
    """Advice for each workload, those that save most CPU first.

    `played`: by container, what the recommender had in force. `history`: earlier runs, which count as evidence.
    `next_bytes`: by container, memory that the next run like it would be given at its start, where that is known.
    """
    of_workload = _by_workload(judgeable_traces([one for one in series if one.container in played], options))
    earlier = _by_workload(judgeable_traces(history, options))
    span_s = max(one.timestamps[-1] for one in series) - min(one.timestamps[0] for one in series)
    rules = replace(rules, recreates=False)  # nothing resizes there
    found = []
    for name, traces in of_workload.items():
        runs = [*earlier.get(name, []), *traces]
        of_runs = [(trace, played[trace.series.container]) for trace in traces]
        levels = _levels(of_runs, lately=True)
        memory_bytes = next_bytes.get(traces[-1].series.container, float(levels[MEMORY].max()))
        candidates = np.append(_levels(of_runs, lately=False)[CPU], traces[-1].declared[-1, CPU])
        cpu_cores = _least_sufficient(runs, candidates)
        found.append(_advice(name, runs, traces, played, (cpu_cores, memory_bytes), levels, rules, float(span_s)))
    idle = gpu_idle_shares([*history, *series])
    found = [
        replace(one, gpu_idle_share=idle.get((one.namespace, one.workload, one.container), math.nan)) for one in found
    ]
    return tuple(sorted(found, key=lambda one: (-np.nan_to_num(one.saved[CPU]), one.name)))


def gpu_idle_shares(series: Sequence[UsageSeries]) -> dict[tuple[str, str, str], float]:
    """Of each workload whose use of GPUs is known: the share of these samples below `GPU_IDLE`.

    Use is from 0 to 1, or in per cent if any of it is above 1.
    """
    used: dict[tuple[str, str, str], list[FloatArray]] = {}
    for one in series:
        of_gpus = one.features.get(GPU_USE, np.empty(0))
        if not np.isnan(of_gpus).all():
            used.setdefault(workload_name(one), []).append(of_gpus[~np.isnan(of_gpus)])
    by_name = {name: np.concatenate(parts) for name, parts in used.items()}
    full = 100.0 if any(use.max() > 1.0 for use in by_name.values()) else 1.0
    return {name: float((use < GPU_IDLE * full).mean()) for name, use in by_name.items()}


def played_as_advised(
    series: Sequence[UsageSeries], advice: Sequence[WorkloadAdvice], options: ReplayOptions, rules: ClusterRules
) -> dict[str, Played]:
    """By container, what runs would have had with the request that their workload is advised."""
    amounts = {(one.namespace, one.workload, one.container): one.recommended for one in advice}
    return {
        trace.series.container: _played_fixed(trace, amounts[name], replace(rules, recreates=False))
        for trace in judgeable_traces(series, options)
        if (name := workload_name(trace.series)) in amounts
    }


def _played_fixed(trace: Trace, amounts: Amounts, rules: ClusterRules) -> Played:
    one = evaluate(trace, with_kills(trace, fixed(trace, amounts), rules), rules)
    assert one is not None  # noqa: S101  both amounts are known
    return one


def workload_name(series: UsageSeries) -> tuple[str, str, str]:
    """Namespace, workload and container of a series, whose name has what there is of namespace, pod and container.

    Without a workload class the pod's name without what its controller appended.
    """
    *outer, container = series.container.split("/")
    namespace, pod = outer if len(outer) == 2 else ("", *outer) if outer else ("", "")
    if series.workload:
        return namespace, series.workload, container if pod else series.workload
    return (namespace, _GENERATED.sub("", pod), container) if pod else ("", container, container)


def _by_workload(traces: Sequence[Trace]) -> dict[tuple[str, str, str], list[Trace]]:
    found: dict[tuple[str, str, str], list[Trace]] = {}
    for trace in sorted(traces, key=lambda trace: int(trace.series.timestamps[0])):
        found.setdefault(workload_name(trace.series), []).append(trace)
    return found


def _advice(
    name: tuple[str, ...],
    runs: Sequence[Trace],
    traces: Sequence[Trace],
    played: Mapping[str, Played],
    amounts: Amounts,
    levels: tuple[FloatArray, FloatArray],
    rules: ClusterRules,
    span_s: float,
) -> WorkloadAdvice:
    last = traces[-1].series
    now = amounts_of(traces[-1].declared[-1])
    tally, killed = Tally(), 0
    for trace in runs:
        one = _played_fixed(trace, amounts, rules)
        tally += one.tally
        killed += one.run.killed_runs
    known_s = np.array([float(trace.series.timestamps[-1] - trace.series.timestamps[0]) for trace in runs])
    counted = int(np.count_nonzero(~is_light(known_s)))
    lasted_s = sum(float(durations_s(trace.series)[trace.series.present].sum()) for trace in traces)
    at_a_time = lasted_s / max(span_s, lasted_s / len(traces))  # the mean number of its containers
    by_phases = sum((played[trace.series.container].tally for trace in traces), Tally())
    mean = tuple(amount / by_phases.judged_s for amount in by_phases.allocated)
    return WorkloadAdvice(
        namespace=name[0],
        workload=name[1],
        container=name[2],
        owner=last.owner or "",
        now=now,
        recommended=amounts,
        lowest=(float(levels[CPU].min()), float(levels[MEMORY].min())),
        highest=(float(levels[CPU].max()), float(levels[MEMORY].max())),
        saved=tuple((before - after) * at_a_time for before, after in zip(now, amounts, strict=True)),  # type: ignore[arg-type]
        saved_by_phases=tuple((before - after) * at_a_time for before, after in zip(now, mean, strict=True)),  # type: ignore[arg-type]
        short_share=tally.violations[CPU] / tally.samples,
        killed_runs=killed,
        runs=counted,
        hours=float(known_s.sum()) / SECONDS_PER_HOUR,
        limits=last.facts.limits,
    )


def _levels(runs: Sequence[tuple[Trace, Played]], *, lately: bool) -> tuple[FloatArray, FloatArray]:
    """Cores and bytes that were in force, in all that is recorded of these runs or in its later half, when most was
    known; runs shorter than that half count as a whole.

    What a run began with counts only where nothing changed it.
    """
    first_s = min(trace.series.timestamps[0] for trace, _ in runs)
    last_s = max(trace.series.timestamps[-1] for trace, _ in runs)
    half_s = (first_s + last_s) / 2 if lately else -np.inf
    found: tuple[list[FloatArray], list[FloatArray]] = [], []
    for trace, one in runs:
        begins_s, ends_s = trace.series.timestamps[[0, -1]].tolist()
        if ends_s < half_s:
            continue
        since_s = begins_s if ends_s - begins_s < last_s - half_s else half_s
        times_s, amounts = one.decisions
        late = np.append(times_s[1:], ends_s + 1) > since_s
        for levels, of_resource, declared in zip(found, amounts.T, trace.declared[trace.first], strict=True):
            changed = np.logical_or.accumulate(of_resource != declared)
            levels.append(of_resource[late & changed] if (late & changed).any() else of_resource[late])
    return np.concatenate(found[CPU]), np.concatenate(found[MEMORY])


def _least_sufficient(runs: Sequence[Trace], levels_cores: FloatArray) -> float:
    """The smallest of these levels, NaN for none, that leaves no more samples short than accepted; else the largest."""
    used = np.sort(np.concatenate([trace.series.usage[judged_samples(trace), CPU] for trace in runs]))
    levels = np.unique(levels_cores[~np.isnan(levels_cores)])
    short = 1.0 - np.searchsorted(used, levels * VIOLATION_TOLERANCE, side="right") / len(used)
    enough = np.flatnonzero(short <= TARGET_SHORT)
    return float(levels[enough[0] if len(enough) else -1])


def confidence(advice: WorkloadAdvice) -> str:
    """How much backs a value: `low` for fewer than `SOME_RUNS` and less than a day, and where no level sufficed."""
    if advice.short_share > TARGET_SHORT:
        return "low"
    if advice.runs >= MANY_RUNS or advice.hours >= HOURS_OF_MUCH:
        return "high"
    return "medium" if advice.runs >= SOME_RUNS or advice.hours >= HOURS_OF_SOME else "low"
