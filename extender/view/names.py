"""Names of nodes as a request brings them, and where they stand: looked up without making a text of any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.errors import BadRequest
from extender.kernels import lookup

NOT_NAMES = "NodeNames is not a list of texts"


class AsCame(Sequence[str]):
    """The names between the brackets of a JSON list, made into texts only when someone looks.

    Raises
    ------
    BadRequest
        At the first look: they are no texts.
    """

    __slots__ = ("_texts", "found", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.found: Found | None = None
        self._texts: list[str] | None = None

    @property
    def texts(self) -> list[str]:
        if self._texts is None:
            try:
                self._texts = texts_of(orjson.loads(b"[%b]" % self.raw))
            except orjson.JSONDecodeError as error:
                raise BadRequest(NOT_NAMES) from error
        return self._texts

    def __len__(self) -> int:
        return self.found.number if self.found is not None else len(self.texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return self.texts[at]


def texts_of(values: object) -> list[str]:
    """A list of texts as it is; BadRequest when it is none."""
    if type(values) is not list:
        raise BadRequest(NOT_NAMES)
    try:
        "".join(values)  # the quickest that looks at each
    except TypeError as error:
        raise BadRequest(NOT_NAMES) from error
    return values


class Found(NamedTuple):
    """What a table said of names: how many they are, and (m,) the places of the nodes, each once and ascending."""

    table: NameTable
    number: int
    places: NDArray[np.intp]


class NameTable:
    """All nodes by name, for requests as they came. Names that JSON would write in another way are not in it."""

    def __init__(self, names: Sequence[str]) -> None:
        plain = [orjson.dumps(name)[1:] if _plain(name) else b"" for name in names]
        self._names = np.frombuffer(b"".join(plain), dtype=np.uint8)
        self._starts = np.zeros(len(names) + 1, dtype=np.int64)
        np.cumsum([len(name) for name in plain], out=self._starts[1:])
        self._slots = np.full(1 << (2 * len(names)).bit_length(), lookup.NOWHERE, dtype=np.int32)
        self._follows = np.full(len(names), lookup.NOWHERE, dtype=np.int32)
        lookup.enter(self._names, self._starts, self._slots)

    def find(self, names: AsCame) -> NDArray[np.intp] | None:
        """(m,) the places of the nodes, each once and ascending; None if one of them is not known."""
        if names.found is not None and names.found.table is self:
            return names.found.places
        told = np.frombuffer(names.raw, dtype=np.uint8)
        places = np.empty(len(self._follows), dtype=np.intp)
        count, found = lookup.find(told, self._names, self._starts, self._slots, self._follows, places)
        if count < 0:
            return None
        names.found = Found(self, count, places[:found])
        return names.found.places


def _plain(name: str) -> bool:
    return bool(name) and name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
