"""One pass over one container's usage: levels, levels against its own past, and trends."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def usage_features(
    usage: NDArray[np.float64],
    cpu_floor_cores: float,
    memory_floor_bytes: float,
    smoothing: float,
    out: NDArray[np.float64],
) -> None:
    """Fill `out` with the six features of `recommender.phases.features.USAGE_FEATURES`, in that order.

    Parameters
    ----------
    usage : float64 (n, 2)
        Cores and bytes, NaN in gaps.
    cpu_floor_cores, memory_floor_bytes
        Added before a logarithm or a ratio: an idle container has a finite level, and noise at its floor is small.
    smoothing
        Weight of the newest sample in the running mean, 0..1.
    out : float64 (n, 6), OUT
        NaN in gaps; a gap leaves the container's peaks and means as they were.
    """
    floors = (cpu_floor_cores, memory_floor_bytes)
    for resource in range(2):
        floor = floors[resource]
        peak = floor
        mean = -1.0  # no sample yet; usage is never negative
        for t in range(usage.shape[0]):
            used = usage[t, resource]
            if math.isnan(used):
                out[t, resource] = out[t, 2 + resource] = out[t, 4 + resource] = math.nan
                continue
            if mean < 0.0:
                mean = used
            peak = max(peak, used)
            out[t, resource] = math.log2(used + floor)
            out[t, 2 + resource] = used / peak
            out[t, 4 + resource] = math.log2((used + floor) / (mean + floor))
            mean += smoothing * (used - mean)
