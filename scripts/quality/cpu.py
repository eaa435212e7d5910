"""CPU judged by samples, with changes two samples late and a budget of changes: Phasewise, ablations and references.

Models are fitted on containers other than the judged ones, or on another data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quality.plain_features import StageClusters
from recommender.judging import interval_s
from recommender.kernels.phase_plan import LONG_WINDOW, PLAN, SHORT_WINDOW
from recommender.phases.detector import DetectorOptions, fit_detector
from recommender.phases.features import USAGE_FEATURES
from recommender.phases.graph import DWELL_BUCKETS
from recommender.policies.phase_demand import EVERY_SAMPLE, FLOORS, DemandModel
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES, LEAD_SAMPLES, LabelledRun, fit_demand
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray, IntArray, UsageSeries

FIRST_DECISION, LONG_SAMPLES, FOLDS = 4, 200, 3
PHASES = 12
PEAK_RUNS, PEAK_MARGIN = 3, 1.15
TARGET = (0.05, 0.05)
CYCLE_SAMPLES = 40


@dataclass(frozen=True, slots=True)
class Result:
    """Slack ratio, share of samples in violation, its 90th percentile over long containers (None without any), and
    changes per hour."""

    slack: float
    violation: float
    violation_p90: float | None
    changes_per_hour: float


Label = Callable[[UsageSeries], IntArray]
"""Container -> phase of each present sample; the highest number stands for "unknown"."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What was fitted on the containers of the other folds."""

    label: Label
    demand: DemandModel
    occupancy: FloatArray


def by_encoder(series: Sequence[UsageSeries], seed: int, features: Sequence[str] = USAGE_FEATURES) -> tuple[Label, int]:
    """Phases as in the recommender: clusters of CRBM codes."""
    detector, _ = fit_detector(series, DetectorOptions(tuple(features), phases=PHASES, seed=seed), CYCLE_SAMPLES)

    def label(one: UsageSeries) -> IntArray:
        labels = detector.trace(one)[one.present]
        return np.where(labels < 0, detector.n_phases, labels)

    return label, detector.n_phases + 1


def by_features(series: Sequence[UsageSeries], seed: int) -> tuple[Label, int]:
    clusters = StageClusters.fit([one.usage[one.present] for one in series], PHASES, seed)
    return lambda one: clusters.label(one.usage[one.present]), len(clusters.centres) + 1


def no_phases(_series: Sequence[UsageSeries], _seed: int) -> tuple[Label, int]:
    return lambda one: np.zeros(int(one.present.sum()), np.int64), 2


def learn(series: Sequence[UsageSeries], phases: Phases, *, by_program: bool, seed: int) -> Learned:
    """Fit on containers; with `by_program`, those of one program are held out together while the price is chosen."""
    label, number = phases(series, seed)
    runs = [
        LabelledRun((one.workload if by_program else None) or one.container, one.usage[one.present], label(one))
        for one in series
    ]
    demand, graph = fit_demand(runs, number, CYCLE_SAMPLES, lag=FIRST_DECISION - 1)
    return Learned(label, demand, graph.foresight(LEAD_SAMPLES, AHEAD_SAMPLES).occupancy)


Phases = Callable[[Sequence[UsageSeries], int], tuple[Label, int]]
"""(containers, seed) -> (labelling of phases, number of phases)."""

Rule = Callable[[UsageSeries, Learned, float], FloatArray]
"""(container, fitted models, budget of changes per step) -> cores in force at each sample."""

RuleFactory = Callable[[Sequence[UsageSeries], Learned, int], Rule]
"""(other containers, models fitted on them, seed) -> rule."""


@dataclass(frozen=True, slots=True)
class Row:
    """How a rule is fitted, and which phases it uses."""

    factory: RuleFactory
    phases: Phases = by_encoder


def untrained(rule: Rule) -> RuleFactory:
    return lambda *_: rule


def phasewise_rule(expert: int | None = None, *, use_forecast: bool = True, own_price: bool = True) -> Rule:
    """Rule of Phasewise or of one of its experts; by the graph's forecast, or as if the present phase lasted.

    Without `own_price` the price of a violation is the same for all containers.
    """

    def decide(series: UsageSeries, learned: Learned, changes_per_step: float) -> FloatArray:
        table = learned.occupancy
        phases = table.shape[-1]
        if not use_forecast:
            table = np.broadcast_to(np.eye(phases)[:, np.newaxis], (phases + 1, phases, DWELL_BUCKETS, phases)).copy()
        weights = weights_of(learned.demand.price(EVERY_SAMPLE, TARGET), TARGET, changes_per_step)
        expected = learned.demand.expected(table[np.newaxis], LEAD_SAMPLES, AHEAD_SAMPLES)
        made, slot = PhasePlan(PlanState(phases, 1, resources=1), expected, weights), np.zeros(1, np.int64)
        usage, labels = series.usage[series.present][:, [CPU]], learned.label(series)
        decided = np.full((len(labels) + LEAD_SAMPLES, 1), np.nan)
        requests = decided[:, 0].copy()
        for row in range(len(labels)):
            made.correct(slot, usage[row : row + 1], decided[row : row + 1])
            if not own_price:
                made.state.now.price_factor[slot] = 1.0
            made.observe(slot, usage[row : row + 1], labels[row : row + 1], np.ones(1, bool))
            if row + LEAD_SAMPLES + 1 < len(decided):
                decided[row + LEAD_SAMPLES + 1] = made.decide(slot, slot)[0]
                requests[row + LEAD_SAMPLES + 1] = (
                    decided[row + LEAD_SAMPLES + 1, CPU]
                    if expert is None
                    else made.state.now.asked[0, expert, CPU] * FLOORS[CPU]
                )
        return requests[: len(labels)]

    return decide


def largest_of_the_last(samples: int, margin: float, off: float) -> Rule:
    """Largest of the last samples with a margin; changed when it is off by the share `off`."""

    def decide(series: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        cores = series.usage[series.present, CPU]
        requests = np.empty(len(cores))
        current = np.nan
        for row in range(len(cores)):
            wanted = cores[max(0, row - samples + 1) : row + 1].max() * margin
            if not abs(wanted - current) <= off * current:
                current = wanted
            requests[row] = current
        return np.concatenate([np.full(LEAD_SAMPLES + 1, np.nan), requests])[: len(cores)]

    return decide


def earlier_peak(series: Sequence[UsageSeries]) -> Rule:
    """Largest peak of the runs of the class that ended before, with a margin; as declared until there are three."""
    peaks: dict[str | None, list[tuple[int, float]]] = {}
    for one in series:
        peaks.setdefault(one.workload, []).append((int(one.timestamps[-1]), float(one.usage[one.present, CPU].max())))

    def decide(one: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        earlier = [peak for end, peak in peaks[one.workload] if end < one.timestamps[0]]
        if len(earlier) >= PEAK_RUNS:
            return np.full(int(one.present.sum()), max(earlier) * PEAK_MARGIN)
        declared: FloatArray = one.requests[one.present, CPU]  # type: ignore[index]  # used only where all have requests
        return declared

    return decide


def oracle(series: UsageSeries, _learned: Learned, changes_per_step: float) -> FloatArray:
    """As many segments as the budget allows, each at its largest use; the cheapest pairs are merged."""
    cores = series.usage[series.present, CPU]
    peaks, lengths = cores.copy(), np.ones(len(cores), np.int64)
    for _ in range(len(cores) - max(1, round(len(cores) * changes_per_step))):
        both = np.maximum(peaks[:-1], peaks[1:])
        added_slack = (both - peaks[:-1]) * lengths[:-1] + (both - peaks[1:]) * lengths[1:]
        at = int(added_slack.argmin())
        peaks[at], lengths[at] = both[at], lengths[at] + lengths[at + 1]
        peaks, lengths = np.delete(peaks, at + 1), np.delete(lengths, at + 1)
    return np.repeat(peaks, lengths)


ROWS = {
    "Phasewise: the plan on the graph's forecast, beside two rules": Row(untrained(phasewise_rule())),
    'forecast replaced by "the present phase lasts"': Row(untrained(phasewise_rule(use_forecast=False))),
    "one price of violations for all containers": Row(untrained(phasewise_rule(own_price=False))),
    "phases by k-means on six plain features": Row(untrained(phasewise_rule()), by_features),
    "no phases": Row(untrained(phasewise_rule()), no_phases),
    "the plan alone": Row(untrained(phasewise_rule(PLAN))),
    "the plan alone, no phases": Row(untrained(phasewise_rule(PLAN)), no_phases),
    "the rule of ten samples alone": Row(untrained(phasewise_rule(SHORT_WINDOW))),
    "the rule of forty samples alone": Row(untrained(phasewise_rule(LONG_WINDOW))),
    "largest of the last 40 x 1.05": Row(untrained(largest_of_the_last(40, 1.05, 0.15))),
    "oracle, same number of changes": Row(untrained(oracle)),
}
"""Phasewise, its ablations, and the references."""

PEAK = "largest peak of earlier runs x 1.15"


def rows_for(series: Sequence[UsageSeries]) -> dict[str, Row]:
    """Rows that apply to these containers: peaks of earlier runs need classes and requests."""
    if all(one.workload is not None and one.requests is not None for one in series):
        return ROWS | {PEAK: Row(untrained(earlier_peak(series)))}
    return dict(ROWS)


def judge(series: Sequence[UsageSeries], in_force: Sequence[FloatArray]) -> Result:
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
    p90 = float(np.quantile(shares, 0.9)) if shares else None
    return Result(slack / used, float(np.concatenate(violated).mean()), p90, changes / hours)


def compare(
    series: Sequence[UsageSeries], changes_per_hour: float, more: Mapping[str, Row], *, by_program: bool, seed: int
) -> dict[str, Result]:
    """Judge all rows, and `more`, on each container, fitted on other programs (`by_program`) or other containers."""
    rows, judged = {**rows_for(series), **more}, list[UsageSeries]()
    in_force: dict[str, list[FloatArray]] = {name: [] for name in rows}
    for training, kept_out in folds(series, by_program=by_program, seed=seed):
        judged += kept_out
        for name, cores in cores_in_force(kept_out, training, changes_per_hour, rows, by_program, seed).items():
            in_force[name] += cores
    return {name: judge(judged, in_force[name]) for name in rows}


def compare_unseen(
    series: Sequence[UsageSeries],
    training: Sequence[UsageSeries],
    changes_per_hour: float,
    more: Mapping[str, Row],
    seed: int,
) -> dict[str, Result]:
    """Judge all rows, and `more`, on containers of a data set that was not fitted on."""
    rows = {**rows_for(series), **more}
    in_force = cores_in_force(series, training, changes_per_hour, rows, True, seed)
    return {name: judge(series, in_force[name]) for name in rows}


def cores_in_force(
    series: Sequence[UsageSeries],
    training: Sequence[UsageSeries],
    changes_per_hour: float,
    rows: Mapping[str, Row],
    by_program: bool,
    seed: int,
) -> dict[str, list[FloatArray]]:
    """Cores in force at each sample of each container, by row."""
    learned = {
        phases: learn(training, phases, by_program=by_program, seed=seed)
        for phases in {row.phases for row in rows.values()}
    }
    found: dict[str, list[FloatArray]] = {}
    for name, row in rows.items():
        known = learned[row.phases]
        rule = row.factory(training, known, seed)
        found[name] = [rule(one, known, changes_per_hour * interval_s(one) / 3600.0) for one in series]
    return found


def folds(
    series: Sequence[UsageSeries], *, by_program: bool, seed: int
) -> Iterator[tuple[list[UsageSeries], list[UsageSeries]]]:
    """(containers to fit on, containers kept out) of each fold; whole programs share a fold with `by_program`."""
    if by_program:
        programs = sorted({one.workload or one.container for one in series})
        places = [programs.index(one.workload or one.container) for one in series]
    else:
        places = np.random.default_rng(seed).permutation(len(series)).tolist()
    groups = [place % FOLDS for place in places]
    for group in sorted(set(groups)):
        training = [one for one, of in zip(series, groups, strict=True) if of != group]
        yield training, [one for one, of in zip(series, groups, strict=True) if of == group]
