"""Arrays side by side whose first axis is a slot: the state of thousands, advanced in a few calls for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from recommender.records import IntArray

Arrays = TypeVar("Arrays", bound=NamedTuple)


def fresh(part: Any) -> Any:
    """What a slot of an array holds before anything is known of it, where a class declares the array."""
    return np.asarray(part)


class SlotArrays:
    """The state of everything that has a slot. A subclass names its arrays by annotations.

    Parameters
    ----------
    fresh
        By the name of each array: what a slot holds before anything is known of it. Its shape and type are those of
        one slot's part. None where each annotation has it, by `fresh`.
    slots
        For how many there is room to begin with.
    """

    def __init__(self, fresh: Mapping[str, Any] | None = None, slots: int = 0) -> None:
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
        """Have room for slots 0..slots - 1; what is known of the present ones stays."""
        more = max(0, slots - self._slots)
        for name, part in self._fresh.items():
            fresh = np.broadcast_to(part, (more, *part.shape))
            setattr(self, name, np.concatenate([getattr(self, name), fresh]))
        self._slots += more

    def reset(self, slots: int | Sequence[int] | IntArray) -> None:
        """Forget who was there."""
        for name, part in self._fresh.items():
            getattr(self, name)[slots] = part

    def arrays(self, kind: type[Arrays]) -> Arrays:
        """The arrays that a kernel takes as one tuple, by its names: not copies."""
        return kind(*(getattr(self, name) for name in kind._fields))

    def of(self, slot: int) -> dict[str, Any]:
        """What is known of one slot, by the name of the array: not copies where it is an array itself."""
        return {name: getattr(self, name)[slot] for name in self._fresh}

    def put(self, slot: int, kept: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
        """Go on with what `of` said, of all arrays or of some.

        Raises
        ------
        ValueError, KeyError, TypeError
            Something is missing, not a number or of another shape; the slot is as it was.
        """
        parts = {name: _like(self._fresh[name], kept[name], name) for name in names or self._fresh}
        for name, part in parts.items():
            getattr(self, name)[slot] = part


def _like(fresh: Any, kept: Any, name: str) -> Any:
    """What was kept, as an array of the type and shape of another one."""
    try:
        part = np.asarray(kept, dtype=fresh.dtype)
    except OverflowError as error:
        raise ValueError(f"{name}: {error}") from error
    if part.shape != fresh.shape:
        raise ValueError(f"{name} of shape {part.shape} where {fresh.shape} was expected")
    return part
