"""Checks a status against a case of the table of behaviours."""

from __future__ import annotations

from collections.abc import Mapping

from recommender.cluster.objects.quantities import parse_quantity
from tests.recommender.live.behaviours import BOUNDS, FOREIGN_CONDITION, LONG_AGO, Case, Json, Range


def check(case: Case, status: Json, generation: int, namespace: str) -> None:
    """Check a status against a case, and against what holds for every status."""
    entries = status.get("recommendation", {}).get("containerRecommendations", [])
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    names = [entry["containerName"] for entry in entries]
    assert names == sorted(case.entries), status
    assert [*conditions] == sorted(conditions)
    assert status["observedGeneration"] == generation
    for entry in entries:
        _check_sound(entry, case.resources)
        for bound, amounts in case.entries[entry["containerName"]].items():
            _check_amounts(f"{bound} of {entry['containerName']}", entry[bound], amounts)
    assert conditions.keys() - {"LowConfidence"} == case.conditions.keys(), status
    for kind, wanted in case.conditions.items():
        found = conditions[kind]
        assert (found["lastTransitionTime"] == LONG_AGO) or kind != FOREIGN_CONDITION
        if isinstance(wanted, str):
            assert found["status"] == wanted, found
        else:
            actual = (found["status"], found.get("reason", ""), found.get("message", ""))
            assert actual == (*wanted[:2], wanted[2].format(namespace=namespace))


def _check_sound(entry: Json, resources: frozenset[str]) -> None:
    """Check that all four bounds have these resources, ordered, in whole millicores and bytes."""
    amounts = [{name: parse_quantity(text) for name, text in entry[bound].items()} for bound in BOUNDS]
    assert {frozenset(each) for each in amounts} == {resources}, entry
    for name, per_unit in (("cpu", 1000.0), ("memory", 1.0)):
        if name in resources:
            assert amounts[0][name] <= amounts[1][name] <= amounts[2][name], entry
            assert all(round(each[name] * per_unit, 6).is_integer() for each in amounts), entry


def _check_amounts(about: str, found: Json, wanted: Mapping[str, str | Range]) -> None:
    for resource, amount in wanted.items():
        value = parse_quantity(found[resource])
        if isinstance(amount, str):
            assert value == parse_quantity(amount), f"{about}: {found}, not {dict(wanted)}"
        else:
            assert amount[0] <= value <= amount[1], f"{about}: {found}, not {dict(wanted)}"
