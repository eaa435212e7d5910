"""Placements just advised, by pod UID: they count until the watch shows what became of the pod."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Overlay:
    """What was advised and is not yet seen.

    A pod that no watch has shown waiting may be gone already without anybody saying so, and counts for a time only:
    monotonic seconds of the caller's clock. Not safe for several threads by itself.
    """

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._until_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._node_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._node_of

    def put(self, uid: str, node: str, until_s: float) -> None:
        """A pod was advised to go to a node; what was advised before is forgotten."""
        self._node_of[uid] = node
        self._until_s[uid] = until_s
        self._until_s.move_to_end(uid)

    def keep(self, uid: str) -> None:
        """The watch shows the pod waiting, and will show what becomes of it."""
        self._until_s.pop(uid, None)

    def drop(self, uid: str) -> str | None:
        """Forget a pod; the node it had been advised to go to, or None."""
        self._until_s.pop(uid, None)
        return self._node_of.pop(uid, None)

    def expired(self, now_s: float) -> Sequence[str]:
        """Drop and name those whose time is over; cheap while there are none."""
        found = []
        for uid, until_s in self._until_s.items():  # put in this order, each for as long
            if until_s > now_s:
                break
            found.append(uid)
        for uid in found:
            self.drop(uid)
        return found
