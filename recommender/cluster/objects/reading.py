"""Parsing the JSON of an object: missing fields have defaults, errors name the path of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from sys import intern
from typing import Any, TypeVar

from recommender.base.records import or_nan
from recommender.base.units import parse_rfc3339_s
from recommender.cluster.errors import BadObject, BadQuantity
from recommender.cluster.objects.quantities import Pair, parse_quantity, shared_pair

Read = TypeVar("Read")
Value = TypeVar("Value")
Json = Mapping[str, Any]

MAX_ANNOTATION_CHARS = 1024
"""Longer ones (such as `last-applied-configuration`) are not used here, and would be most of our memory."""

MAX_LABELS = 200
"""Of one pod: each is an entry of an index, and whoever creates a pod may give it a hundred thousand."""


class BadField(ValueError):
    """A field of the wrong type. `reads` turns it into a BadObject that names the object."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


class Fields:
    """A JSON object being parsed, with its path inside the whole object.

    Null and absent are the same, as for the API server. Strings are interned, because ten thousand pods share their
    namespaces, images, nodes and labels. A value of the wrong type raises `BadField`.
    """

    __slots__ = ("path", "raw")

    def __init__(self, raw: Any, path: str = "") -> None:
        self.raw, self.path = raw, path
        if type(raw) is not dict:
            raise BadField(path or "the whole", "is not a JSON object")

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def __contains__(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def text(self, name: str) -> str:
        return intern(self._value(name, str, "a string") or "")

    def required(self, name: str) -> str:
        """A string that must be present and not empty."""
        if not (value := self.text(name)):
            raise BadField(self.at(name), "is missing")
        return value

    def integer(self, name: str, default: int = 0) -> int:
        value = self._value(name, int, "a whole number")
        return default if value is None else value

    def flag(self, name: str) -> bool:
        return self._value(name, bool, "true or false") or False

    def child(self, name: str) -> Fields:
        """The object in a field; an empty one if absent."""
        value = self.raw.get(name)
        return Fields({} if value is None else value, self.at(name))

    def children(self, name: str) -> Iterator[Fields]:
        """The objects of a list; none if absent."""
        values = self._value(name, list, "a list") or ()
        return (Fields(value, f"{self.at(name)}[{index}]") for index, value in enumerate(values))

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._value(name, list, "a list") or ()
        if any(type(value) is not str for value in values):
            raise BadField(self.at(name), "is not a list of strings")
        return tuple(map(intern, values))

    def string_map(self, name: str) -> dict[str, str]:
        """An object whose values are strings, such as labels."""
        values = self.child(name).raw
        for value in values.values():
            if type(value) is not str:
                raise BadField(self.at(name), "has a value that is not a string")
        return {intern(key): intern(value) for key, value in values.items()}

    def time_s(self, name: str) -> float | None:
        """An RFC 3339 time in Unix seconds; None if absent."""
        value = self.text(name)
        if not value:
            return None
        try:
            return parse_rfc3339_s(value)
        except ValueError as error:
            raise BadField(self.at(name), f"is not an RFC 3339 time: {value[:40]!r}") from error

    def quantity(self, name: str) -> float | None:
        """A quantity in cores or bytes; None if absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        try:
            return parse_quantity(value)
        except (BadQuantity, TypeError) as error:
            raise BadField(self.at(name), f"is not a quantity: {str(value)[:40]!r}") from error

    def pair(self, name: str) -> Pair:
        """CPU and memory of a resource map; NaN where absent."""
        amounts = self.child(name)
        return shared_pair(or_nan(amounts.quantity("cpu")), or_nan(amounts.quantity("memory")))

    def _value(self, name: str, kind: type[Value], what: str) -> Value | None:
        value = self.raw.get(name)
        if value is None or type(value) is kind:
            return value
        raise BadField(self.at(name), f"is not {what}")


def reads(kind: str) -> Callable[[Callable[[Fields], Read]], Callable[[Json], Read]]:
    """Decorate a parser of `Fields` to take plain JSON, and to raise `BadObject` for a field of the wrong type."""

    def decorate(read: Callable[[Fields], Read]) -> Callable[[Json], Read]:
        @wraps(read)
        def from_json(raw: Json) -> Read:
            try:
                return read(Fields(raw))
            except BadField as error:
                raise BadObject(kind, name_of(raw), error.field, error.problem) from error

        return from_json

    return decorate


def name_of(raw: object) -> str:
    """`namespace/name` of an object that may be malformed."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return "(nameless)"
    parts = [str(metadata[part])[:253] for part in ("namespace", "name") if metadata.get(part)]
    return "/".join(parts) or "(nameless)"


def short_annotations(metadata: Fields) -> dict[str, str]:
    return {key: text for key, text in metadata.string_map("annotations").items() if len(text) <= MAX_ANNOTATION_CHARS}


def first_labels(metadata: Fields) -> dict[str, str]:
    """The labels, at most the first `MAX_LABELS` by name."""
    labels = metadata.string_map("labels")
    return labels if len(labels) <= MAX_LABELS else dict(sorted(labels.items())[:MAX_LABELS])
