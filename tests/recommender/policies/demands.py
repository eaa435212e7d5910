"""Demand of phases that always use the same."""

from __future__ import annotations

import numpy as np

from recommender.base.records import FloatArray
from recommender.kernels.experts import EXPERTS
from recommender.phases.graph import DWELL_BUCKETS
from recommender.policies.phase_demand import FLOOR_CORES, HORIZONS, QUANTILES, DemandModel


def constant_demand(cores: list[float], mean_cores: float = 1.0) -> DemandModel:
    """Each phase always uses the same."""
    phases = len(cores)
    visiting = np.log1p(np.tile(np.array(cores)[:, np.newaxis] / FLOOR_CORES, (1, QUANTILES)))
    return DemandModel(
        np.zeros((len(HORIZONS), phases, QUANTILES), np.float32),
        visiting.astype(np.float32),
        np.zeros((phases, QUANTILES), np.float32),
        np.array(mean_cores / FLOOR_CORES),
        np.ones(EXPERTS),
    )


def occupancy_of(shares: list[float]) -> FloatArray:
    """Occupancy that is the same in every context, of one class."""
    phases = len(shares)
    return np.tile(np.array(shares), (1, phases + 1, phases, DWELL_BUCKETS, 1))
