"""What a scheduler asks next is mostly known: `prioritize` follows from the bytes of `filter` and from our answer."""

from __future__ import annotations

from extender.protocol.wire import NAMES_BEGIN, NAMES_END, POD_BEGIN, Asked, UnreadPod, read_asked
from extender.view.names import AsCame


class LatestAsked:
    """Reads what is asked, once as long as it stays the same."""

    def __init__(self) -> None:
        self._latest: tuple[bytes, Asked] | None = None

    def read(self, body: bytes) -> Asked:
        """As `read_asked`; what is read may be the object that was given before, which nobody changes."""
        latest = self._latest
        if latest is None or latest[0] != body:
            latest = self._latest = (body, read_asked(body))
        return latest[1]

    def follows(self, left: Asked) -> None:
        """Asked about what is left next, in the form of kube-scheduler, that very object is to be read of it."""
        if isinstance(left.pod, UnreadPod) and isinstance(left.names, AsCame):
            self._latest = (b"".join((POD_BEGIN, left.pod.told, NAMES_BEGIN, left.names.raw, NAMES_END)), left)
