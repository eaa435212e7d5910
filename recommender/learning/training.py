"""Train a model on series, or cross-fit one per fold so that no container is judged by a model trained on it."""

from __future__ import annotations

import hashlib
import math
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib.externals.loky import ProcessPoolExecutor

from recommender.base.cycle import cycle_samples_on
from recommender.base.errors import NotEnoughData
from recommender.base.records import CPU, Progress, UsageSeries, no_progress
from recommender.learning.forecasting import LabelledRun, fit_demand, is_compared, memory_variances
from recommender.learning.model import PhaseModel, name_hashes
from recommender.phases.detector import DetectorOptions, PhaseDetector, fit_detector
from recommender.phases.statistics import phase_statistics

FOLDS = 5  # folds of cross-fitting: each container is judged by the model that was not trained on it

TRAINING_SAMPLES = 400_000
"""Most samples to train on, whole containers in the order of a hash of their names: memory is bounded, and on the
traces measured more samples improved no held-out figure."""

MAX_CONTEXTS = 5_000  # of a model's graph, which would otherwise outgrow a ConfigMap; decisions use shorter contexts

CUT_OFF_SAMPLES = 2
"""A container whose last sample is within this many of the end of the source is assumed to be still running there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions(DetectorOptions):
    """Options of `phasewise train`."""

    cycle_s: float = 600.0
    cycle_samples: int | None = None  # overrides `cycle_s`
    target_violation: tuple[float, float] = (0.05, 0.05)  # share of samples that may violate, cpu and memory

    def cycle_on(self, step_s: float) -> int:
        """Number of samples in a cycle on a grid of this step."""
        return cycle_samples_on(step_s, self.cycle_s, self.cycle_samples) if step_s > 0 else self.cycle_samples or 40


def gather(source: Iterable[UsageSeries], containers: Sequence[str], shortest: int) -> list[UsageSeries]:
    """Containers of at least `shortest` samples, at most `TRAINING_SAMPLES` in all, in the order of a hash of names."""
    allowed = set(containers)
    kept: list[UsageSeries] = []
    total = 0
    for series in source:
        if series.container not in allowed or int(series.present.sum()) < shortest:
            continue
        kept.append(series)
        total += len(series)
        if total > 2 * TRAINING_SAMPLES:
            kept, total = _thinned(kept)
    return sorted(_thinned(kept)[0], key=lambda s: s.container)


def train(
    series: Sequence[UsageSeries], options: TrainingOptions, *, data_hash: str = "", progress: Progress = no_progress
) -> PhaseModel:
    """Fit detector, phase statistics, graph and demand, in this order; NotEnoughData if no container is long enough."""
    if not series:
        raise NotEnoughData(
            f"no container has {options.lag + 2} samples to learn from. Give longer series, or a finer --step."
        )
    facts = training_facts(series, options, data_hash)
    detector, count = fit_detector(series, options, facts["cycle_samples"], progress)
    facts |= {
        "seed": options.seed,
        "epochs": len(detector.encoder.errors_),
        "reconstruction_error": float(min(detector.encoder.errors_)),
    }
    if count is not None:
        facts["phases_chosen"] = {
            "by": "held-out forecast",
            "elbow": count.elbow_k,
            "squares": {str(k): v for k, v in count.squares.items()},
            "forecast_loss": {str(k): v for k, v in count.forecast_loss.items()},
        }
    return with_forecasts(detector, series, options, facts, progress)


def training_facts(series: Sequence[UsageSeries], options: TrainingOptions, data_hash: str) -> dict[str, Any]:
    """Facts for the manifest: the size of the data, their grid, and what was trained for."""
    step_s = _most_common_step_s(series)
    return {
        "containers": len(series),
        "samples": int(sum(s.present.sum() for s in series)),
        "step_s": step_s,
        "cycle_s": options.cycle_on(step_s) * step_s,
        "cycle_samples": options.cycle_on(step_s),
        "target_violation": list(options.target_violation),
        "data_sha256": data_hash,
    }


def with_forecasts(
    detector: PhaseDetector,
    series: Sequence[UsageSeries],
    options: TrainingOptions,
    facts: dict[str, Any],
    progress: Progress = no_progress,
) -> PhaseModel:
    """Fit statistics, graph and demand to the phases that a detector finds in these series."""
    labels = [detector.trace(one) for one in series]
    unknown = detector.n_phases
    statistics = phase_statistics(series, labels, detector.features, unknown)
    runs = []
    for one, of_run, ended in zip(series, labels, _ended(series), strict=True):
        known = np.where(of_run < 0, unknown, of_run)[one.present]  # gaps add nothing to a dwell
        runs.append(LabelledRun(one.workload or one.container, one.usage[one.present], known, ended))
    demand, graph = fit_demand(runs, unknown + 1, detector.lag, options.target_violation[CPU], progress)
    graph = graph.within(MAX_CONTEXTS)
    until_s = max(facts.get("until_s", 0), *(int(one.timestamps[-1]) for one in series))
    facts = {**facts, "until_s": until_s, "compared": is_compared(demand)}
    trained_on = np.unique(name_hashes(series))
    return PhaseModel(detector, statistics, graph, demand, memory_variances(runs), facts, trained_on=trained_on)


@dataclass(frozen=True, slots=True)
class CrossFit:
    """Models by fold, and the fold whose model was not trained on each container."""

    models: tuple[PhaseModel, ...]
    fold_of: dict[str, int]

    def model_for(self, container: str) -> PhaseModel:
        return self.models[self.fold_of[container]]


def cross_fit(
    source: Iterable[UsageSeries],
    containers: Sequence[str],
    options: TrainingOptions,
    progress: Progress = no_progress,
    jobs: int = 1,
) -> CrossFit:
    """Train a model per fold on the containers of the others, read each time; NotEnoughData for only one container."""
    if len(containers) < 2:
        raise NotEnoughData(
            "one container cannot be judged by a model of the others: there are none. Replay more of them, or give a "
            "--model, such as `bundled`."
        )
    folds = min(FOLDS, len(containers))
    shuffled = np.random.default_rng(options.seed).permutation(len(containers))
    fold_of = {containers[i]: int(position % folds) for position, i in enumerate(shuffled)}

    progress("folds", 0, folds)

    def training_sets() -> Iterator[tuple[list[UsageSeries], TrainingOptions]]:
        for fold in range(folds):
            learn = [name for name in containers if fold_of[name] != fold]
            seeded = replace(options, seed=options.seed + fold)
            yield gather(source, learn, options.lag + 2), seeded

    models: list[PhaseModel] = []
    with closing(ordered_map(_train_fold, training_sets(), min(jobs, folds))) as trained:
        for model in trained:
            models.append(model)
            progress("folds", len(models), folds)
    return CrossFit(tuple(models), fold_of)


def _train_fold(training_set: tuple[Sequence[UsageSeries], TrainingOptions]) -> PhaseModel:
    series, options = training_set
    return train(series, options)


def _ended(series: Sequence[UsageSeries]) -> list[bool]:
    """Which of these had ended: as the cluster reported, or else those that stop before the source does."""
    end_s = max(int(one.timestamps[-1]) for one in series)
    return [
        one.facts.ended
        if not math.isnan(one.facts.started_s)
        else one.timestamps[-1] + CUT_OFF_SAMPLES * one.step_s < end_s
        for one in series
    ]


def _thinned(series: list[UsageSeries]) -> tuple[list[UsageSeries], int]:
    """Whole containers in hash order, up to `TRAINING_SAMPLES`, at least one; and their samples."""
    kept: list[UsageSeries] = []
    total = 0
    for one in sorted(series, key=lambda s: hashlib.sha256(s.container.encode()).digest()):
        if kept and total + len(one) > TRAINING_SAMPLES:
            continue
        kept.append(one)
        total += len(one)
    return kept, total


def _most_common_step_s(series: Sequence[UsageSeries]) -> float:
    steps, counts = np.unique([s.step_s for s in series], return_counts=True)
    return float(steps[counts.argmax()])


def ordered_map(function: Callable[[Any], Any], items: Iterable[Any], jobs: int) -> Generator[Any]:
    """Yield the function's results in order, computed by `jobs` processes on one item each; 1 is this process."""
    if jobs == 1:
        yield from map(function, items)
        return
    # Workers ignore Ctrl-C; this process ends them.
    executor = ProcessPoolExecutor(
        max_workers=jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    pending: deque[Any] = deque()
    finished = False
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        finished = True
    finally:
        # After an interruption no worker may go on in the background.
        executor.shutdown(wait=True, kill_workers=not finished)
