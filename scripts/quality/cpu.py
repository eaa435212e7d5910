"""CPU judged by samples, changes two samples late under a budget: the plan, what its parts are worth, references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from recommender.judging import interval_s
from recommender.phases.detector import DetectorOptions, PhaseDetector, fit_detector
from recommender.phases.features import USAGE_FEATURES
from recommender.phases.sojourns import BUCKETS
from recommender.phases.stages import StageClusters
from recommender.policies.phase_demand import AS_IT_COMES, DemandModel
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES, LATE_SAMPLES, LabelledRun, fit_demand
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray, UsageSeries

FIRST_DECISION, LONG_SAMPLES, FOLDS = 4, 200, 3
PHASES = 12
TARGET = (0.05, 0.05)
CYCLE_SAMPLES = 40


@dataclass(frozen=True, slots=True)
class Result:
    """Slack ratio and violations of all samples, of nine in ten long containers, and changes an hour."""

    slack: float
    violation: float
    violation_nine_of_ten: float
    changes_per_hour: float


Label = Callable[[UsageSeries], IntArray]
"""From a container to the phase of each sample that is there, the unknown one the last."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a fold learned from the other containers."""

    label: Label
    demand: DemandModel
    occupancy: FloatArray


def by_encoder(series: Sequence[UsageSeries], seed: int) -> tuple[Label, int]:
    """Phases as the recommender tells them: codes of the CRBM."""
    detector, _ = fit_detector(series, DetectorOptions(USAGE_FEATURES, phases=PHASES, seed=seed), CYCLE_SAMPLES)
    return partial(_labels, detector), detector.n_phases + 1


def by_features(series: Sequence[UsageSeries], seed: int) -> tuple[Label, int]:
    """The baseline of the encoder: k-means on what a sample shows."""
    clusters = StageClusters.fit([one.usage[one.present] for one in series], PHASES, seed)
    return lambda one: clusters.label(one.usage[one.present]), len(clusters.centres) + 1


def no_phases(_series: Sequence[UsageSeries], _seed: int) -> tuple[Label, int]:
    """All of a run is one phase."""
    return lambda one: np.zeros(int(one.present.sum()), np.int64), 2


def _labels(detector: PhaseDetector, series: UsageSeries) -> IntArray:
    labels = detector.trace(series).labels[series.present]
    return np.where(labels < 0, detector.n_phases, labels)


def learn(series: Sequence[UsageSeries], phases: Phases, *, by_program: bool, seed: int) -> Learned:
    """Learn from containers; those of one program are kept out together while the price is found."""
    label, number = phases(series, seed)
    runs = [
        LabelledRun((one.workload if by_program else None) or one.container, one.usage[one.present], label(one))
        for one in series
    ]
    demand, sojourns = fit_demand(runs, number, CYCLE_SAMPLES, lag=FIRST_DECISION - 1)
    return Learned(label, demand, sojourns.to_provide_for(LATE_SAMPLES, AHEAD_SAMPLES).occupancy)


Phases = Callable[[Sequence[UsageSeries], int], tuple[Label, int]]
"""From containers and a seed to how phases are told, and how many there are."""

Rule = Callable[[UsageSeries, Learned, float], FloatArray]
"""From a container, what was learned elsewhere and a budget of changes a step to cores in force at each sample."""


@dataclass(frozen=True, slots=True)
class Row:
    """A rule, and how phases are told for it."""

    rule: Rule
    phases: Phases = by_encoder


def plan(*, looks_ahead: bool = True) -> Rule:
    """The plan with the graph's occupancy, or with the phase now as all that is expected."""

    def decide(series: UsageSeries, learned: Learned, changes_per_step: float) -> FloatArray:
        table, labels = learned.occupancy, learned.label(series)
        phases = table.shape[-1]
        if not looks_ahead:
            table = np.broadcast_to(np.eye(phases)[:, np.newaxis], (phases + 1, phases, BUCKETS, phases)).copy()
        weights = weights_of(learned.demand.price(AS_IT_COMES, TARGET), TARGET, changes_per_step)
        expected = learned.demand.expected(table[np.newaxis], LATE_SAMPLES, AHEAD_SAMPLES)
        made = PhasePlan(PlanState(phases, 1), expected, weights)
        asked = made.follow(0, series.usage[series.present], labels, np.arange(len(labels) + 1) > 0, LATE_SAMPLES)
        return np.concatenate([np.full(LATE_SAMPLES, np.nan), asked[:, CPU]])[: len(labels)]

    return decide


def largest_of_the_last(samples: int, margin: float, off: float) -> Rule:
    """The rule of one line: largest of the last samples with a margin, changed when it is off."""

    def decide(series: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        cores = series.usage[series.present, CPU]
        asked = np.empty(len(cores))
        current = np.nan
        for row in range(len(cores)):
            wanted = cores[max(0, row - samples + 1) : row + 1].max() * margin
            if not abs(wanted - current) <= off * current:
                current = wanted
            asked[row] = current
        return np.concatenate([np.full(LATE_SAMPLES + 1, np.nan), asked])[: len(cores)]

    return decide


def oracle(series: UsageSeries, _learned: Learned, changes_per_step: float) -> FloatArray:
    """The largest use of each stretch of equal length, as many as the budget allows, known before it begins."""
    cores = series.usage[series.present, CPU]
    length = max(1, round(1.0 / changes_per_step))
    starts = np.arange(0, len(cores), length)
    return np.repeat(np.maximum.reduceat(cores, starts), length)[: len(cores)]


ROWS = {
    "plan: occupancy of the graph": Row(plan()),
    "plan: the phase now lasts": Row(plan(looks_ahead=False)),
    "plan: phases by k-means on plain features": Row(plan(), by_features),
    "plan: no phases": Row(plan(), no_phases),
    "largest of the last 40 x 1.05": Row(largest_of_the_last(40, 1.05, 0.15)),
    "oracle, as many changes, evenly spaced": Row(oracle),
}
"""What each part is worth, and the references."""


def judged(series: Sequence[UsageSeries], in_force: Sequence[FloatArray]) -> Result:
    """All samples from the first that a decision can serve on."""
    slack = used = hours = 0.0
    violated: list[BoolArray] = []
    changes = 0
    for one, allocated in zip(series, in_force, strict=True):
        cores, cores_in_force = one.usage[one.present, CPU][FIRST_DECISION:], allocated[FIRST_DECISION:]
        slack += float(np.maximum(cores_in_force - cores, 0.0).sum())
        used += float(cores.sum())
        violated.append(cores > cores_in_force * VIOLATION_TOLERANCE)
        changes += int(np.count_nonzero(np.diff(cores_in_force)))
        hours += len(one) * interval_s(one) / 3600.0
    shares = [float(v.mean()) for v in violated if len(v) >= LONG_SAMPLES - FIRST_DECISION]
    nine = float(np.quantile(shares, 0.9)) if shares else np.nan
    return Result(slack / used, float(np.concatenate(violated).mean()), nine, changes / hours)


def compare(
    series: Sequence[UsageSeries], changes_per_hour: float, rows: Mapping[str, Row], *, by_program: bool, seed: int
) -> dict[str, Result]:
    """Rules on each container, learned from other programs where asked, else from other containers."""
    groups = folds(series, by_program=by_program, seed=seed)
    in_force: dict[str, list[FloatArray]] = {name: [np.empty(0)] * len(series) for name in rows}
    for group in sorted(set(groups)):
        taught_by = [one for one, of in zip(series, groups, strict=True) if of != group]
        learned = {
            phases: learn(taught_by, phases, by_program=by_program, seed=seed)
            for phases in {row.phases for row in rows.values()}
        }
        for number in (number for number, of in enumerate(groups) if of == group):
            per_step = changes_per_hour * interval_s(series[number]) / 3600.0
            for name, row in rows.items():
                in_force[name][number] = row.rule(series[number], learned[row.phases], per_step)
    return {name: judged(series, in_force[name]) for name in rows}


def folds(series: Sequence[UsageSeries], *, by_program: bool, seed: int) -> list[int]:
    """Three groups: whole programs where asked, so that each is judged by what others taught; else containers."""
    if by_program:
        programs = sorted({one.workload or one.container for one in series})
        return [programs.index(one.workload or one.container) % FOLDS for one in series]
    return [int(place) % FOLDS for place in np.random.default_rng(seed).permutation(len(series))]
