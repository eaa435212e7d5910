"""The dry run: every policy over recorded time, judged on the same samples by the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recommender.decisions import DecisionWriter
from recommender.errors import NotEnoughData
from recommender.judging import ReplayOptions, decision_positions, durations_s, interval_s, judge
from recommender.policies.base import Policy
from recommender.records import (
    Block,
    ContainerReplay,
    FloatArray,
    IntArray,
    PhaseTrace,
    Played,
    ReplayResult,
    Timeline,
    UsageSeries,
)
from recommender.timelines import TimelineChoice


@dataclass(frozen=True, slots=True)
class Plan:
    """How one container is replayed. Cross-fitting gives containers of different folds different plans.

    Attributes
    ----------
    policies
        In reporting order; of the same names for every container.
    phases
        The phases of the container's samples; None when no policy asks for them.
    """

    policies: Sequence[Policy]
    phases: PhaseTrace | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One container after its replay.

    Attributes
    ----------
    replay
        Tallies of the policies.
    decisions
        Per policy: int64 (d,) unix seconds of the first sample each decision covers, float64 (d, 2) cores and bytes.
    explanations
        Per policy: why its last decision is what it is.
    """

    replay: ContainerReplay
    decisions: Mapping[str, tuple[IntArray, FloatArray]]
    explanations: Mapping[str, Mapping[str, Any]]


def replay_container(
    series: UsageSeries, plan: Plan, options: ReplayOptions, played: Mapping[str, Played] | None = None
) -> Judged | None:
    """One container under every policy of its plan, beside what came of it under rows of the simulated cluster.

    None when it has too few samples for a decision.
    """
    cycle_samples = options.samples_per_cycle(interval_s(series))
    per_cycle = decision_positions(series.present, cycle_samples, options.lag)
    if not len(per_cycle):
        return None
    samples = np.flatnonzero(series.present)
    per_sample = samples[samples >= per_cycle[0]]
    sample_s = durations_s(series)
    beside = played or {}
    tallies = {name: one.tally for name, one in beside.items()}
    decisions = {name: one.decisions for name, one in beside.items()}
    explanations: dict[str, Mapping[str, Any]] = {}
    for policy in plan.policies:
        positions = per_sample if policy.every_sample else per_cycle
        block = Block(series.usage, series.timestamps, positions, plan.phases, series.requests)
        allocations, explanations[policy.name] = policy.decide(block, cycle_samples)
        tallies[policy.name] = judge(series.usage, positions, allocations, sample_s, options.violation_tolerance)
        first_covered = samples[np.searchsorted(samples, positions)]
        decisions[policy.name] = (series.timestamps[first_covered], allocations)
    runs = {name: one.run for name, one in beside.items()}
    return Judged(ContainerReplay(series.container, series.workload, tallies, runs), decisions, explanations)


def replay(
    source: Iterable[UsageSeries],
    plan_for: Callable[[UsageSeries], Plan],
    options: ReplayOptions,
    *,
    decisions_to: DecisionWriter | None = None,
    timelines: int = 6,
    progress: Callable[[int], None] | None = None,
    model: Mapping[str, object] | None = None,
    rows: Sequence[str] = (),
    played: Mapping[str, Mapping[str, Played]] | None = None,
) -> ReplayResult:
    """Replay every container of a source.

    Parameters
    ----------
    source
        Series, read as they are needed; only one is in memory at a time.
    plan_for
        Gives each container its policies and phases.
    decisions_to
        Takes in every decision, or None.
    timelines
        How many containers are kept whole for drawing.
    progress
        Called with the number of grid cells just done.
    model
        What the report says of the model.
    rows, played
        Rows of the simulated cluster that are laid beside the policies, and what came of each judged container under
        those of them that could be played. A row that one container lacks is left out of all.

    Raises
    ------
    NotEnoughData
        No container has enough samples for a decision, or no policy could be judged.
    """
    beside = played or {}
    lacking = {name: [one for one, came_of in beside.items() if name not in came_of] for name in rows}
    rows = tuple(name for name in rows if not lacking[name])
    policies, oracles, choice = rows, frozenset[str](), TimelineChoice(timelines)
    containers: list[ContainerReplay] = []
    left_out: list[tuple[str, str]] = []
    steps: Counter[float] = Counter()
    for series in source:
        came_of = {name: beside[series.container][name] for name in rows} if series.container in beside else {}
        plan = plan_for(series) if np.count_nonzero(series.present) >= options.fewest_samples else Plan(())
        judged = replay_container(series, plan, options, came_of)
        if judged is None:
            left_out.append((series.container, _too_short(series, options)))
        else:
            policies = (*rows, *(policy.name for policy in plan.policies))
            oracles = frozenset(policy.name for policy in plan.policies if policy.oracle)
            containers.append(judged.replay)
            steps[interval_s(series)] += 1
            if timelines:
                choice.offer(judged.replay, _timeline(series, plan, judged, came_of), oracles)
            if decisions_to is not None:
                for name, (timestamps, allocations) in judged.decisions.items():
                    decisions_to.write(series.container, name, timestamps, allocations)
        if progress is not None:
            progress(len(series))
    notes = tuple(_lacks(name, silent, len(beside)) for name, silent in lacking.items() if silent)
    if not containers:
        raise NotEnoughData(
            f"none of the {len(left_out)} containers has the {options.fewest_samples} samples that a "
            "judged decision needs. Give longer recordings, or a finer --step."
        )
    if not policies:
        raise NotEnoughData(" ".join(notes))
    step_s = min(steps, key=lambda step: (-steps[step], step))
    cycle_s = options.samples_per_cycle(step_s) * step_s
    return ReplayResult(
        step_s, cycle_s, policies, oracles, tuple(containers), tuple(left_out), model or {}, notes, choice.timelines()
    )


def _timeline(series: UsageSeries, plan: Plan, judged: Judged, played: Mapping[str, Played]) -> Timeline:
    """A container as it is drawn: without the policies that decide at every sample, which are the use itself."""
    undrawn = {policy.name for policy in plan.policies if policy.every_sample}
    return Timeline(
        container=series.container,
        workload=series.workload,
        timestamps=series.timestamps,
        usage=series.usage,
        labels=None if plan.phases is None else plan.phases.labels,
        decisions={name: made for name, made in judged.decisions.items() if name not in undrawn},
        explanations={name: why for name, why in judged.explanations.items() if name not in undrawn},
        marks={name: one.marks for name, one in played.items()},
    )


def _too_short(series: UsageSeries, options: ReplayOptions) -> str:
    samples = int(np.count_nonzero(series.present))
    count = f"{samples} sample{'s' if samples != 1 else ''}"
    return f"{count}, a decision that can be judged needs {options.fewest_samples}"


def _lacks(name: str, containers: Sequence[str], of: int) -> str:
    """Why a row is left out."""
    why = ", which declare no request" if name in ("static", "class.peak") else ""
    return (
        f"{name} is left out: it does not know what to allocate for {len(containers)} of {of} containers (the first is "
        f"{containers[0]!r}){why}."
    )
