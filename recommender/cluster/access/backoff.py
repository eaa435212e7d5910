"""How long to wait after a failure: longer each time, never together with everybody else."""

from __future__ import annotations

import random


class Backoff:
    """Doubles from `first_s` to `longest_s`, each wait drawn from half of it to all of it."""

    def __init__(self, first_s: float, longest_s: float, chance: random.Random) -> None:
        self._first_s, self._longest_s, self._chance = first_s, longest_s, chance
        self.failures = 0

    def next_s(self) -> float:
        """The wait after one more failure."""
        whole_s = min(self._first_s * 2.0 ** min(self.failures, 30), self._longest_s)
        self.failures += 1
        return whole_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked again."""
        self.failures = 0
