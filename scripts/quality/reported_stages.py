"""The value of knowing stages: phases as reported by jobs, and as recognised by trees fitted on other jobs' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import adjusted_mutual_info_score

from quality.cpu import TARGET, Label, Learned, Phases, Row, Rule, folds, no_phases, phasewise_rule, untrained
from quality.plain_features import StageClusters, stage_features
from recommender.records import CPU, VIOLATION_TOLERANCE, FloatArray, IntArray, UsageSeries

TREES, MIN_SAMPLES_LEAF = 200, 5
PHASES_OF_A_CLASS, PHASES_OF_ALL = 6, 24
"""Clusters of plain features, within a class and over all runs."""


@dataclass(frozen=True, slots=True)
class ReportedStages:
    """Stages that recorded jobs reported: sorted `names`, and `at`: container -> unix second -> index of the stage."""

    names: tuple[str, ...]
    at: Mapping[str, Mapping[int, int]]

    @classmethod
    def read(cls, paths: Sequence[Path], column: str) -> ReportedStages:
        table = pd.concat([pd.read_parquet(path, columns=["container", "timestamp", column]) for path in paths])
        names = tuple(sorted(table[column].unique()))
        number = table[column].map(dict(zip(names, range(len(names)), strict=True)))
        rows = table.assign(number=number).groupby("container")
        return cls(names, {str(one): dict(zip(of.timestamp, of.number, strict=True)) for one, of in rows})

    def of(self, series: UsageSeries) -> IntArray:
        """int64 (n,): stage at each present sample."""
        stages = self.at[series.container]
        return np.array([stages[int(at_s)] for at_s in series.timestamps[series.present]], np.int64)

    def as_reported(self, _series: Sequence[UsageSeries], _seed: int) -> tuple[Label, int]:
        """Phases are the reported stages, of the judged run, too: an upper bound for phases."""
        return self.of, len(self.names) + 1

    def recognised(self, series: Sequence[UsageSeries], seed: int) -> tuple[Label, int]:
        """Phases are stages recognised by trees that were fitted on the reports of other containers."""
        facts = np.concatenate([stage_features(one.usage[one.present]) for one in series])
        trees = ExtraTreesClassifier(TREES, min_samples_leaf=MIN_SAMPLES_LEAF, random_state=seed, n_jobs=-1)
        trees.fit(facts, np.concatenate([self.of(one) for one in series]))
        return lambda one: trees.predict(stage_features(one.usage[one.present])), len(self.names) + 1

    def of_others(self, series: Sequence[UsageSeries], _learned: Learned, _seed: int) -> Rule:
        """What the stage of a sample needed in 95 % of the samples of other containers, in force when it begins."""
        level_of = self._levels(series)
        unknown = max(level_of.values())
        return lambda one, *_: np.array([level_of.get(stage, unknown) for stage in self.of(one)])

    def of_itself(self, one: UsageSeries, _learned: Learned, _changes_per_step: float) -> FloatArray:
        """What the stage of a sample needs in 95 % of the samples of this container, the coming ones included."""
        level_of = self._levels([one])
        return np.array([level_of[stage] for stage in self.of(one)])

    def _levels(self, series: Sequence[UsageSeries]) -> dict[int, float]:
        """Stage -> cores that at most `TARGET` of its samples violate."""
        cores = np.concatenate([one.usage[one.present, CPU] for one in series])
        stages = np.concatenate([self.of(one) for one in series])
        met = 1.0 - TARGET[CPU]
        return {
            int(stage): float(np.quantile(cores[stages == stage], met, method="higher")) / VIOLATION_TOLERANCE
            for stage in np.unique(stages)
        }

    def references(self) -> dict[str, Row]:
        """What knowing the stage of every sample in advance is worth, without a limit to the number of changes."""
        return {
            "oracle of stages, levels of other containers": Row(self.of_others, no_phases),
            "oracle of stages and of the container's own levels": Row(untrained(self.of_itself), no_phases),
        }

    def rows(self) -> dict[str, Row]:
        return self.references() | {
            "phases replaced by the stages that jobs reported": Row(untrained(phasewise_rule()), self.as_reported),
            "phases replaced by those stages as trees recognise them": Row(
                untrained(phasewise_rule()), self.recognised
            ),
        }


def agreement(
    series: Sequence[UsageSeries], stages: ReportedStages, phases: Phases, *, by_program: bool, seed: int
) -> tuple[float, float]:
    """Adjusted mutual information of phases and reported stages: over held-out containers, and mean within a class."""
    found: dict[str | None, list[tuple[IntArray, IntArray]]] = {}
    for training, kept_out in folds(series, by_program=by_program, seed=seed):
        label, _ = phases(training, seed)
        for one in kept_out:
            found.setdefault(one.workload, []).append((stages.of(one), label(one)))
    within = [_shared(pairs) for pairs in found.values()]
    return _shared([pair for pairs in found.values() for pair in pairs]), float(np.mean(within))


def agreement_of_features(series: Sequence[UsageSeries], stages: ReportedStages, seed: int) -> dict[str, float]:
    """Adjusted mutual information for k-means on plain features, fitted on every other run and judged on the rest.

    Clusters are fitted within each class, and over all classes.
    """
    runs = [
        (str(one.workload), one.usage[one.present], stages.of(one))
        for one in sorted(series, key=lambda one: one.container)
    ]
    of_all = StageClusters.fit([usage for _, usage, _ in runs[::2]], PHASES_OF_ALL, seed)
    within = []
    for name in sorted({name for name, _, _ in runs}):
        own = [(usage, stages) for of, usage, stages in runs if of == name]
        clusters = StageClusters.fit([usage for usage, _ in own[::2]], PHASES_OF_A_CLASS, seed)
        within.append(_shared([(stages, clusters.label(usage)) for usage, stages in own[1::2]]))
    return {
        "plain features of every other run, over all": _shared(
            [(stages, of_all.label(usage)) for _, usage, stages in runs[1::2]]
        ),
        "plain features of every other run, of its class alone": float(np.mean(within)),
    }


def _shared(pairs: Sequence[tuple[IntArray, IntArray]]) -> float:
    stages, found = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return float(adjusted_mutual_info_score(stages, found))
