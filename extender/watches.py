"""A group of watches, and periodic tasks on threads of their own."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from recommender.base.errors import PhasewiseError
from recommender.base.heap import limit_malloc_arenas
from recommender.cluster.watching.reflector import Reflector

GC_THRESHOLD = 100_000
"""Allocations before the garbage collector runs. A page of pods is a hundred thousand objects without cycles, which by
default are traversed again and again: that takes longer than parsing them."""


class Watches:
    """Several watches, handled as one."""

    def __init__(self, *watches: Reflector[Any]) -> None:
        self._watches = self._not_synced = watches

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._watches)

    def start(self) -> None:
        gc.set_threshold(GC_THRESHOLD)
        limit_malloc_arenas()
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; until then, absence means nothing."""
        if self._not_synced:  # asked for at every call
            self._not_synced = tuple(watch for watch in self._not_synced if not watch.synced)
        return not self._not_synced

    @property
    def waiting_for(self) -> str:
        """Why the cluster is not known yet, with the first problem if there is one; empty once it is."""
        if self.synced:
            return ""
        problem = next((watch.problem for watch in self._watches if watch.problem), "")
        return f"the cluster is not known yet{': ' if problem else ''}{problem}"

    @property
    def failing(self) -> int:
        """Number of watches without contact, whose objects may be stale."""
        return sum(bool(watch.problem) for watch in self._watches)

    @property
    def unreadable(self) -> int:
        return sum(len(watch.broken) for watch in self._watches)


log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls `do` repeatedly on a thread of its own; failures are logged. `wake` ends the pause of `max_pause_s` before
    a call early, but not that of `min_pause_s`, which follows it."""

    def __init__(
        self,
        name: str,
        do: Callable[[], None],
        max_pause_s: Callable[[], float],
        min_pause_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._do, self._max_pause_s, self._min_pause_s = do, max_pause_s, min_pause_s
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """End the present pause early."""
        self._woken.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop, and wait at most so long for a call in progress."""
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.wait(self._max_pause_s())
            self._stopped.wait(self._min_pause_s())
            self._woken.clear()
            if self._stopped.is_set():
                return
            try:
                self._do()
            except PhasewiseError as error:
                log.warning("%s: %s", self._thread.name, error)
            except Exception:  # a bug must be visible, but must not end the thread
                log.exception("%s: unexpected failure", self._thread.name)
