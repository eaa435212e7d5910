"""Label selectors in the string form and the structured form."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.cluster.objects.reading import BadField, Fields
from recommender.cluster.objects.selectors import BadSelector, LabelSelector

WEB = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("app=web", True), ("app==web", True), ("app = web , tier=front", True), ("app=db", False), ("app!=db", True),
        ("missing!=x", True), ("app in (db, web)", True), ("app in (db)", False), ("app notin (db)", True),
        ("missing notin (x)", True), ("app notin (web,x),tier", False), ("tier", True), ("missing", False),
        ("!missing", True), ("!tier", False), ("missing=", False), ("example.com/role=a", False),
    ],
)  # fmt: skip
def test_the_string_form_matches_as_in_kubernetes(text: str, matches: bool) -> None:
    assert LabelSelector.of_text(text).matches(WEB) is matches


@pytest.mark.parametrize("text", ["", "  ", "a b", "=x", "a in x", "a=b,,c=d", "a>1"])
def test_a_string_that_is_not_a_selector_is_refused(text: str) -> None:
    with pytest.raises(BadSelector):
        LabelSelector.of_text(text)


def test_a_selector_that_would_slow_every_round_is_refused() -> None:
    """Its owner decides how long it is, and all pods of the namespace are compared with it."""
    with pytest.raises(BadSelector, match="longer than"):
        LabelSelector.of_text("app in (" + "x," * 100_000)
    with pytest.raises(BadSelector, match="more than 100"):
        LabelSelector.of_text(",".join(["a"] * 101))
    excluded = [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(101)]
    with pytest.raises(BadField, match=r"spec\.selector has more than 100"):
        LabelSelector.of_fields(Fields({"selector": {"matchExpressions": excluded}}, "spec").child("selector"))


@pytest.mark.parametrize(
    ("raw", "matches", "text"),
    [
        ({}, True, ""),
        ({"matchLabels": {"tier": "front", "app": "web"}}, True, "app=web,tier=front"),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, False, "app=web,x"),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False, "!tier"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True, "app in (db,web)"),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False, "app notin (web)"),
    ],
)  # fmt: skip
def test_the_structured_form_equals_its_string_form(raw: dict[str, Any], matches: bool, text: str) -> None:
    selector = LabelSelector.of_fields(Fields(raw))
    assert selector.matches(WEB) is matches
    assert selector == (LabelSelector.of_text(text) if text else LabelSelector())


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ({"key": "a", "operator": "Like"}, "operator"),
        ({"key": "a", "operator": "In"}, "values"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "values"),
        ({"operator": "Exists"}, "key"),
    ],
)
def test_an_error_in_the_structured_form_names_the_field(expression: dict[str, Any], field: str) -> None:
    with pytest.raises(BadField, match=rf"spec\.selector\.matchExpressions\[0\]\.{field}"):
        LabelSelector.of_fields(Fields({"matchExpressions": [expression]}, "spec.selector"))
