"""Wait for conditions, with a timeout and a message."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


MAX_PATIENCE = 8.0
POLL_SHARE = 1 / 25
"""Poll interval as a share of the time waited so far, so that long waits are not polled too often."""
MAX_POLL_INTERVAL_S = 1.0


class NotInTime(AssertionError):
    """The condition was not met in time; the message says what, how long, and the last state."""


def wait_until(condition: Callable[[], T | None], what: str, *, timeout_s: float = 30.0, every_s: float = 0.1) -> T:
    """Poll `condition` until it returns something true, and return that.

    An exception of the condition counts as "not yet" (server not up, object missing); the last one is the cause of a
    timeout. The timeout is multiplied by `patience`, since tests must not fail on a busy machine. Polls are `every_s`
    apart at first, and less frequent later or if the condition itself is slow.
    """
    began = time.monotonic()
    seen: object = "nothing yet"
    cause: Exception | None = None
    try:
        while True:
            looked = time.monotonic()
            try:
                if seen := condition():
                    return seen
                cause = None
            except Exception as error:  # noqa: BLE001 - any failure before the timeout means: not yet
                cause, seen = error, f"{type(error).__name__}: {error}"
            waited_s = time.monotonic() - began
            if waited_s > timeout_s * patience():
                raise NotInTime(f"waited {waited_s:.0f} s for {what}; last seen: {str(seen)[:1000]}") from cause
            took_s = time.monotonic() - looked
            time.sleep(max(every_s, min(max(took_s, POLL_SHARE * waited_s), MAX_POLL_INTERVAL_S)))
    finally:
        cause = None  # breaks a reference cycle with this frame, which would keep sockets of failed calls open


def patience() -> float:
    """Load per core over the last minute, at least 1."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MAX_PATIENCE)
