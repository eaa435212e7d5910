"""How much is wasted at how many violations: ours, the oracle, and the reactive policies with the margin they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.judging import ReplayOptions, decision_positions, durations_s, interval_s, judge
from recommender.phases.detector import DetectorOptions
from recommender.phases.features import USAGE_FEATURES
from recommender.planning import Planner
from recommender.records import Block, FloatArray, IntArray, Tally, UsageSeries
from recommender.replay import Plan
from recommender.training import CrossFit, TrainingOptions, cross_fit, train

TARGET = 0.05
OURS = "phase.proactive"


@dataclass(frozen=True, slots=True)
class Result:
    """Slack and violation ratios, each (cpu, memory), and OOM events."""

    slack: tuple[float, float]
    violation: tuple[float, float]
    oom_events: int

    @classmethod
    def of(cls, total: Tally) -> Result:
        return cls(
            (total.slack[0] / total.used[0], total.slack[1] / total.used[1]),
            (total.violations[0] / total.samples, total.violations[1] / total.samples),
            total.oom_events,
        )


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions of one policy on one container, to be judged with any margin."""

    series: UsageSeries
    positions: IntArray
    allocations: FloatArray


def decide(
    series: Sequence[UsageSeries], plan_for: Callable[[UsageSeries], Plan], options: ReplayOptions
) -> list[Decided]:
    """Every decision of the first policy of each plan."""
    made = []
    for one in series:
        cycle = options.samples_per_cycle(interval_s(one))
        positions = decision_positions(one.present, cycle, options.lag)
        if len(positions):
            plan = plan_for(one)
            block = Block(one.usage, one.timestamps, positions, plan.phases, one.requests)
            made.append(Decided(one, positions, plan.policies[0].decide(block, cycle)[0]))
    return made


def with_margin(made: Sequence[Decided], factors: tuple[float, float]) -> Result:
    """The figures when every allocation is multiplied."""
    tallies = [judge(d.series.usage, d.positions, d.allocations * factors, durations_s(d.series), 1.05) for d in made]
    return Result.of(sum(tallies, Tally()))


def at_violation(made: Sequence[Decided], targets: tuple[float, float]) -> Result:
    """The figures at the smallest margin whose violations are at the target, per resource, by bisection."""
    low, high = np.full(2, 0.05), np.full(2, 400.0)
    for _ in range(40):
        middle = np.sqrt(low * high)
        violation = with_margin(made, (float(middle[0]), float(middle[1]))).violation
        above = np.array(violation) > np.array(targets) + 1e-12
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return with_margin(made, (float(high[0]), float(high[1])))


def compare(
    judged: Sequence[UsageSeries], fitted: Sequence[UsageSeries] | None, options: ReplayOptions, seed: int = 0
) -> dict[str, Result]:
    """Ours and the references on the same containers.

    Parameters
    ----------
    judged
        Containers to judge.
    fitted
        Containers to learn from; None cross-fits `judged` by container.
    options
        The cycle.
    seed
        Of training and folds.
    """
    training = TrainingOptions(
        DetectorOptions(USAGE_FEATURES, seed=seed), cycle_s=options.cycle_s, cycle_samples=options.cycle_samples
    )
    model: CrossFit | object
    if fitted is None:
        model = cross_fit(judged, sorted(s.container for s in judged), training)
    else:
        model = train(fitted, training)
    results = {OURS: with_margin(decide(judged, Planner((OURS,), model), options), (1.0, 1.0))}  # type: ignore[arg-type]
    for name in ("current.step.max", "prev.step.max", "prev.step.rules"):
        made = decide(judged, Planner((name,), None), options)
        results[name] = with_margin(made, (1.0, 1.0))
        results[f"{name} at 5 %"] = at_violation(made, (TARGET, TARGET))
        results[f"{name} at ours"] = at_violation(made, results[OURS].violation)
    results["histogram"] = with_margin(decide(judged, Planner(("histogram",), None), options), (1.0, 1.0))
    return results
