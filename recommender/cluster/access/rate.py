"""How fast we ask an API server: so many requests a second, a burst at the start, and patience when it asks for it or
fails."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

UNLIMITED = 1_000_000

BATCH_S = 0.25
"""Requests that must wait go together, those of so long: each that comes alone, after a pause, takes four times as much
of the processor as one that follows another, since nothing that it needs is near any more."""


class TokenBucket:
    """Every request takes one token; tokens come back at `per_s` and at most `burst` are kept. For many threads.

    When there is none left, it waits for a few of them to come back.

    Parameters
    ----------
    per_s, burst
        Requests a second in the long run, and how many may go at once after a pause.
    clock, sleep
        Monotonic seconds, and how to wait for some.
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_s, self.burst = per_s, burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._refilled_s = float(burst), clock()
        self._batch = max(1, min(burst, int(per_s * BATCH_S)))
        self._batch_at_s, self._batch_left = -math.inf, 0

    def take(self) -> None:
        """Take a token, waiting until there is one; those who come first go first."""
        with self._lock:
            now_s = self._clock()
            self._tokens = min(self.burst, self._tokens + max(now_s - self._refilled_s, 0.0) * self.per_s)
            self._refilled_s = max(now_s, self._refilled_s)
            self._tokens -= 1.0
            if self._tokens >= 0.0:
                self._batch_left = 0
            elif self._batch_left:
                self._batch_left -= 1
            else:
                self._batch_left = self._batch - 1  # more, who go together with this one
                self._batch_at_s = self._refilled_s + (self._batch_left - self._tokens) / self.per_s
            wait_s = max(self._refilled_s, self._batch_at_s) - now_s
        if wait_s > 0:
            self._sleep(wait_s)

    def lift_limit(self) -> None:
        """No limit of ours any more, for what little is left to ask; the server's own still counts."""
        with self._lock:
            self.per_s, self.burst = float(UNLIMITED), UNLIMITED
            self._tokens, self._batch_at_s = float(UNLIMITED), -math.inf

    def pause_for(self, seconds: float) -> None:
        """Let nothing through for so long, and no burst afterwards: the server asked for patience."""
        with self._lock:
            self._refilled_s = max(self._refilled_s, self._clock() + seconds)
            self._tokens, self._batch_left = min(self._tokens, 1.0), 0


class Backoff:
    """How long to wait after a failure: longer each time, never together with everybody else.

    Doubles from `min_s` to `max_s`, each wait drawn from half of it to all of it.
    """

    def __init__(self, min_s: float, max_s: float, chance: random.Random) -> None:
        self._min_s, self._max_s, self._chance = min_s, max_s, chance
        self.failures = 0

    def next_s(self) -> float:
        """The wait after one more failure."""
        limit_s = min(self._min_s * 2.0 ** min(self.failures, 30), self._max_s)
        self.failures += 1
        return limit_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked again."""
        self.failures = 0
