"""Time that passes when a test says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds that stand still, unless each look is to cost some."""

    now_s: float = 1000.0
    per_look_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.per_look_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
