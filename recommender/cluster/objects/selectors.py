"""Label selectors: the structured form of controllers and the string form of scale subresources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.reading import BadField, Fields

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_EQUALITY = re.compile(rf"\s*({_NAME})\s*(==|=|!=)\s*((?:{_NAME})?)\s*")
_SET = re.compile(rf"\s*({_NAME})\s+(in|notin)\s*\(([^()]*)\)\s*")
_PRESENCE = re.compile(rf"\s*(!?)\s*({_NAME})\s*")
_COMMA_OUTSIDE = re.compile(r",(?![^()]*\))")


MAX_REQUIREMENTS = 100
"""Of a selector: each is compared with each pod of the namespace, and whoever writes it decides how many there are."""

MAX_TEXT_CHARS = 4096
"""The time to split a text grows with the square of its length."""


class BadSelector(ClusterError):
    """A selector string that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a label. As in Kubernetes, `NotIn` also matches objects without the label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == IN:
            return value is not None and value in self.values
        if self.operator == NOT_IN:
            return value is None or value not in self.values
        return (value is not None) == (self.operator == EXISTS)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A conjunction of requirements; an empty one matches everything, `None` instead of a selector nothing."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> LabelSelector:
        return cls(tuple(Requirement(key, IN, frozenset((value,))) for key, value in sorted(labels.items())))

    @classmethod
    def of_fields(cls, selector: Fields) -> LabelSelector:
        """Parse `matchLabels` and `matchExpressions`; raises BadField, so call it while parsing an object."""
        equalities = cls.of_labels(selector.string_map("matchLabels")).requirements
        found = cls(equalities + tuple(_expression(entry) for entry in selector.children("matchExpressions")))
        if len(found.requirements) > MAX_REQUIREMENTS:
            raise BadField(selector.path, f"has more than {MAX_REQUIREMENTS} requirements")
        return found

    @classmethod
    def of_text(cls, text: str) -> LabelSelector:
        """Parse the string form: `a=b,c!=d,e in (x,y),f notin (z),g,!h`.

        `BadSelector` also for one that is too long, or empty, which would select everything.
        """
        if not text.strip():
            raise BadSelector("an empty label selector would select every pod")
        if len(text) > MAX_TEXT_CHARS:
            raise BadSelector(f"it is longer than {MAX_TEXT_CHARS} characters")
        parts = _COMMA_OUTSIDE.split(text)
        if len(parts) > MAX_REQUIREMENTS:
            raise BadSelector(f"it has more than {MAX_REQUIREMENTS} requirements")
        return cls(tuple(_requirement(part) for part in parts))


def _expression(entry: Fields) -> Requirement:
    operator, values = entry.required("operator"), frozenset(entry.texts("values"))
    if operator not in (IN, NOT_IN, EXISTS, DOES_NOT_EXIST):
        raise BadField(entry.at("operator"), f"is {operator[:40]!r}, which is not a selector operator")
    if (operator in (IN, NOT_IN)) != bool(values):
        raise BadField(entry.at("values"), f"does not go with {operator}")
    return Requirement(entry.required("key"), operator, values)


def _requirement(part: str) -> Requirement:
    if found := _EQUALITY.fullmatch(part):
        key, sign, value = found.groups()
        return Requirement(key, NOT_IN if sign == "!=" else IN, frozenset((value,)))
    if found := _SET.fullmatch(part):
        key, word, values = found.groups()
        return Requirement(key, IN if word == "in" else NOT_IN, frozenset(v.strip() for v in values.split(",")))
    if found := _PRESENCE.fullmatch(part):
        absent, key = found.groups()
        return Requirement(key, DOES_NOT_EXIST if absent else EXISTS)
    raise BadSelector(f"{part.strip()[:80]!r} is not a label selector")
