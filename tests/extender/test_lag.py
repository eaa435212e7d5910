"""How old the newest change is that counts."""

from __future__ import annotations

import math

import pytest

from extender.pods.reading import read_node
from extender.view.watched import Dated
from placement_bench.worlds import Json, node_json
from recommender.cluster.errors import BadObject

NOON_S = 1_800_000_000.0
NOON, BEFORE, AFTER = "2027-01-15T08:00:00Z", "2027-01-15T07:59:00Z", "2027-01-15T08:00:05Z"


def changed(at: str, *more: str, **node: str) -> Json:
    raw = node_json("a", **node)
    raw["metadata"] |= {"creationTimestamp": at, "managedFields": [{"time": each} for each in more]}
    return raw


def test_it_is_when_somebody_wrote_last_or_made_it_and_an_older_object_changes_nothing() -> None:
    dated = Dated(read_node, lambda: NOON_S)
    assert math.isnan(dated.newest_s)
    assert dated(changed(NOON)).name == "a"
    assert dated.newest_s == NOON_S
    dated(changed(BEFORE, NOON, AFTER))
    assert dated.newest_s == NOON_S + 5
    dated(changed(BEFORE))
    assert dated.newest_s == NOON_S + 5


def test_what_cannot_be_read_does_not_count() -> None:
    dated = Dated(read_node, lambda: NOON_S)
    dated(changed(NOON))
    with pytest.raises(BadObject):
        dated(changed(AFTER, cpu="eight"))
    assert dated.newest_s == NOON_S
