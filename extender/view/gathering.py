"""A busy watch is read a few events at a time: a thread that is woken for each takes twice as long, and each time it is
in the way of calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

REST_S = 0.02
"""Events that are no further apart wait for one another so long; the overlay stands in for pods not yet seen bound."""

AT_ONCE_S = 0.002
"""What comes sooner was there already."""


class Gathering(Generic[Given, Made]):
    """Reads as `read` does, on the thread of one watch, which rests before it reads what it had to wait for.

    Not for an event that comes alone: nothing came for `REST_S` before it, and it is read at once.

    Parameters
    ----------
    watching
        Whether what comes are events by now; a list is read without a rest.
    clock, sleep
        Monotonic seconds, and how to let them pass.
    """

    def __init__(
        self,
        read: Callable[[Given], Made],
        watching: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._watching, self._clock, self._sleep = read, watching, clock, sleep
        self._latest_s = -REST_S

    def __call__(self, given: Given) -> Made:
        if AT_ONCE_S < self._clock() - self._latest_s < REST_S and self._watching():
            self._sleep(REST_S)
        try:
            return self._read(given)
        finally:
            self._latest_s = self._clock()
