"""The lines of a HostPriorityList, of which all but the scores is the same for every pod."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from extender.kernels import lines
from extender.view.snapshot import Integers


class HostLines:
    """What stands before the score of each node, so that an answer is put together by copying alone."""

    def __init__(self, names: Sequence[str]) -> None:
        told = [b',{"Host":%b,"Score":' % orjson.dumps(name) for name in names]
        self._lines = np.frombuffer(b"".join(told), dtype=np.uint8)
        self._starts = np.zeros(len(names) + 1, dtype=np.int64)
        np.cumsum([len(line) for line in told], out=self._starts[1:])

    def of(self, places: Integers, scores: Integers) -> memoryview:
        """The lines of some nodes, each with a comma before it."""
        told = np.empty(len(self._lines) + (lines.LONGEST + 1) * len(places), dtype=np.uint8)
        return told.data[: lines.write(self._lines, self._starts, places, scores, told)]


class LatestLines:
    """The lines of the nodes that were answered about last; they change when nodes come or go."""

    def __init__(self) -> None:
        self._held: tuple[Sequence[str], HostLines] | None = None

    def of(self, names: Sequence[str]) -> HostLines:
        held = self._held
        if held is None or held[0] is not names:
            held = self._held = (names, HostLines(names))
        return held[1]


LATEST = LatestLines()
