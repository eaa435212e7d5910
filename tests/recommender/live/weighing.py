"""How much is held on to: what can be reached from an object, counted and weighed."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

PASSED_OVER = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
"""What belongs to the program and not to its state."""


class Weight(NamedTuple):
    """Bytes, and the number of objects of each type."""

    held_bytes: int
    objects: Counter[str]

    def more_than(self, before: Weight) -> str:
        """What there is more of now, the most first."""
        grown = self.objects - before.objects
        return ", ".join(f"{number} x {name}" for name, number in grown.most_common(12))


def weigh(*roots: Any, apart: tuple[Any, ...] = ()) -> Weight:
    """Everything that is reached from `roots` without passing through one of `apart`."""
    gc.collect()
    seen = {id(other) for other in apart}
    waiting, held_bytes, objects = list(roots), 0, Counter[str]()
    while waiting:
        here = waiting.pop()
        if id(here) in seen or isinstance(here, PASSED_OVER):
            continue
        seen.add(id(here))
        held_bytes += sys.getsizeof(here)
        objects[type(here).__qualname__] += 1
        waiting += [here.__self__] if isinstance(here, MethodType) else gc.get_referents(here)
    return Weight(held_bytes, objects)
