"""Label selectors: the object form of controllers and the text form of scale subresources."""

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


class BadSelector(ClusterError):
    """A selector text that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label. `NotIn` is also met by an object without the label, as in Kubernetes."""

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
    """All requirements must be met; none at all is met by everything, and `None` in place of a selector by nothing."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> LabelSelector:
        """Equality with every one of these labels."""
        return cls(tuple(Requirement(key, IN, frozenset((value,))) for key, value in sorted(labels.items())))

    @classmethod
    def of_fields(cls, selector: Fields) -> LabelSelector:
        """From `matchLabels` and `matchExpressions`; raises BadField, so call it where an object is read."""
        equalities = cls.of_labels(selector.string_map("matchLabels")).requirements
        return cls(equalities + tuple(_expression(entry) for entry in selector.children("matchExpressions")))

    @classmethod
    def of_text(cls, text: str) -> LabelSelector:
        """From the text form: `a=b,c!=d,e in (x,y),f notin (z),g,!h`.

        Raises
        ------
        BadSelector
            It cannot be understood, or is empty: an empty text would select everything.
        """
        if not text.strip():
            raise BadSelector("an empty label selector would select every pod")
        return cls(tuple(_requirement(part) for part in _COMMA_OUTSIDE.split(text)))


def _expression(entry: Fields) -> Requirement:
    operator, values = entry.required("operator"), frozenset(entry.texts("values"))
    if operator not in (IN, NOT_IN, EXISTS, DOES_NOT_EXIST):
        raise BadField(entry.at("operator"), f"is {operator[:40]!r}, which is no selector operator")
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
    raise BadSelector(f"{part.strip()[:80]!r} is no label selector")
