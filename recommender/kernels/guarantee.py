"""Holding the share of a container's own violations, whatever was forecast for it."""

from __future__ import annotations

from numba import njit

GAIN, PATIENCE, CALMS = 0.02, 5.0, 0.98
"""Of the correction: 2 % a violation, doubled with each one after the fifth in a row, calm a hundred samples later."""


@njit(cache=True, nogil=True, error_model="numpy")
def held(
    correction: float, gain: float, streak: float, violated: bool, short: bool, target: float
) -> tuple[float, float, float]:
    """A container's correction after one more sample, a logarithm by which its demand is larger than forecast.

    Parameters
    ----------
    correction, gain, streak
        The logarithm, at least 0; its gain; violations in a row.
    violated
        Whether the sample was above what was in force.
    short
        Whether it is also above what was asked for since. Where it is not, the remedy is under way: a long row of such
        violations says that nothing is applied, and more correction would not help.
    target
        Share of samples that may be.

    Returns
    -------
    correction, gain, streak

    Notes
    -----
    Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021, equation 2) on the logarithm of the allocation, with a
    gain that grows while it is plainly too slow. Up and down use the same gain, which is what holds the share. The gain
    doubles without bound: whoever is always above its allocation is corrected by any factor soon.
    """
    if not violated:
        gain = max(GAIN, gain * CALMS)
        return max(0.0, correction - gain * target), gain, 0.0
    streak += 1.0
    late = streak > PATIENCE
    if late and short:
        gain *= 2.0
    if short or not late:
        correction += gain * (1.0 - target)
    return correction, gain, streak
