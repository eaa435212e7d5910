"""Records as plain lists and back: a NamedTuple is written as a list, and read by the types that it declares."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def read(kind: Any, value: Any) -> Any:
    """A value of a type from what JSON made of it.

    Of a record that was written before it had its last fields, these are as they are by default.

    Examples
    --------
    >>> from recommender.engine.keys import Ended
    >>> read(Ended | None, [0, 1.5, None])
    Ended(exit_code=0, started_s=1.5, finished_s=None)

    Raises
    ------
    TypeError, ValueError, KeyError
        It does not fit.
    """
    if get_origin(kind) is UnionType:
        if value is None:
            return None
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if hasattr(kind, "_fields"):
        types = _types(kind)
        return kind(*(read(types[name], part) for name, part in zip(kind._fields, value, strict=False)))
    if isinstance(kind, type) and is_dataclass(kind):
        types, known = _types(kind), {field.name for field in fields(kind)}
        return kind(**{name: read(types[name], part) for name, part in value.items() if name in known})
    if get_origin(kind) is tuple:
        return tuple(read(one, part) for one, part in zip(get_args(kind), value, strict=True))
    return value


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
