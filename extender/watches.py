"""The watches of one program, looked after together; and work that is done again and again beside them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from recommender.cluster.watching.reflector import Reflector
from recommender.errors import PhasewiseError


class Watches:
    """Several watches as one."""

    def __init__(self, *watches: Reflector[Any]) -> None:
        self._watches = watches

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._watches)

    def start(self) -> None:
        """Begin to watch; returns at once."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        for watch in self._watches:
            watch.stop()

    @property
    def synced(self) -> bool:
        """Everything was listed once; before that what is not seen may be there all the same."""
        return all(watch.synced for watch in self._watches)

    @property
    def waiting_for(self) -> str:
        """Why the cluster is not known yet, as far as that can be told; empty once it is."""
        if self.synced:
            return ""
        problem = next((watch.problem for watch in self._watches if watch.problem), "")
        return f"the cluster is not known yet{': ' if problem else ''}{problem}"

    @property
    def failing(self) -> int:
        """How many have no contact now: what they are of is known as it was."""
        return sum(bool(watch.problem) for watch in self._watches)

    @property
    def unreadable(self) -> int:
        """How many objects cannot be read, each of which is left out as if it were not there."""
        return sum(len(watch.broken) for watch in self._watches)


log = logging.getLogger(__name__)


class PeriodicTask:
    """Does something on a thread of its own until it is stopped. That it fails is logged, and ends nothing.

    Parameters
    ----------
    pause_s
        The longest time until it is done again, asked for each time; less where somebody wakes it.
    rest_s
        The shortest, whoever wakes it.
    """

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
        """Begin with a pause."""
        self._thread.start()

    def wake(self) -> None:
        """Have it done soon."""
        self._woken.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Not once more; what is being done may take so long to end."""
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
            except Exception:  # a fault of ours must show, and must not end the thread
                log.exception("%s: unexpected failure", self._thread.name)
