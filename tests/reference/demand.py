"""Demand of phases, sample by sample: a slow version of `DemandModel.fit`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from recommender.policies.phase_demand import HORIZONS, MIN_OWN_SAMPLES, QUANTILES

SHARES = (np.arange(QUANTILES) + 0.5) / QUANTILES


def demands(
    runs: Sequence[tuple[Sequence[float], Sequence[int]]], phases: int, level_samples: int
) -> tuple[list[list[list[float]]], list[list[float]], list[list[float]]]:
    """Staying (later, phases, q), visiting and returning (phases, q) demands of runs: amounts in floors, and phases."""
    staying: dict[tuple[int, int], list[float]] = defaultdict(list)
    visiting: dict[int, list[float]] = defaultdict(list)
    returning: dict[int, list[float]] = defaultdict(list)
    for amounts, labels in runs:
        own: dict[int, list[float]] = defaultdict(list)
        for now, (amount, phase) in enumerate(zip(amounts, labels, strict=True)):
            used = math.log1p(amount)
            visiting[phase].append(used)
            if len(own[phase]) >= MIN_OWN_SAMPLES:
                returning[phase].append(used - sum(own[phase]) / len(own[phase]))
            own[phase].append(used)
            for steps in HORIZONS:
                earlier = now - steps
                if earlier >= 0 and labels[earlier] == phase:
                    latest = amounts[max(0, earlier + 1 - level_samples) : earlier + 1]
                    staying[steps, phase].append(used - math.log1p(sum(latest) / len(latest)))
    return (
        [quantiles([staying[steps, phase] for phase in range(phases)]) for steps in HORIZONS],
        quantiles([visiting[phase] for phase in range(phases)]),
        quantiles([returning[phase] for phase in range(phases)]),
    )


def quantiles(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Quantiles of each phase; those of all phases for one with too few values."""
    everything = [value for of_phase in values for value in of_phase]
    if not everything:
        return [[0.0] * QUANTILES for _ in values]
    return [np.quantile(own if len(own) >= QUANTILES // 4 else everything, SHARES).tolist() for own in values]
