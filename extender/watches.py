"""The watches of one program, looked after together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recommender.cluster.watching.reflector import Reflector


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
