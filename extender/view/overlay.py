"""Placements just advised, by pod UID: they count until the watch shows the pod, or until they are too old."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Overlay:
    """What was advised and is not yet seen.

    Times are monotonic seconds of the caller's clock. Not safe for several threads by itself.
    """

    def __init__(self) -> None:
        self._until_s: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until_s)

    def __contains__(self, uid: str) -> bool:
        return uid in self._until_s

    def put(self, uid: str, node: str, until_s: float) -> None:
        """A pod was advised to go to a node; what was advised before is forgotten."""
        self._until_s[uid] = (node, until_s)
        self._until_s.move_to_end(uid)

    def drop(self, uid: str) -> str | None:
        """Forget a pod; the node it had been advised to go to, or None."""
        held = self._until_s.pop(uid, None)
        return held[0] if held else None

    def expired(self, now_s: float) -> Sequence[str]:
        """Drop and name those whose time is over; cheap while there are none."""
        found = []
        # Almost in order: reservations may last longer than advice, and only delay what lies behind them.
        for uid, (_, until_s) in self._until_s.items():
            if until_s > now_s:
                break
            found.append(uid)
        for uid in found:
            del self._until_s[uid]
        return found
