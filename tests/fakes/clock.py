"""A clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds that stand still, or advance by `per_call_s` at each call."""

    now_s: float = 1000.0
    per_call_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.per_call_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
