"""Fields that the API server always sets, although the types of its client leave every field optional."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def required(field: T | None) -> T:
    """The field; ValueError if the object lacks it after all."""
    if field is None:
        raise ValueError("the API server left out a field that it always sets")
    return field
