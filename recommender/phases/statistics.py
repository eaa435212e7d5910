"""Statistics of each phase: mean and standard deviation of features, share of time, and a description in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.base.errors import BadArtifact
from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, UsageSeries
from recommender.base.units import format_cpu, format_memory
from recommender.phases.features import USAGE_FEATURES, feature_matrix

NOTABLE_RATIO = 1.2  # ratio to the container's mean level from which on a description mentions it

VARIABLE_CV = 0.5
"""Coefficient of variation above which usage is variable: the paper separates compute phases by CPU variance."""


ARRAYS = ("usage_mean", "usage_sd", "feature_mean", "feature_sd", "samples", "containers")
"""Fields of `PhaseStatistics` that a model folder holds."""


@dataclass(frozen=True, slots=True)
class PhaseStatistics:
    """Mean and standard deviation of usage and features in each phase (AI4DL, section 3, "Phase Information")."""

    features: tuple[str, ...]  # column names of `feature_mean` and `feature_sd`
    # Cores and bytes, float64 (k, 2).
    usage_mean: FloatArray
    usage_sd: FloatArray
    # float64 (k, n_features).
    feature_mean: FloatArray
    feature_sd: FloatArray
    samples: IntArray  # int64 (k,): training samples of each phase; without any its row is NaN
    containers: IntArray  # int64 (k,): number of containers in which it occurs

    @property
    def n_phases(self) -> int:
        return len(self.samples)

    def share(self, phase: int) -> float:
        """The share of a phase of all samples."""
        return float(self.samples[phase] / max(int(self.samples.sum()), 1))

    def describe(self, phase: int) -> str:
        """Describe a phase in one line from its numbers."""
        if not self.samples[phase]:
            return "not met in training"
        cpu, memory = self.usage_mean[phase]
        parts = [
            f"{self._spread(phase, CPU)} CPU around {format_cpu(cpu)}{self._relative(phase, 'cpu')}",
            f"{self._spread(phase, MEMORY)} memory around {format_memory(memory)}{self._relative(phase, 'memory')}",
        ]
        return ", ".join(parts)

    def _spread(self, phase: int, resource: int) -> str:
        mean, sd = self.usage_mean[phase, resource], self.usage_sd[phase, resource]
        return "variable" if sd > VARIABLE_CV * mean else "steady"

    def _relative(self, phase: int, resource: str) -> str:
        """The ratio to the container's mean level if it is notable and among the features."""
        name = f"{resource}.relative"
        if name not in self.features:
            return ""
        ratio = float(2 ** self.feature_mean[phase, self.features.index(name)])
        return "" if 1 / NOTABLE_RATIO < ratio < NOTABLE_RATIO else f" ({ratio:.1f} times its own usual)"

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Arrays for the model folder."""
        return {f"phases.{name}": getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]], features: Sequence[str], phases: int) -> PhaseStatistics:
        """Read the arrays of `to_state`; BadArtifact if one has the wrong shape."""
        statistics = cls(tuple(features), *(state[f"phases.{name}"] for name in ARRAYS))
        shapes = [(phases, 2)] * 2 + [(phases, len(features))] * 2 + [(phases,)] * 2
        for name, shape in zip(ARRAYS, shapes, strict=True):
            if getattr(statistics, name).shape != shape:
                raise BadArtifact(f"the model's statistics: {name} does not fit {phases} phases. Train it again.")
        return statistics


def phase_statistics(
    series: Sequence[UsageSeries], labels: Sequence[IntArray], features: Sequence[str], n_phases: int
) -> PhaseStatistics:
    """Compute the statistics over whole containers, without gaps and samples of unknown phase."""
    shown = tuple(features) if set(features) & set(USAGE_FEATURES) else (*features, *USAGE_FEATURES)
    width = 2 + len(shown)
    count = np.zeros(n_phases, dtype=np.int64)
    containers = np.zeros(n_phases, dtype=np.int64)
    total, squares = np.zeros((n_phases, width)), np.zeros((n_phases, width))
    shift = np.zeros(width)
    for one, phases in zip(series, labels, strict=True):
        values = np.column_stack([one.usage, feature_matrix(one, shown)])
        complete = np.isfinite(values).all(axis=1)
        if one is series[0] and complete.any():  # otherwise sums of squares of bytes would cancel
            shift = values[complete].mean(axis=0)
        values -= shift
        for phase in np.unique(phases[complete & (phases >= 0)]):
            rows = values[complete & (phases == phase)]
            count[phase] += len(rows)
            containers[phase] += 1
            total[phase] += rows.sum(axis=0)
            squares[phase] += (rows**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count[:, None]
        sd = np.sqrt(np.maximum(squares / count[:, None] - mean**2, 0.0))
    mean = mean + shift
    return PhaseStatistics(shown, mean[:, :2], sd[:, :2], mean[:, 2:], sd[:, 2:], count, containers)
