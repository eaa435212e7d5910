"""What it would be worth to know stages: phases as jobs told them, and as trees recognise those that others told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import adjusted_mutual_info_score

from quality.cpu import Label, Phases, Row, decided, fixed, folds
from quality.plain_features import StageClusters, stage_features
from recommender.records import IntArray, UsageSeries

TREES, LEAST_OF_A_LEAF = 200, 5
PHASES_OF_A_CLASS, PHASES_OF_ALL = 6, 24
"""Plain features are looked through for so many, within a class and over all."""


@dataclass(frozen=True, slots=True)
class ToldStages:
    """The stages that recorded jobs told.

    Attributes
    ----------
    names
        All of them, sorted; a stage's number is its place.
    at
        By container and unix second: the number of the stage.
    """

    names: tuple[str, ...]
    at: Mapping[str, Mapping[int, int]]

    @classmethod
    def read(cls, paths: Sequence[Path], column: str) -> ToldStages:
        """From recordings with a column of names."""
        table = pd.concat([pd.read_parquet(path, columns=["container", "timestamp", column]) for path in paths])
        names = tuple(sorted(table[column].unique()))
        number = table[column].map(dict(zip(names, range(len(names)), strict=True)))
        rows = table.assign(number=number).groupby("container")
        return cls(names, {str(one): dict(zip(of.timestamp, of.number, strict=True)) for one, of in rows})

    def of(self, series: UsageSeries) -> IntArray:
        """int64 (n,): the stage at each sample that is there."""
        told = self.at[series.container]
        return np.array([told[int(at_s)] for at_s in series.timestamps[series.present]], np.int64)

    def as_told(self, _series: Sequence[UsageSeries], _seed: int) -> tuple[Label, int]:
        """Phases are the stages, of the judged run as well: what nobody could know better."""
        return self.of, len(self.names) + 1

    def recognised(self, series: Sequence[UsageSeries], seed: int) -> tuple[Label, int]:
        """Phases are the stages that trees take a sample for, taught by what the other containers told."""
        facts = np.concatenate([stage_features(one.usage[one.present]) for one in series])
        trees = ExtraTreesClassifier(TREES, min_samples_leaf=LEAST_OF_A_LEAF, random_state=seed, n_jobs=-1)
        trees.fit(facts, np.concatenate([self.of(one) for one in series]))
        return lambda one: trees.predict(stage_features(one.usage[one.present])), len(self.names) + 1

    def rows(self) -> dict[str, Row]:
        """To be judged beside the others."""
        return {
            "phasewise, phases are the stages told": Row(fixed(decided()), self.as_told),
            "phasewise, stages recognised by trees": Row(fixed(decided()), self.recognised),
        }


def agreement(
    series: Sequence[UsageSeries], told: ToldStages, phases: Phases, *, by_program: bool, seed: int
) -> tuple[float, float]:
    """Adjusted mutual information of phases with the stages told, of containers kept out: over all, and the mean of
    that within each class."""
    groups = folds(series, by_program=by_program, seed=seed)
    found: dict[str | None, list[tuple[IntArray, IntArray]]] = {}
    for group in sorted(set(groups)):
        label, _ = phases([one for one, of in zip(series, groups, strict=True) if of != group], seed)
        for one, of in zip(series, groups, strict=True):
            if of == group:
                found.setdefault(one.workload, []).append((told.of(one), label(one)))
    within = [_shared(pairs) for pairs in found.values()]
    return _shared([pair for pairs in found.values() for pair in pairs]), float(np.mean(within))


def agreement_of_features(series: Sequence[UsageSeries], told: ToldStages, seed: int) -> dict[str, float]:
    """The same of k-means on plain features within each class and over all, on runs that were not fitted on.

    Within a class every other run is fitted on; over all, every other container.
    """
    runs = [
        (str(one.workload), one.usage[one.present], told.of(one))
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
    told, found = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return float(adjusted_mutual_info_score(told, found))
