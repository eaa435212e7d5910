"""Memory of containers taken in by their groups one after the other: many may belong to one."""

from __future__ import annotations

from numba import njit

from recommender.kernels import FloatArray, IntArray


@njit(cache=True, nogil=True)
def record_peaks(
    groups: IntArray,
    used_bytes: FloatArray,
    ages_s: FloatArray,
    factor: float,
    peak_bytes: FloatArray,
    peak_age_s: FloatArray,
) -> None:
    """Record memory usage, float64 (m,), of containers of these ages.

    A peak that is exceeded by less than `factor` is the same one. `peak_bytes` and `peak_age_s` are IN OUT float64
    (n, days) and (n,): peaks of each day, today's first, and the age at the largest.
    """
    for k in range(len(groups)):
        group = groups[k]
        if used_bytes[k] > peak_bytes[group].max() * factor:
            peak_age_s[group] = ages_s[k]
        peak_bytes[group, 0] = max(peak_bytes[group, 0], used_bytes[k])
