"""Counts the objects that can be reached from an object, and their bytes."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

PROGRAM_TYPES = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
"""Types that belong to the program and not to its state."""


class Weight(NamedTuple):
    """Bytes, and the number of objects of each type."""

    held_bytes: int
    objects: Counter[str]

    def more_than(self, before: Weight) -> str:
        """The types with more objects than before, largest increase first."""
        grown = self.objects - before.objects
        return ", ".join(f"{number} x {name}" for name, number in grown.most_common(12))


def weigh(*roots: Any, excluding: tuple[Any, ...] = ()) -> Weight:
    """Weigh everything that is reachable from `roots` without passing through an excluded object."""
    gc.collect()
    seen = {id(other) for other in excluding}
    pending, held_bytes, objects = list(roots), 0, Counter[str]()
    while pending:
        current = pending.pop()
        if id(current) in seen or isinstance(current, PROGRAM_TYPES):
            continue
        seen.add(id(current))
        held_bytes += sys.getsizeof(current)
        objects[type(current).__qualname__] += 1
        pending += [current.__self__] if isinstance(current, MethodType) else gc.get_referents(current)
    return Weight(held_bytes, objects)
