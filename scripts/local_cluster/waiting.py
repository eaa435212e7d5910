"""Waiting for a condition instead of for a time: every wait has a limit and says what it waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


MOST_PATIENCE = 8.0
SHARE = 1 / 25
"""Of the time waited so far, how long to wait before looking again: what takes a minute is not looked at 600 times."""
SELDOMEST_S = 1.0


class NotInTime(AssertionError):
    """What was waited for did not come; the message says what, how long, and what was seen last."""


def wait_until(condition: Callable[[], T | None], what: str, *, timeout_s: float = 30.0, every_s: float = 0.1) -> T:
    """Call `condition` until it returns something true and return that.

    An exception of the condition counts as "not yet" (a server that is not up, an object that is not there), and the
    last one is the cause of the failure when the time is over. The limit is for a machine with a core for everybody;
    on one that has to share its cores it is as many times longer, since a busy machine is slow and not wrong. The
    first looks are `every_s` apart; later ones, and those that take long themselves, further, so as not to be the work.
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
            except Exception as error:  # noqa: BLE001 - whatever goes wrong before the limit means: not yet
                cause, seen = error, f"{type(error).__name__}: {error}"
            waited_s = time.monotonic() - began
            if waited_s > timeout_s * patience():
                raise NotInTime(f"waited {waited_s:.0f} s for {what}; last seen: {str(seen)[:1000]}") from cause
            took_s = time.monotonic() - looked
            time.sleep(max(every_s, min(max(took_s, SHARE * waited_s), SELDOMEST_S)))
    finally:
        cause = None  # it knows this frame: the two would keep each other, and the sockets of the calls that failed


def patience() -> float:
    """How many processes want each core of this machine, over the last minute: 1 when nobody has to wait."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST_PATIENCE)
