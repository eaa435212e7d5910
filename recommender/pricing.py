"""Learn the price of a violation: replay the plan over held-out runs at each candidate price, and count violations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.judging import decision_positions
from recommender.phases.graph import PhaseGraph, runs_of
from recommender.policies.phase_demand import EVERY_SAMPLE, ONCE_A_CYCLE, PRICES, SCHEDULES, DemandModel
from recommender.policies.phase_plan import RESIZE_PRICE, PhasePlan, PlanState, weights_of
from recommender.records import VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray, Progress, no_progress

FOLDS = 3
MAX_SAMPLES = 30_000
"""Approximate number of samples to replay per price: a share of 5 % is then known to a tenth of it or better."""

MIN_RUN_SAMPLES = 200  # least samples to replay of a run: its start tells little of the violations later
LEAD_SAMPLES = 2  # lead time of decisions at every sample
AHEAD_SAMPLES = 12  # planning horizon after the lead time
CHANGES_PER_SAMPLE = 0.05  # twelve resizes an hour at 15 s a sample


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run with the phase of each sample."""

    name: str  # runs of one name are held out together, if there are enough names
    usage: FloatArray  # float64 (n, 2), without gaps
    labels: IntArray  # int64 (n,): phases; the unknown one is the last
    ended: bool = True  # whether the run itself ended, and not only its recording


def fit_demand(
    runs: Sequence[LabelledRun], phases: int, cycle_samples: int, lag: int, progress: Progress = no_progress
) -> tuple[DemandModel, PhaseGraph]:
    """Fit demand and graph of `phases` phases, the unknown one included, and prices by cross-validation."""
    names = [run.name for run in runs]
    if len(set(names)) < FOLDS:  # one or two workloads: split by run
        names = [str(place) for place in range(len(runs))]
    distinct = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold_of = {name: place % FOLDS for place, name in enumerate(distinct)}
    violated = np.zeros((SCHEDULES, 2, len(PRICES)))
    judged = 0
    for fold in range(FOLDS if len(distinct) >= FOLDS else 0):
        progress("prices", fold, FOLDS)
        trained = _fit_unpriced([run for run, name in zip(runs, names, strict=True) if fold_of[name] != fold], phases)
        held_out = sample_for_pricing([run for run, name in zip(runs, names, strict=True) if fold_of[name] == fold])
        for schedule in (EVERY_SAMPLE, ONCE_A_CYCLE):
            violated[schedule] += _violations(held_out, schedule, *trained, cycle_samples, lag)
        judged += sum(max(0, len(run.usage) - lag - 1) for run in held_out)
    demand, graph = _fit_unpriced(runs, phases)
    return replace(demand, violations=violated / judged if judged else _assumed_violations()), graph


def is_priced(demand: DemandModel) -> bool:
    """Whether its prices were learned, and not assumed because no run was long enough."""
    return not np.array_equal(demand.violations, _assumed_violations())


def sample_for_pricing(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """The first samples of each run, or of evenly spaced runs where each would be cut too short."""
    n, wanted = len(runs), MAX_SAMPLES // FOLDS
    per_run = max(MIN_RUN_SAMPLES, wanted // max(n, 1))
    available = sum(min(len(run.usage), per_run) for run in runs)
    number = n if available <= wanted else math.ceil(n * wanted / available)
    sampled = (runs[place * n // number] for place in range(number))
    return [replace(run, usage=run.usage[:per_run], labels=run.labels[:per_run]) for run in sampled]


def _assumed_violations() -> FloatArray:
    """Violations that fall with the price as they usually do: 5 % at a price of 3."""
    return np.broadcast_to(0.15 / PRICES, (SCHEDULES, 2, len(PRICES))).copy()


def _fit_unpriced(runs: Sequence[LabelledRun], phases: int) -> tuple[DemandModel, PhaseGraph]:
    graph = PhaseGraph(phases)
    for run in runs:
        graph.learn(runs_of(run.labels), ended=run.ended)
    return DemandModel.fit([run.usage for run in runs], [run.labels for run in runs], phases), graph


def _violations(
    runs: Sequence[LabelledRun], schedule: int, demand: DemandModel, graph: PhaseGraph, cycle_samples: int, lag: int
) -> FloatArray:
    """float64 (2, prices): number of samples in violation at each price."""
    lead, ahead, resize, changes = LEAD_SAMPLES, AHEAD_SAMPLES, RESIZE_PRICE, CHANGES_PER_SAMPLE
    if schedule == ONCE_A_CYCLE:
        lead, ahead, resize, changes = 0, cycle_samples, 0.0, np.inf
    occupancy = graph.foresight(lead, ahead).occupancy
    expected = demand.expected(occupancy[np.newaxis], lead, ahead)
    state, counts = PlanState(graph.n_phases, 1), np.zeros((2, len(PRICES)))
    decisions_of = [_decisions(schedule, len(run.usage), cycle_samples, lag) for run in runs]
    for place, price in enumerate(PRICES):
        plan = PhasePlan(state, expected, weights_of(np.full(2, price), (0.05, 0.05), changes, resize))
        for run, decisions in zip(runs, decisions_of, strict=True):
            state.reset(0)
            requests = plan.follow(0, run.usage, run.labels, decisions, lead)
            in_force = np.concatenate([np.full((lead, 2), np.nan), requests])[: len(run.usage)]
            counts[:, place] += (run.usage > in_force * VIOLATION_TOLERANCE)[lag + 1 :].sum(axis=0)
    return counts


def _decisions(schedule: int, n: int, cycle_samples: int, lag: int) -> BoolArray:
    """bool (n + 1,): whether to decide before each of n samples, and after the last."""
    decisions = np.arange(n + 1) > 0
    if schedule == ONCE_A_CYCLE:
        decisions[:] = False
        decisions[decision_positions(np.ones(n, bool), cycle_samples, lag)] = True
    return decisions
