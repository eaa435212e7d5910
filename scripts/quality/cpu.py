"""CPU judged by samples, changes two samples late under a budget: what decides, what its parts are worth, references.

What is learned comes from containers kept out, or from a world that the judged containers are no part of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from quality.plain_features import StageClusters
from recommender.judging import interval_s
from recommender.kernels.phase_plan import LONG_WINDOW, PLAN, SHORT_WINDOW
from recommender.phases.detector import DetectorOptions, PhaseDetector, fit_detector
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
    demand, graph = fit_demand(runs, number, CYCLE_SAMPLES, lag=FIRST_DECISION - 1)
    return Learned(label, demand, graph.foresight_for_plan(LEAD_SAMPLES, AHEAD_SAMPLES).occupancy)


Phases = Callable[[Sequence[UsageSeries], int], tuple[Label, int]]
"""From containers and a seed to how phases are told, and how many there are."""

Rule = Callable[[UsageSeries, Learned, float], FloatArray]
"""From a container, what was learned elsewhere and a budget of changes a step to cores in force at each sample."""


Taught = Callable[[Sequence[UsageSeries], Learned, int], Rule]
"""From other containers, what was learned of their phases, and a seed, to a rule."""


@dataclass(frozen=True, slots=True)
class Row:
    """How a rule is learned, and how phases are told for it."""

    taught: Taught
    phases: Phases = by_encoder


def fixed(rule: Rule) -> Taught:
    """A rule for which nothing else is learned."""
    return lambda *_: rule


def decided(expert: int | None = None, *, looks_ahead: bool = True) -> Rule:
    """What is decided, or what one expert alone asks for; with the graph's occupancy, or as if the phase now lasted."""

    def decide(series: UsageSeries, learned: Learned, changes_per_step: float) -> FloatArray:
        table = learned.occupancy
        phases = table.shape[-1]
        if not looks_ahead:
            table = np.broadcast_to(np.eye(phases)[:, np.newaxis], (phases + 1, phases, DWELL_BUCKETS, phases)).copy()
        weights = weights_of(learned.demand.price(EVERY_SAMPLE, TARGET), TARGET, changes_per_step)
        expected = learned.demand.expected(table[np.newaxis], LEAD_SAMPLES, AHEAD_SAMPLES)
        made, slot = PhasePlan(PlanState(phases, 1, resources=1), expected, weights), np.zeros(1, np.int64)
        usage, labels = series.usage[series.present][:, [CPU]], learned.label(series)
        heard, asked = np.full((len(labels) + LEAD_SAMPLES, 1), np.nan), np.full(len(labels) + LEAD_SAMPLES, np.nan)
        for row in range(len(labels)):
            made.correct(slot, usage[row : row + 1], heard[row : row + 1])
            made.observe(slot, usage[row : row + 1], labels[row : row + 1])
            if row + LEAD_SAMPLES + 1 < len(heard):
                heard[row + LEAD_SAMPLES + 1] = made.decide(slot, slot)[0]
                asked[row + LEAD_SAMPLES + 1] = (
                    heard[row + LEAD_SAMPLES + 1, CPU]
                    if expert is None
                    else made.state.asked[0, expert, CPU] * FLOORS[CPU]
                )
        return asked[: len(labels)]

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
        return np.concatenate([np.full(LEAD_SAMPLES + 1, np.nan), asked])[: len(cores)]

    return decide


def earlier_peak(series: Sequence[UsageSeries]) -> Rule:
    """The largest peak of the runs of its class that ended before it, with a margin; before three, as declared."""
    peaks: dict[str | None, list[tuple[int, float]]] = {}
    for one in series:
        peaks.setdefault(one.workload, []).append((int(one.timestamps[-1]), float(one.usage[one.present, CPU].max())))

    def decide(one: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        earlier = [peak for end, peak in peaks[one.workload] if end < one.timestamps[0]]
        if len(earlier) >= PEAK_RUNS:
            return np.full(int(one.present.sum()), max(earlier) * PEAK_MARGIN)
        declared: FloatArray = one.requests[one.present, CPU]  # type: ignore[index]  # asked only where all have some
        return declared

    return decide


def oracle(series: UsageSeries, _learned: Learned, changes_per_step: float) -> FloatArray:
    """As many stretches as the budget allows, each with its largest use: the cheapest cuts, merged pair by pair."""
    cores = series.usage[series.present, CPU]
    peaks, lengths = cores.copy(), np.ones(len(cores), np.int64)
    for _ in range(len(cores) - max(1, round(len(cores) * changes_per_step))):
        both = np.maximum(peaks[:-1], peaks[1:])
        dearer = (both - peaks[:-1]) * lengths[:-1] + (both - peaks[1:]) * lengths[1:]
        at = int(dearer.argmin())
        peaks[at], lengths[at] = both[at], lengths[at] + lengths[at + 1]
        peaks, lengths = np.delete(peaks, at + 1), np.delete(lengths, at + 1)
    return np.repeat(peaks, lengths)


ROWS = {
    "phasewise": Row(fixed(decided())),
    "phasewise, the phase now lasts": Row(fixed(decided(looks_ahead=False))),
    "phasewise, phases by k-means on plain features": Row(fixed(decided()), by_features),
    "phasewise, no phases": Row(fixed(decided()), no_phases),
    "the plan alone": Row(fixed(decided(PLAN))),
    "the plan alone, the phase now lasts": Row(fixed(decided(PLAN, looks_ahead=False))),
    "the plan alone, no phases": Row(fixed(decided(PLAN)), no_phases),
    "its rule of ten samples alone": Row(fixed(decided(SHORT_WINDOW))),
    "its rule of forty samples alone": Row(fixed(decided(LONG_WINDOW))),
    "largest of the last 40 x 1.05": Row(fixed(largest_of_the_last(40, 1.05, 0.15))),
    "oracle, as many changes where they pay": Row(fixed(oracle)),
}
"""What each part is worth, and the references."""

PEAK = "largest peak of earlier runs x 1.15"


def rows_for(series: Sequence[UsageSeries]) -> dict[str, Row]:
    """The rows that can be asked for these: the peaks of earlier runs need classes and requests."""
    if all(one.workload is not None and one.requests is not None for one in series):
        return ROWS | {PEAK: Row(fixed(earlier_peak(series)))}
    return dict(ROWS)


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
    series: Sequence[UsageSeries],
    changes_per_hour: float,
    more: Mapping[str, Row],
    *,
    by_program: bool,
    seed: int,
) -> dict[str, Result]:
    """All rows, and `more`, on each container, learned from other programs where asked, else from other containers."""
    groups, rows = folds(series, by_program=by_program, seed=seed), rows_for(series) | more
    in_force: dict[str, list[FloatArray]] = {name: [np.empty(0)] * len(series) for name in rows}
    for group in sorted(set(groups)):
        taught_by = [one for one, of in zip(series, groups, strict=True) if of != group]
        kept_out = [number for number, of in enumerate(groups) if of == group]
        found = played([series[number] for number in kept_out], taught_by, changes_per_hour, rows, by_program, seed)
        for name, cores in found.items():
            for number, of_one in zip(kept_out, cores, strict=True):
                in_force[name][number] = of_one
    return {name: judged(series, in_force[name]) for name in rows}


def compare_strangers(
    series: Sequence[UsageSeries],
    taught_by: Sequence[UsageSeries],
    changes_per_hour: float,
    more: Mapping[str, Row],
    seed: int,
) -> dict[str, Result]:
    """All rows, and `more`, on containers of a world that taught nothing."""
    rows = rows_for(series) | more
    in_force = played(series, taught_by, changes_per_hour, rows, True, seed)
    return {name: judged(series, in_force[name]) for name in rows}


def played(
    series: Sequence[UsageSeries],
    taught_by: Sequence[UsageSeries],
    changes_per_hour: float,
    rows: Mapping[str, Row],
    by_program: bool,
    seed: int,
) -> dict[str, list[FloatArray]]:
    """Cores in force at each sample of each container, by row."""
    learned = {
        phases: learn(taught_by, phases, by_program=by_program, seed=seed)
        for phases in {row.phases for row in rows.values()}
    }
    found: dict[str, list[FloatArray]] = {}
    for name, row in rows.items():
        known = learned[row.phases]
        rule = row.taught(taught_by, known, seed)
        found[name] = [rule(one, known, changes_per_hour * interval_s(one) / 3600.0) for one in series]
    return found


def folds(series: Sequence[UsageSeries], *, by_program: bool, seed: int) -> list[int]:
    """Three groups: whole programs where asked, so that each is judged by what others taught; else containers."""
    if by_program:
        programs = sorted({one.workload or one.container for one in series})
        return [programs.index(one.workload or one.container) % FOLDS for one in series]
    return [int(place) % FOLDS for place in np.random.default_rng(seed).permutation(len(series))]
