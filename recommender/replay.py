"""The dry run: every policy over recorded time, judged on the same samples by the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recommender.decisions import DecisionWriter
from recommender.errors import Misuse, NotEnoughData
from recommender.judging import ReplayOptions, durations_s, interval_s, judge
from recommender.policies.base import Policy
from recommender.policies.schedule import decision_positions
from recommender.processes import made_of_each
from recommender.records import (
    Block,
    ContainerReplay,
    FloatArray,
    IntArray,
    PhaseTrace,
    Played,
    ReplayResult,
    Tally,
    Timeline,
    UsageSeries,
)
from recommender.timelines import TimelineChoice

BATCH_SAMPLES = 50_000
"""Containers are sent to other processes in batches of about so many samples, so that short ones cost no more."""

WORTH_PROCESSES = 2_000_000
"""Grid cells that are done before other processes have started and loaded their compiled kernels."""


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


Planner = Callable[[UsageSeries], Plan]


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


def replay_container(series: UsageSeries, plan: Plan, options: ReplayOptions) -> Judged | None:
    """One container under every policy of its plan; None when it has too few samples for a decision."""
    cycle_samples = options.samples_per_cycle(interval_s(series))
    per_cycle = decision_positions(series.present, cycle_samples, options.lag)
    if not len(per_cycle):
        return None
    samples = np.flatnonzero(series.present)
    per_sample = samples[samples >= per_cycle[0]]
    lasting_s = durations_s(series)
    tallies: dict[str, Tally] = {}
    decisions: dict[str, tuple[IntArray, FloatArray]] = {}
    explanations: dict[str, Mapping[str, Any]] = {}
    for policy in plan.policies:
        positions = per_sample if policy.every_sample else per_cycle
        block = Block(series.usage, series.timestamps, positions, plan.phases, series.requests)
        allocations, explanations[policy.name] = policy.decide(block, cycle_samples)
        tallies[policy.name] = judge(series.usage, positions, allocations, lasting_s, options.violation_tolerance)
        first_covered = samples[np.searchsorted(samples, positions)]
        decisions[policy.name] = (series.timestamps[first_covered], allocations)
    container = ContainerReplay(series.container, series.workload, tallies)
    return Judged(container, decisions, explanations)


def replay(
    source: Iterable[UsageSeries],
    plan_for: Planner,
    options: ReplayOptions,
    *,
    decisions_to: DecisionWriter | None = None,
    timelines: int = 6,
    progress: Callable[[int], None] | None = None,
    jobs: int = 1,
    processes_from: int = WORTH_PROCESSES,
    model: Mapping[str, object] | None = None,
    rows: Sequence[str] = (),
    played: Mapping[str, Mapping[str, Played]] | None = None,
) -> ReplayResult:
    """Replay every container of a source, one at a time or `jobs` at once.

    Parameters
    ----------
    source
        Series, read as they are needed; only a few are in memory at a time.
    plan_for
        Gives each container its policies and phases. With `jobs` above 1 it is sent to other processes.
    decisions_to
        Takes in every decision, or None.
    timelines
        How many containers are kept whole for drawing.
    progress
        Called with the number of grid cells just done.
    jobs
        Processes; the result does not depend on it.
    processes_from
        Grid cells that this process replays itself before it starts others.
    model
        What the report says of the model.
    rows, played
        Rows of the simulated cluster that are laid beside the policies, and what came of each container under them.

    Raises
    ------
    NotEnoughData
        No container has enough samples for a decision, or no policy could be judged.
    Misuse
        `jobs` is below one.
    """
    if jobs < 1:
        raise Misuse(f"{jobs} jobs cannot replay anything. Ask for at least 1.")
    work = _Work(plan_for, options, with_decisions=decisions_to is not None, with_timeline=timelines > 0)
    gathered = _Gathered(timelines, decisions_to, options, tuple(rows), played or {})
    outcomes = work.each(source) if jobs == 1 else _outcomes_of_jobs(iter(source), work, jobs, processes_from)
    with closing(outcomes):
        for outcome in outcomes:
            gathered.take(outcome)
            if progress is not None:
                progress(outcome.cells)
    return gathered.result(model or {})


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What comes back of one container; decisions and timeline only where somebody wants them."""

    container: str
    cells: int
    samples: int
    step_s: float
    policies: tuple[str, ...] = ()
    oracles: frozenset[str] = frozenset()
    judged: Judged | None = None
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """What a process needs to replay containers."""

    plan_for: Planner
    options: ReplayOptions
    with_decisions: bool
    with_timeline: bool

    def one(self, series: UsageSeries) -> _Outcome:
        samples = int(np.count_nonzero(series.present))
        outcome = _Outcome(series.container, len(series), samples, interval_s(series))
        if samples < self.options.fewest_samples:
            return outcome
        plan = self.plan_for(series)
        judged = replay_container(series, plan, self.options)
        if judged is None:
            return outcome
        return replace(
            outcome,
            policies=tuple(policy.name for policy in plan.policies),
            oracles=frozenset(policy.name for policy in plan.policies if policy.oracle),
            timeline=_timeline(series, plan, judged) if self.with_timeline else None,
            judged=judged if self.with_decisions else replace(judged, decisions={}),
        )

    def each(self, source: Iterable[UsageSeries]) -> Generator[_Outcome]:
        for series in source:
            yield self.one(series)

    def all(self, batch: Sequence[UsageSeries]) -> list[_Outcome]:
        return list(self.each(batch))


def _timeline(series: UsageSeries, plan: Plan, judged: Judged) -> Timeline:
    """A container as it is drawn: without the policies that decide at every sample, which are the use itself."""
    drawn = [p.name for p in plan.policies if p.name in judged.decisions and not p.every_sample]
    return Timeline(
        container=series.container,
        workload=series.workload,
        timestamps=series.timestamps,
        usage=series.usage,
        labels=None if plan.phases is None else plan.phases.labels,
        decisions={name: judged.decisions[name] for name in drawn},
        explanations={name: judged.explanations[name] for name in drawn},
    )


def _outcomes_of_jobs(
    source: Iterator[UsageSeries], work: _Work, jobs: int, processes_from: int
) -> Generator[_Outcome]:
    """Outcomes in the order of the source: of this process while there is little to do, then of others."""
    cells = 0
    while cells < processes_from:
        series = next(source, None)
        if series is None:
            return
        cells += len(series)
        yield work.one(series)
    with closing(made_of_each(work.all, _batches(source), jobs, ahead=2)) as batches:
        for outcomes in batches:
            yield from outcomes


def _batches(source: Iterable[UsageSeries]) -> Iterator[list[UsageSeries]]:
    batch: list[UsageSeries] = []
    cells = 0
    for series in source:
        batch.append(series)
        cells += len(series)
        if cells >= BATCH_SAMPLES:
            yield batch
            batch, cells = [], 0
    if batch:
        yield batch


@dataclass(slots=True)
class _Gathered:
    """What the outcomes add up to."""

    n_timelines: int
    decisions_to: DecisionWriter | None
    options: ReplayOptions
    rows: tuple[str, ...]
    played: Mapping[str, Mapping[str, Played]]
    policies: tuple[str, ...] = ()
    oracles: frozenset[str] = frozenset()
    containers: list[ContainerReplay] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    steps: Counter[float] = field(default_factory=Counter)
    unjudged: dict[str, list[str]] = field(default_factory=dict)
    choice: TimelineChoice | None = None

    def take(self, outcome: _Outcome) -> None:
        if outcome.judged is None:
            need = self.options.fewest_samples
            count = f"{outcome.samples} sample{'s' if outcome.samples != 1 else ''}"
            self.left_out.append((outcome.container, f"{count}, a decision that can be judged needs {need}"))
            return
        if self.choice is None:
            self.policies, self.oracles = (*self.rows, *outcome.policies), outcome.oracles
            self.choice = TimelineChoice(self.n_timelines, outcome.oracles)
        played = self.played.get(outcome.container, {})
        judged, timeline = _with_played(outcome, outcome.judged, played)
        self.containers.append(judged.replay)
        self.steps[outcome.step_s] += 1
        for name in self.rows:
            if name not in played:
                self.unjudged.setdefault(name, []).append(outcome.container)
        if timeline is not None:
            self.choice.offer(judged.replay, timeline)
        if self.decisions_to is not None:
            for name, (timestamps, allocations) in judged.decisions.items():
                self.decisions_to.write(outcome.container, name, timestamps, allocations)

    def result(self, model: Mapping[str, object]) -> ReplayResult:
        """All containers under the policies that could be judged on every one of them."""
        if self.choice is None:
            raise NotEnoughData(
                f"none of the {len(self.left_out)} containers has the {self.options.fewest_samples} samples that a "
                "judged decision needs. Give longer recordings, or a finer --step."
            )
        policies = tuple(name for name in self.policies if name not in self.unjudged)
        if not policies:
            raise NotEnoughData(" ".join(self._notes()))
        if self.decisions_to is not None:
            self.decisions_to.dropped.update(self.unjudged)
        step_s = min(self.steps.items(), key=lambda item: (-item[1], item[0]))[0]
        return ReplayResult(
            step_s=step_s,
            cycle_s=self.options.samples_per_cycle(step_s) * step_s,
            policies=policies,
            oracles=self.oracles.intersection(policies),
            containers=tuple(
                replace(c, tallies=_only(c.tallies, policies), runs=_only(c.runs, policies)) for c in self.containers
            ),
            left_out=tuple(self.left_out),
            model=model,
            notes=tuple(self._notes()),
            timelines=tuple(
                replace(
                    line,
                    decisions=_only(line.decisions, policies),
                    explanations=_only(line.explanations, policies),
                    marks=_only(line.marks, policies),
                )
                for line in self.choice.timelines()
            ),
        )

    def _notes(self) -> Iterator[str]:
        for name, containers in self.unjudged.items():
            yield (
                f"{name} is left out: it does not know what to allocate for {len(containers)} of "
                f"{len(self.containers)} containers (the first is {containers[0]!r})"
                f"{', which declare no request' if name in ('static', 'class.peak') else ''}."
            )


def _with_played(outcome: _Outcome, judged: Judged, played: Mapping[str, Played]) -> tuple[Judged, Timeline | None]:
    """A container with what came of it under the rows of the simulated cluster."""
    tallies = {name: one.tally for name, one in played.items()}
    decisions = {name: one.decisions for name, one in played.items()}
    replay = replace(
        judged.replay,
        tallies=tallies | dict(judged.replay.tallies),
        runs={name: one.run for name, one in played.items()},
    )
    timeline = outcome.timeline and replace(
        outcome.timeline,
        decisions=decisions | dict(outcome.timeline.decisions),
        marks={name: one.marks for name, one in played.items()},
    )
    return replace(judged, replay=replay, decisions=decisions | dict(judged.decisions)), timeline


def _only(by_policy: Mapping[str, Any], policies: tuple[str, ...]) -> dict[str, Any]:
    return {name: by_policy[name] for name in policies if name in by_policy}
