"""One pass over one container's usage: its level, and its level against the container's own past."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def levels_of(used: float, floor: float, mean_level: float, seen: int) -> tuple[float, float]:
    """Log2 of one sample, and of the mean of so many samples up to it, given that of those before."""
    level = math.log2(used + floor)
    return level, mean_level + (level - mean_level) / seen


@njit(cache=True, nogil=True)
def usage_features(
    usage: NDArray[np.float64],
    cpu_floor_cores: float,
    memory_floor_bytes: float,
    longest: int,
    out: NDArray[np.float64],
) -> None:
    """Fill `out` with the features of `recommender.phases.features.USAGE_FEATURES`, in that order.

    Parameters
    ----------
    usage : float64 (n, 2)
        Cores and bytes, NaN in gaps.
    cpu_floor_cores, memory_floor_bytes
        Added before the logarithm: an idle container has a finite level, and noise at its floor is small.
    longest
        Samples the own past goes back; beyond it older samples fade.
    out : float64 (n, 4), OUT
        NaN in gaps; a gap leaves the container's mean level as it was.
    """
    floors = (cpu_floor_cores, memory_floor_bytes)
    for resource in range(2):
        mean_level, seen = 0.0, 0
        for t in range(usage.shape[0]):
            used = usage[t, resource]
            if math.isnan(used):
                out[t, resource] = out[t, 2 + resource] = math.nan
                continue
            seen = min(seen + 1, longest)
            level, mean_level = levels_of(used, floors[resource], mean_level, seen)
            out[t, resource] = level
            out[t, 2 + resource] = level - mean_level
