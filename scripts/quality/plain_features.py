"""Phases by plain k-means on what a sample shows: the baseline that an encoder must beat, and phases within a class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.cluster import KMeans

from recommender.phases.kmeans import PhaseCentres
from recommender.records import CPU, MEMORY, FloatArray, IntArray

CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES = 0.01, 16.0 * 2**20
STAY = 0.8
"""A new phase must be nearer than this share of the distance to the old one."""

MOST_FITTED = 20_000
RECENT, LONG = 3, 12
"""Samples over which CPU is averaged, and over which its largest is taken."""

WEIGHTS = np.array([1.0, 0.5, 2.0, 0.5, 1.0, 0.5])
"""Of recent CPU, memory, memory against its largest so far, age, slope of memory, largest recent CPU."""


def stage_features(usage: FloatArray) -> FloatArray:
    """float64 (n, 6), natural logarithms of what is known at each of the samples of one run.

    Parameters
    ----------
    usage
        float64 (n, 2): cores and bytes, without gaps.
    """
    cpu, memory = usage[:, CPU], np.log(usage[:, MEMORY] + MEMORY_FLOOR_BYTES)
    recent, largest = _windows(cpu, RECENT).mean(axis=1), _windows(cpu, LONG).max(axis=1)
    earlier = np.concatenate([np.repeat(memory[:1], RECENT), memory])[: len(memory)]
    columns = [
        np.log(recent + CPU_FLOOR_CORES),
        memory,
        memory - np.maximum.accumulate(memory),
        np.log1p(np.arange(len(cpu))),
        memory - earlier,
        np.log(largest + CPU_FLOOR_CORES),
    ]
    features: FloatArray = np.column_stack(columns) * WEIGHTS
    return features


def _windows(values: FloatArray, width: int) -> FloatArray:
    """float64 (n, width): each value with those before it; the first one stands for what was before the start."""
    before = np.repeat(values[:1], width - 1)
    return sliding_window_view(np.concatenate([before, values]), width)


@dataclass(frozen=True, slots=True)
class StageClusters:
    """Centres of phases; features are standardised before."""

    centres: FloatArray
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, usages: Iterable[FloatArray], phases: int, seed: int = 0) -> StageClusters:
        """Fit at most `phases` centres to the runs of a class, or of all."""
        features = np.concatenate([stage_features(usage) for usage in usages])
        mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        standard = (features - mean) / scale
        chosen = np.random.default_rng(seed).permutation(len(standard))[:MOST_FITTED]
        found = KMeans(min(phases, len(chosen)), n_init=2, random_state=seed).fit(standard[chosen])
        return cls(found.cluster_centers_, mean, scale)

    def label(self, usage: FloatArray) -> IntArray:
        """int64 (n,): the phase of each sample of one run, which does not change for a sample half-way between two."""
        standard = (stage_features(usage) - self.mean) / self.scale
        return PhaseCentres(self.centres, (), np.full(len(self.centres), np.inf), STAY).predict_sequence(standard)
