"""Several writes at a time: an API server answers many as soon as one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Writers:
    """Threads that write. A request that hangs keeps no process from ending, as those of a thread pool would.

    Parameters
    ----------
    number
        At a time.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def run(self, writes: Sequence[Callable[[], T]]) -> Sequence[Callable[[], T]]:
        """Begin them in their order, wait for all; returns how each ended: what it returns or raises, when called."""
        outcomes: list[Future[T]] = [Future() for _ in writes]
        waiting = deque(zip(outcomes, writes, strict=True))

        def work() -> None:
            while waiting:
                try:
                    outcome, write = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                try:
                    outcome.set_result(write())
                except Exception as error:  # noqa: BLE001  # raised where the outcome is looked at
                    outcome.set_exception(error)

        others = range(min(self._number, len(writes)) - 1)
        threads = [threading.Thread(target=work, name="writer", daemon=True) for _ in others]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        return [outcome.result for outcome in outcomes]
