"""What a violation must cost: the plan is played over runs that taught it nothing, at one price after the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.judging import decision_positions
from recommender.phases.graph import PhaseGraph
from recommender.phases.runs import runs_of
from recommender.policies.phase_demand import EVERY_SAMPLE, ONCE_A_CYCLE, PRICES, RULES, DemandModel
from recommender.policies.phase_plan import RESIZE, PhasePlan, PlanState, weights_of
from recommender.records import VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray

FOLDS = 3
MOST_SAMPLES = 30_000
"""Samples that each price is tried on, about: a share of five in a hundred is known to a tenth of it or better."""

LEAST_SAMPLES = 200
"""Of a run: what begins tells little of what a violation costs later."""

LEAD_SAMPLES = 2
"""Decisions as they come are in force so much later."""

AHEAD_SAMPLES = 12
"""For so many samples after that the plan looks ahead."""

CHANGES_PER_SAMPLE = 0.05
"""Twelve an hour of samples 15 s apart."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run as the plan meets it.

    Attributes
    ----------
    name
        Runs of one name are kept out together, where there are enough names.
    usage
        float64 (n, 2), without gaps.
    labels
        int64 (n,): phases, the unknown one is the last.
    ended
        Whether it was over, and did not merely stop being recorded.
    """

    name: str
    usage: FloatArray
    labels: IntArray
    ended: bool = True


def fit_demand(
    runs: Sequence[LabelledRun], phases: int, cycle_samples: int, lag: int, progress: Progress | None = None
) -> tuple[DemandModel, PhaseGraph]:
    """Demand with its prices, and the graph, from runs.

    Parameters
    ----------
    phases
        How many there are, with the unknown one.
    cycle_samples, lag
        Of the decisions once a cycle.
    """
    names = [run.name for run in runs]
    if len(set(names)) < FOLDS:  # runs of one or two workloads: each stands for itself
        names = [str(place) for place in range(len(runs))]
    different = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold_of = {name: place % FOLDS for place, name in enumerate(different)}
    folds = [fold_of[name] for name in names]
    violated = np.zeros((len(RULES), 2, len(PRICES)))
    judged = 0
    for fold in range(FOLDS if len(different) >= FOLDS else 0):
        taught = _without_prices([run for run, its in zip(runs, folds, strict=True) if its != fold], phases)
        kept_out = tried_on([run for run, its in zip(runs, folds, strict=True) if its == fold])
        for rule in (EVERY_SAMPLE, ONCE_A_CYCLE):
            violated[rule] += _violations(kept_out, rule, *taught, cycle_samples, lag)
        judged += sum(max(0, len(run.usage) - lag - 1) for run in kept_out)
        if progress is not None:
            progress("prices", fold + 1, FOLDS)
    demand, graph = _without_prices(runs, phases)
    return replace(demand, violations=violated / max(judged, 1) if judged else _unknown()), graph


def is_priced(demand: DemandModel) -> bool:
    """Whether its prices were learned, and not assumed for want of runs that are long enough."""
    return not np.array_equal(demand.violations, _unknown())


def tried_on(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """The first samples of each; where that is too little of each, of every n-th."""
    n, wanted = len(runs), MOST_SAMPLES // FOLDS
    most = max(LEAST_SAMPLES, wanted // max(n, 1))
    told = sum(min(len(run.usage), most) for run in runs)
    number = n if told <= wanted else math.ceil(n * wanted / told)
    few = (runs[place * n // number] for place in range(number))
    return [replace(run, usage=run.usage[:most], labels=run.labels[:most]) for run in few]


def _unknown() -> FloatArray:
    """As if violations fell with the price as they mostly do: five in a hundred at a price of three."""
    return np.broadcast_to(0.15 / PRICES, (len(RULES), 2, len(PRICES))).copy()


def _without_prices(runs: Sequence[LabelledRun], phases: int) -> tuple[DemandModel, PhaseGraph]:
    graph = PhaseGraph(phases)
    for run in runs:
        graph.learn(runs_of(run.labels), ended=run.ended)
    return DemandModel.fit([run.usage for run in runs], [run.labels for run in runs], phases), graph


def _violations(
    runs: Sequence[LabelledRun], rule: int, demand: DemandModel, graph: PhaseGraph, cycle_samples: int, lag: int
) -> FloatArray:
    """float64 (2, prices): how many samples violate at each price."""
    late, resize, changes = (LEAD_SAMPLES, RESIZE, CHANGES_PER_SAMPLE) if rule == EVERY_SAMPLE else (0, 0.0, np.inf)
    ahead = AHEAD_SAMPLES if rule == EVERY_SAMPLE else cycle_samples
    occupancy = graph.to_provide_for(late, ahead).occupancy
    expected = demand.expected(occupancy[np.newaxis], late, ahead)
    state, counted = PlanState(graph.n_phases, 1), np.zeros((2, len(PRICES)))
    decided = [_decisions(rule, len(run.usage), cycle_samples, lag) for run in runs]
    for place, price in enumerate(PRICES):
        plan = PhasePlan(state, expected, weights_of(np.full(2, price), (0.05, 0.05), changes, resize))
        for run, decisions in zip(runs, decided, strict=True):
            state.reset(0)
            asked = plan.follow(0, run.usage, run.labels, decisions, late)
            in_force = np.concatenate([np.full((late, 2), np.nan), asked])[: len(run.usage)]
            counted[:, place] += (run.usage > in_force * VIOLATION_TOLERANCE)[lag + 1 :].sum(axis=0)
    return counted


def _decisions(rule: int, n: int, cycle_samples: int, lag: int) -> BoolArray:
    """Before which of n samples, and after the last, it is decided: bool (n + 1,)."""
    decisions = np.arange(n + 1) > 0
    if rule == ONCE_A_CYCLE:
        decisions[:] = False
        decisions[decision_positions(np.ones(n, bool), cycle_samples, lag)] = True
    return decisions
