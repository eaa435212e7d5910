"""Client-side rate limiting of requests to the API server, and backoff after failures."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

from recommender.base.units import MonotonicClock

UNLIMITED = 1_000_000

BATCH_S = 0.25
"""Requests that must wait are released in batches of this duration: after a pause, with cold caches, each takes four
times the CPU time of one that follows another."""


class TokenBucket:
    """A thread-safe token bucket: each request takes a token, refilled at `per_s`, at most `burst` of them.

    When it is empty, requests wait until a batch of tokens has been refilled.
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        *,
        clock: MonotonicClock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_s, self.burst = per_s, burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._refilled_s = float(burst), clock()
        self._batch = max(1, min(burst, int(per_s * BATCH_S)))
        self._batch_at_s, self._batch_left = -math.inf, 0

    def take(self) -> None:
        """Take a token, waiting for one if needed; first come, first served."""
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
                self._batch_left = self._batch - 1  # further requests of the same batch
                self._batch_at_s = self._refilled_s + (self._batch_left - self._tokens) / self.per_s
            wait_s = max(self._refilled_s, self._batch_at_s) - now_s
        if wait_s > 0:
            self._sleep(wait_s)

    def lift_limit(self) -> None:
        """Lift our limit, for the last requests before the process ends; the server's own still applies."""
        with self._lock:
            self.per_s, self.burst = float(UNLIMITED), UNLIMITED
            self._tokens, self._batch_at_s = float(UNLIMITED), -math.inf

    def pause_for(self, seconds: float) -> None:
        """Let no request through for `seconds`, and no burst afterwards, because the server asked for it."""
        with self._lock:
            self._refilled_s = max(self._refilled_s, self._clock() + seconds)
            self._tokens, self._batch_left = min(self._tokens, 1.0), 0


def backed_off_s(first_s: float, failures: int, most_s: float) -> float:
    """The wait after this many failures in a row: doubled with each, at most `most_s`."""
    return min(first_s * 2.0 ** min(failures - 1, 30), most_s)  # higher powers overflow after days of failures


class Backoff:
    """Exponential backoff: each wait is drawn from the upper half of a limit that doubles from `min_s` to `max_s`."""

    def __init__(self, min_s: float, max_s: float, chance: random.Random) -> None:
        self._min_s, self._max_s, self._chance = min_s, max_s, chance
        self.failures = 0

    def next_s(self, most_s: float = math.inf) -> float:
        """Count a failure, and return the wait after it, at most `most_s`."""
        self.failures += 1
        return backed_off_s(self._min_s, self.failures, min(self._max_s, most_s)) * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0
