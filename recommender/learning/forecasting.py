"""Fit what decisions rest on: demand and graph of the phases, what each expert costs in held-out runs, and how far the
memory of runs spreads within a class."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, Progress, no_progress
from recommender.kernels.experts import CLASS, EXPERTS, GRAPH, LEAD_SAMPLES, PAST, WINDOWS
from recommender.phases.graph import PhaseGraph, runs_of
from recommender.policies.class_runs import ClassRuns
from recommender.policies.experts import Experts, ExpertState, weights_of
from recommender.policies.memory_runs import ClassMemory, MemoryOfRuns, variances_of_classes
from recommender.policies.phase_demand import DemandModel

FOLDS = 3
MAX_SAMPLES = 30_000
"""Approximate number of samples to replay."""

MIN_RUN_SAMPLES = 200  # least samples to replay of a run: its start tells little of what comes later
AHEAD_SAMPLES = 12  # planning horizon after the lead time
CHANGES_PER_HOUR, STEP_S = 12.0, 15.0  # what experts are compared under

MAX_MEMORY_CLASSES = 256  # whose spread a model keeps

OF_SAMPLES = np.array([GRAPH, *range(WINDOWS, EXPERTS)])
"""The experts that need nothing but samples."""

CLASS_SHARE, PAST_SHARE = 0.95, 0.8
"""Losses of the experts that no training data has, as shares of the least of the others: experience comes first."""


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run with the phase of each sample."""

    name: str  # runs of one name are held out together, if there are enough names
    usage: FloatArray  # float64 (n, 2), without gaps
    labels: IntArray  # int64 (n,): phases; the unknown one is the last
    ended: bool = True  # whether the run itself ended, and not only its recording


def fit_demand(
    runs: Sequence[LabelledRun], phases: int, lag: int, target_violation: float, progress: Progress = no_progress
) -> tuple[DemandModel, PhaseGraph]:
    """Fit demand and graph of `phases` phases, the unknown one included, and losses by cross-validation."""
    names = [run.name for run in runs]
    if len(set(names)) < FOLDS:  # one or two workloads: split by run
        names = [str(place) for place in range(len(runs))]
    distinct = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    fold_of = {name: place % FOLDS for place, name in enumerate(distinct)}
    known = ClassRuns()
    for fold in range(FOLDS if len(distinct) >= FOLDS else 0):
        progress("losses", fold, FOLDS)
        trained = _fit([run for run, name in zip(runs, names, strict=True) if fold_of[name] != fold], phases)
        held_out = sample_for_replay([run for run, name in zip(runs, names, strict=True) if fold_of[name] == fold])
        for of_run in losses_in(held_out, *trained, lag, target_violation):
            known.charge(*of_run)
    demand, graph = _fit(runs, phases)
    return replace(demand, losses=_with_experience(known.expected_losses(demand.losses))), graph


def memory_variances(runs: Sequence[LabelledRun]) -> FloatArray:
    """How far the memory of runs that ended spreads within those of one name, see `variances_of_classes`."""
    classes = defaultdict[str, ClassMemory](ClassMemory)
    memory = MemoryOfRuns(len(runs))
    for row in range(max(len(run.usage) for run in runs)):
        slots = np.array([slot for slot, run in enumerate(runs) if row < len(run.usage)])
        memory.observe(slots, np.array([runs[slot].usage[row, MEMORY] for slot in slots.tolist()]), LEAD_SAMPLES + 1)
    for slot, run in enumerate(runs):
        if run.ended:
            classes[run.name].add(memory.run(slot))
    return variances_of_classes(classes.values())[:, :MAX_MEMORY_CLASSES]


def losses_in(
    runs: Sequence[LabelledRun], demand: DemandModel, graph: PhaseGraph, lag: int, target_violation: float
) -> Iterator[tuple[FloatArray, FloatArray, float]]:
    """Replay runs under a forecast that was not fitted to them: what each expert cost in them, see `ClassRuns`."""
    state = ExpertState(graph.n_phases, 1)
    expected = demand.expected(
        graph.foresight(LEAD_SAMPLES, AHEAD_SAMPLES).occupancy[np.newaxis], LEAD_SAMPLES, AHEAD_SAMPLES
    )
    experts = Experts(state, expected, weights_of(target_violation, CHANGES_PER_HOUR, STEP_S, float(demand.mean)))
    for run in runs:
        state.reset(0)
        decides = np.arange(len(run.usage)) >= lag
        experts.replay(0, np.ascontiguousarray(run.usage[:, CPU]), run.labels, decides)
        yield state.now.losses[0].copy(), state.now.charged[0].copy(), float(len(run.usage))


def sample_for_replay(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """The first samples of each run, or of evenly spaced runs where each would be cut too short."""
    n, wanted = len(runs), MAX_SAMPLES // FOLDS
    per_run = max(MIN_RUN_SAMPLES, wanted // max(n, 1))
    available = sum(min(len(run.usage), per_run) for run in runs)
    number = n if available <= wanted else math.ceil(n * wanted / available)
    sampled = (runs[place * n // number] for place in range(number))
    return [replace(run, usage=run.usage[:per_run], labels=run.labels[:per_run]) for run in sampled]


def is_compared(demand: DemandModel) -> bool:
    """Whether the losses of its experts were learned; without enough runs all count alike."""
    return len(set(demand.losses[OF_SAMPLES].tolist())) > 1


def _with_experience(losses: FloatArray) -> FloatArray:
    """The same with those of the experts that no training data has."""
    losses[[CLASS, PAST]] = losses[OF_SAMPLES].min() * np.array([CLASS_SHARE, PAST_SHARE])
    return losses


def _fit(runs: Sequence[LabelledRun], phases: int) -> tuple[DemandModel, PhaseGraph]:
    graph = PhaseGraph(phases)
    for run in runs:
        graph.learn(runs_of(run.labels), ended=run.ended)
    return DemandModel.fit([run.usage[:, CPU] for run in runs], [run.labels for run in runs], phases), graph
