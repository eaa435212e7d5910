"""The dry run: replay every policy on recorded series, judged on the same samples by the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recommender.base.errors import NotEnoughData
from recommender.base.records import Block, ContainerReplay, IntArray, Played, ReplayResult, Timeline, UsageSeries
from recommender.base.units import counted
from recommender.policies.registry import Policy
from recommender.replaying.decisions import WriteDecisions
from recommender.replaying.timelines import TimelineChoice
from recommender.simulate.judging import ReplayOptions, decision_positions, durations_s, interval_s, judge


@dataclass(frozen=True, slots=True)
class Plan:
    """How one container is replayed; with cross-fitting, plans differ by fold."""

    policies: Sequence[Policy]  # in the order of reports; with the same names for every container
    labels: IntArray | None = None  # int64 (n,): phases of the samples; None if no policy needs them


def replay_container(
    series: UsageSeries, plan: Plan, options: ReplayOptions, played: Mapping[str, Played] | None = None
) -> tuple[ContainerReplay, Timeline] | None:
    """Replay one container under its plan, beside its results from the simulated cluster; None without a decision."""
    cycle_samples = options.samples_per_cycle(interval_s(series))
    per_cycle = decision_positions(series.present, cycle_samples, options.lag)
    if not len(per_cycle):
        return None
    labels = np.empty(0, np.int64) if plan.labels is None else plan.labels
    samples = np.flatnonzero(series.present)
    per_sample = samples[samples >= per_cycle[0]]
    sample_s = durations_s(series)
    simulated = played or {}
    tallies = {name: one.tally for name, one in simulated.items()}
    decisions = {name: one.decisions for name, one in simulated.items()}
    explanations: dict[str, Mapping[str, Any]] = {}
    for policy in plan.policies:
        positions = per_sample if policy.every_sample else per_cycle
        block = Block(series.usage, series.timestamps, positions, labels, series.requests)
        allocations, explanations[policy.name] = policy.decide(block, cycle_samples)
        tallies[policy.name] = judge(series.usage, positions, allocations, sample_s)
        first_covered = samples[np.searchsorted(samples, positions)]
        decisions[policy.name] = (series.timestamps[first_covered], allocations)
    replayed = ContainerReplay(series.container, series.workload, tallies, {n: one.run for n, one in simulated.items()})
    return replayed, Timeline(
        container=series.container,
        workload=series.workload,
        timestamps=series.timestamps,
        usage=series.usage,
        labels=plan.labels,
        decisions=decisions,
        explanations=explanations,
        marks={name: one.marks for name, one in simulated.items()},
        reasons={name: one.reasons for name, one in simulated.items()},
    )


def replay(
    source: Iterable[UsageSeries],
    plan_for: Callable[[UsageSeries], Plan],
    options: ReplayOptions,
    *,
    write_decisions: WriteDecisions | None = None,
    timelines: int = 6,
    progress: Callable[[int], None] = lambda _: None,
    model: Mapping[str, object] | None = None,
    rows: Sequence[str] = (),
    played: Mapping[str, Mapping[str, Played]] | None = None,
) -> ReplayResult:
    """Replay every container of a source; NotEnoughData if none has a decision, or no policy could be judged.

    `timelines`: number of containers kept whole for drawing.
    `progress`: called with the number of grid cells just done.
    `rows`, `played`: rows of the simulated cluster, and by container the results of those that could be simulated. A
    row without a result for every container is left out.
    """
    simulated = played or {}
    missing = {name: [container for container, of in simulated.items() if name not in of] for name in rows}
    rows = tuple(name for name in rows if not missing[name])
    policies, oracles, choice = rows, frozenset[str](), TimelineChoice(timelines)
    containers: list[ContainerReplay] = []
    left_out: list[tuple[str, str]] = []
    steps: Counter[tuple[float, float]] = Counter()
    for series in source:
        results = {name: simulated[series.container][name] for name in rows} if series.container in simulated else {}
        plan = plan_for(series) if np.count_nonzero(series.present) >= options.fewest_samples else Plan(())
        if (judged := replay_container(series, plan, options, results)) is None:
            samples = counted(int(np.count_nonzero(series.present)), "sample")
            why = f"{samples}, a decision that can be judged needs {options.fewest_samples}"
            left_out.append((series.container, why))
        else:
            container, timeline = judged
            policies = (*rows, *(policy.name for policy in plan.policies))
            oracles = frozenset(policy.name for policy in plan.policies if policy.oracle)
            containers.append(container)
            steps[series.step_s, interval_s(series)] += 1
            if timelines:
                choice.offer(container, timeline, oracles)
            if write_decisions is not None:
                for name, (timestamps, allocations) in timeline.decisions.items():
                    write_decisions(series.container, name, timestamps, allocations)
        progress(len(series))
    notes = tuple(_incomplete(name, without, len(simulated)) for name, without in missing.items() if without)
    if not containers:
        raise NotEnoughData(
            f"none of the {len(left_out)} containers has the {options.fewest_samples} samples that a "
            "judged decision needs. Give longer recordings, or a finer --step."
        )
    if not policies:
        raise NotEnoughData(" ".join(notes))
    step_s, between_samples_s = min(steps, key=lambda step: (-steps[step], step))
    cycle_s = options.samples_per_cycle(between_samples_s) * between_samples_s
    return ReplayResult(
        step_s, cycle_s, policies, oracles, tuple(containers), tuple(left_out), model or {}, notes, choice.timelines()
    )


def _incomplete(name: str, containers: Sequence[str], of: int) -> str:
    """A note on a row that is left out."""
    why = ", which declare no request" if name in ("static", "class.peak", "krr") else ""
    return (
        f"{name} is left out: it has no allocation for {len(containers)} of {of} containers (the first is "
        f"{containers[0]!r}){why}."
    )
