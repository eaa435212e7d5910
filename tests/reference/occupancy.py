"""Occupancy of a semi-Markov chain, written plainly: one context after the other, by recursion."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray


class NaiveChain:
    """A chain by (phase before, phase, bucket of dwell), as `kernels.occupancy` has it."""

    def __init__(self, hazard: NDArray[np.float64], followers: NDArray[np.float64]) -> None:
        self.hazard, self.followers = hazard, followers
        self.phases, self.buckets = hazard.shape[1:]
        self.chance = cache(self._chance)

    def after_one_step(self, before: int, phase: int, bucket: int) -> list[tuple[float, tuple[int, int, int]]]:
        """Possible next contexts with their probabilities."""
        leaves, ages = self.hazard[before, phase, bucket], 1 / 2**bucket
        older = min(bucket + 1, self.buckets - 1)
        stays = [((1 - leaves) * (1 - ages), (before, phase, bucket)), ((1 - leaves) * ages, (before, phase, older))]
        enters = [(leaves * self.followers[before, phase, k], (phase + 1, k, 0)) for k in range(self.phases)]
        return stays + enters

    def _chance(self, context: tuple[int, int, int], steps: int, phase: int) -> float:
        """Probability of being in `phase` after so many steps."""
        if steps == 0:
            return float(context[1] == phase)
        return sum(p * self.chance(after, steps - 1, phase) for p, after in self.after_one_step(*context) if p > 0)

    def occupancy(self, context: tuple[int, int, int], lead: int, ahead: int, phase: int) -> float:
        return sum(self.chance(context, step, phase) for step in range(lead + 1, lead + ahead + 1)) / ahead

    def ends(self, context: tuple[int, int, int], steps: int) -> float:
        """Probability that the visit to the present phase ends within so many steps."""
        if steps == 0:
            return 0.0
        before, phase, bucket = context
        leaves, ages = self.hazard[context], 1 / 2**bucket
        older = (before, phase, min(bucket + 1, self.buckets - 1))
        later = (1 - ages) * self.ends(context, steps - 1) + ages * self.ends(older, steps - 1)
        return float(leaves + (1 - leaves) * later)
