"""The nodes by name, for as long as none comes or goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

Places = NDArray[np.intp]


class NameTable:
    """Shared by snapshots; names and places do not change.

    Attributes
    ----------
    names, index
        Place -> name, and name -> place.
    everywhere
        (n,): all places in their order.
    rank
        (n,) place of each node in the order of names, for ties.
    """

    def __init__(self, names: Sequence[str]) -> None:
        # copied, so that the texts lie side by side: looking up thousands of them is a third faster
        self.names: Sequence[str] = tuple(orjson.loads(orjson.dumps(list(names))))
        self.index: Mapping[str, int] = {name: place for place, name in enumerate(self.names)}
        self.everywhere = np.arange(len(self.names))
        self.rank = np.empty(len(self.names), dtype=np.intp)
        self.rank[[self.index[name] for name in sorted(self.names)]] = self.everywhere
        self._latest: tuple[Sequence[str], tuple[Places, list[str]]] | None = None

    def find(self, names: Sequence[str]) -> tuple[Places, list[str]]:
        """(m,) the places of nodes, ascending, `everywhere` itself when these are all; and the names not known.

        Each name stands there once. `prioritize` mostly asks about the very list that `filter` was asked about.
        """
        latest = self._latest
        if latest is None or latest[0] is not names:
            latest = self._latest = (names, self._found(names))
        return latest[1]

    def _found(self, names: Sequence[str]) -> tuple[Places, list[str]]:
        try:
            found, unknown = np.fromiter(map(self.index.__getitem__, names), np.intp, len(names)), list[str]()
        except KeyError:
            unknown = [name for name in dict.fromkeys(names) if name not in self.index]
            found = np.array([self.index[name] for name in names if name in self.index], dtype=np.intp)
        asked = np.zeros(len(self.names), dtype=bool)
        asked[found] = True
        return (self.everywhere if asked.all() else np.flatnonzero(asked)), unknown
