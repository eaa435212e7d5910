"""How fast we ask an API server: so many requests a second, a burst at the start, and patience when it asks for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

UNLIMITED = 1_000_000


class TokenBucket:
    """Every request takes one token; tokens come back at `per_s` and at most `burst` are kept. For many threads.

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
        self._tokens, self._at_s = float(burst), clock()

    def take(self) -> None:
        """Take a token, waiting until there is one; those who come first go first."""
        with self._lock:
            now_s = self._clock()
            self._tokens = min(self.burst, self._tokens + max(now_s - self._at_s, 0.0) * self.per_s)
            self._at_s = max(now_s, self._at_s)
            self._tokens -= 1.0
            wait_s = self._at_s - now_s + max(-self._tokens, 0.0) / self.per_s
        if wait_s > 0:
            self._sleep(wait_s)

    def open_up(self) -> None:
        """No limit of ours any more, for what little is left to ask; the server's own still counts."""
        with self._lock:
            self.per_s, self.burst = float(UNLIMITED), UNLIMITED
            self._tokens = float(UNLIMITED)

    def hold_for(self, seconds: float) -> None:
        """Let nothing through for so long, and no burst afterwards: the server asked for patience."""
        with self._lock:
            self._at_s = max(self._at_s, self._clock() + seconds)
            self._tokens = min(self._tokens, 1.0)
