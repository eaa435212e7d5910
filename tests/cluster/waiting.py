"""Waiting for a condition instead of for a time: every wait has a limit and says what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotInTime(AssertionError):
    """What was waited for did not come; the message says what, how long, and what was seen last."""


def wait_until(condition: Callable[[], T], what: str, *, timeout_s: float = 30.0, every_s: float = 0.1) -> T:
    """Call `condition` until it returns something true and return that.

    An exception of the condition counts as "not yet" (a server that is not up, an object that is not there), and the
    last one is the cause of the failure when the time is over.
    """
    end = time.monotonic() + timeout_s
    seen: object = "nothing yet"
    cause: Exception | None = None
    while True:
        try:
            if seen := condition():
                return seen
            cause = None
        except Exception as error:  # noqa: BLE001 - whatever goes wrong before the limit means: not yet
            cause, seen = error, f"{type(error).__name__}: {error}"
        if time.monotonic() > end:
            raise NotInTime(f"waited {timeout_s:g} s for {what}; last seen: {str(seen)[:1000]}") from cause
        time.sleep(every_s)
