"""Phases by k-means on plain features of samples: the baseline for the encoder, over all runs or within a class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.cluster import KMeans

from recommender.phases.kmeans import PhaseCentres
from recommender.records import CPU, MEMORY, FloatArray, IntArray

CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES = 0.01, 16.0 * 2**20
SWITCH_RATIO = 0.8
"""A sample changes phase if the new centre is nearer than this share of the distance to the old one."""

MAX_FIT_SAMPLES = 20_000
RECENT, LONG = 3, 12
"""Samples over which CPU is averaged, and over which its largest is taken."""

WEIGHTS = np.array([1.0, 0.5, 2.0, 0.5, 1.0, 0.5])
"""Weights of recent CPU, memory, memory relative to its maximum so far, age, slope of memory, recent maximum of CPU."""


def stage_features(usage: FloatArray) -> FloatArray:
    """float64 (n, 6): logarithms of what is known at each sample of `usage` (n, 2), cores and bytes without gaps."""
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
    """float64 (n, width): each value with its predecessors; the first value pads the start."""
    before = np.repeat(values[:1], width - 1)
    return sliding_window_view(np.concatenate([before, values]), width)


@dataclass(frozen=True, slots=True)
class StageClusters:
    """Cluster centres in standardised features."""

    centres: FloatArray
    mean: FloatArray
    scale: FloatArray

    @classmethod
    def fit(cls, usages: Iterable[FloatArray], phases: int, seed: int = 0) -> StageClusters:
        """Fit at most `phases` centres to the runs of a class, or of all."""
        features = np.concatenate([stage_features(usage) for usage in usages])
        mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
        standard = (features - mean) / scale
        chosen = np.random.default_rng(seed).permutation(len(standard))[:MAX_FIT_SAMPLES]
        found = KMeans(min(phases, len(chosen)), n_init=2, random_state=seed).fit(standard[chosen])
        return cls(found.cluster_centers_, mean, scale)

    def label(self, usage: FloatArray) -> IntArray:
        """int64 (n,): phase of each sample of a run, with hysteresis between centres."""
        standard = (stage_features(usage) - self.mean) / self.scale
        return PhaseCentres(self.centres, (), np.full(len(self.centres), np.inf), SWITCH_RATIO).predict_sequence(
            standard
        )
