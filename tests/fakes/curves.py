"""Demand curves of runs that were not throttled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recommender.base.records import CPU
from recommender.policies.demand_curve import DemandCurve


def curve_of(step_s: float, levels: NDArray[np.float32]) -> DemandCurve:
    seen = levels[~np.isnan(levels[:, CPU]), CPU]
    return DemandCurve(step_s, levels, float(seen.mean(dtype=np.float64)) if len(seen) else 0.0)
