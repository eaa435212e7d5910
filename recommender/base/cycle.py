"""The cycle over which demand is forecast, in samples."""

from __future__ import annotations

from recommender.base.errors import Misuse

MAX_CYCLE_SAMPLES = 10_000  # forecasts are computed step by step over a cycle, and training keeps arrays of its length


def cycle_samples_on(step_s: float, cycle_s: float, cycle_samples: int | None = None) -> int:
    """Samples in a cycle on a grid, at least one; Misuse for more than `MAX_CYCLE_SAMPLES`."""
    samples = cycle_samples or cycle_s / step_s
    if samples > MAX_CYCLE_SAMPLES:
        problem = f"a cycle of {samples:.6g} samples is too long"
        raise Misuse(f"{problem}. Give at most {MAX_CYCLE_SAMPLES} samples, or a coarser --step.")
    return max(1, round(samples))
