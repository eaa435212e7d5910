"""The queue of gangs: by priority, then by how long each has waited for its turn.

A gang waits for its turn since its oldest gated pod was created, since another gang of its namespace was admitted
before it, or since capacity was last kept for it in vain, whichever is latest. So of the gangs that wait in a namespace
one at most goes before the next gang of another namespace, however many there are.

The leader alone remembers this. A new one starts without it: then only age counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.gangs.gang import Gang

GangKey = tuple[str, str]  # namespace and name

FIRST_WINDOW = 6.0  # how long capacity is kept for a gang at first, as a multiple of the wait before that


class Turn(NamedTuple):
    """When a gang of a namespace was last admitted, and since when it had waited; unix seconds."""

    at_s: float
    since_s: float


class Window(NamedTuple):
    """When capacity is kept for a gang, unix seconds."""

    from_s: float
    until_s: float

    @property
    def length_s(self) -> float:
        return self.until_s - self.from_s

    def open(self, now_s: float) -> bool:
        """Whether it is open; a clock set back by more than its length ends it."""
        return abs(now_s - self.from_s) < self.length_s


@dataclass(frozen=True)
class Turns:
    of_namespace: Mapping[str, Turn] = field(default_factory=dict)
    windows: Mapping[GangKey, Window] = field(default_factory=dict)

    def waiting_since_s(self, gang: Gang, now_s: float) -> float:
        """Since when a gang waits for its turn."""
        since_s = gang.since_s
        turn, window = self.of_namespace.get(gang.namespace), self.windows.get(gang.key)
        if turn is not None and turn.since_s <= gang.since_s and turn.at_s <= now_s:
            since_s = max(since_s, turn.at_s)
        if window is not None and window.until_s <= now_s:
            since_s = max(since_s, window.until_s)
        return since_s

    def in_order(self, gangs: Iterable[Gang], now_s: float) -> list[Gang]:
        def place(gang: Gang) -> tuple[float, float, float, str, str]:
            return (-gang.priority, self.waiting_since_s(gang, now_s), gang.since_s, gang.namespace, gang.name)

        return sorted(gangs, key=place)

    def window_of(self, gang: Gang, now_s: float, keep_after_s: float) -> Window | None:
        """When capacity is kept for the first gang of the queue; None while it is too early.

        A window that has passed in vain is followed by a pause of its length, so that capacity is idle for half of the
        time at most, and by one twice as long, so that one of them outlasts the pods that have to end.
        """
        last = self.windows.get(gang.key)
        if last is not None and last.open(now_s):
            return last
        pause_s, length_s = (
            (keep_after_s, FIRST_WINDOW * keep_after_s) if last is None else (last.length_s, 2.0 * last.length_s)
        )
        waited_s = now_s - max(gang.complete_s, self.waiting_since_s(gang, now_s))
        if abs(waited_s) < pause_s:  # less than zero by the clock of the API server, or after ours was set back
            return None
        return Window(now_s, now_s + length_s)

    def after(
        self, gangs: Iterable[Gang], admitted: Gang | None, kept: tuple[Gang, Window] | None, now_s: float
    ) -> Turns:
        """The turns after a decision on these gangs, without those that no longer matter."""
        of_namespace, windows = dict(self.of_namespace), dict(self.windows)
        if kept is not None:
            windows[kept[0].key] = kept[1]
        if admitted is not None:
            of_namespace[admitted.namespace] = Turn(now_s, admitted.since_s)
        waiting = {gang.key for gang in gangs if gang.gated and gang is not admitted}
        namespaces = {namespace for namespace, _ in waiting}
        return Turns(
            {namespace: turn for namespace, turn in of_namespace.items() if namespace in namespaces},
            {key: window for key, window in windows.items() if key in waiting},
        )
