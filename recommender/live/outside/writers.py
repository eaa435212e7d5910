"""Several writes at a time: an API server answers many as soon as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import NoReturn, TypeVar

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
        if self._number < 2 or len(writes) < 2:
            return [_ended(write) for write in writes]
        waiting: SimpleQueue[int] = SimpleQueue()
        for place in range(len(writes)):
            waiting.put(place)
        outcomes: dict[int, Callable[[], T]] = {}

        def work() -> None:
            while True:
                try:
                    place = waiting.get_nowait()
                except Empty:
                    return
                outcomes[place] = _ended(writes[place])

        threads = [
            threading.Thread(target=work, name="writer", daemon=True) for _ in range(min(self._number, len(writes)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [outcomes[place] for place in range(len(writes))]


def _ended(write: Callable[[], T]) -> Callable[[], T]:
    try:
        done = write()
    except Exception as error:  # noqa: BLE001  # raised where the outcome is looked at
        return partial(_raise, error)
    return lambda: done


def _raise(error: Exception) -> NoReturn:
    raise error
