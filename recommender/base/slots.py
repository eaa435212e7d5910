"""Arrays whose first axis is a slot: the state of thousands of objects, updated in a few calls for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from recommender.base.records import IntArray

Arrays = TypeVar("Arrays", bound=NamedTuple)


def fresh(part: Any) -> Any:
    """Declares an array of a `SlotArrays` class by the initial value of a slot."""
    return np.asarray(part)


class SlotArrays:
    """State by slot. A subclass declares its arrays by annotations, or kernels do by the fields of their named tuples.

    `fresh`: initial value of a slot, by array name; sets shape and type. None if each annotation has it, by `fresh`.
    """

    def __init__(self, slots: int = 0, fresh: Mapping[str, Any] | None = None) -> None:
        if fresh is None:
            fresh = {name: getattr(type(self), name) for name in type(self).__annotations__}
        self._fresh = {name: np.asarray(part) for name, part in fresh.items()}
        for name, part in self._fresh.items():
            setattr(self, name, np.empty((0, *part.shape), part.dtype))
        self._slots = 0
        self.grow(slots)

    def __len__(self) -> int:
        return self._slots

    def grow(self, slots: int) -> None:
        """Grow to slots 0..slots - 1, keeping the present ones."""
        old, self._slots = self._slots, max(slots, self._slots)
        self._tuples: dict[type[Any], Any] = {}
        for name, part in self._fresh.items():
            # Not np.concatenate, whose order of axes may differ: kernels would be compiled once more.
            grown = np.empty((self._slots, *part.shape), part.dtype)
            grown[:old], grown[old:] = getattr(self, name), part
            setattr(self, name, grown)

    def reset(self, slots: int | Sequence[int] | IntArray) -> None:
        """Reset slots to their initial values."""
        for name, part in self._fresh.items():
            getattr(self, name)[slots] = part

    def arrays(self, kind: type[Arrays]) -> Arrays:
        """The arrays that a kernel takes as a named tuple, by its field names: not copies; others once they grow."""
        if kind not in self._tuples:
            self._tuples[kind] = kind(*map(vars(self).__getitem__, kind._fields))
        made: Arrays = self._tuples[kind]
        return made

    def of(self, slot: int) -> dict[str, Any]:
        """The values of a slot, by array name; views where they are arrays."""
        return {name: getattr(self, name)[slot] for name in self._fresh}

    def put(self, slot: int, kept: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
        """Set what `of` returned, for all arrays or some; ValueError, KeyError or TypeError before anything changes."""
        parts = {name: _like(self._fresh[name], kept[name], name) for name in names or self._fresh}
        for name, part in parts.items():
            getattr(self, name)[slot] = part


def take_slot(free: list[int], *parts: SlotArrays) -> int:
    """Take a free slot; if there is none, all parts grow by a quarter."""
    if not free:
        old = len(parts[0])
        slots = old + max(16, old // 4)
        for part in parts:
            part.grow(slots)
        free += range(slots - 1, old - 1, -1)
    return free.pop()


def _like(fresh: Any, kept: Any, name: str) -> Any:
    """Convert to the type and shape of another array."""
    try:
        part = np.asarray(kept, dtype=fresh.dtype)
    except OverflowError as error:
        raise ValueError(f"{name}: {error}") from error
    if part.shape != fresh.shape:
        raise ValueError(f"{name} of shape {part.shape} where {fresh.shape} was expected")
    return part
