"""Checkpoints that nobody will read again are cleared away, on a real API server; never anybody else's."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster.cluster import Cluster
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, Checkpoints
from tests.recommender.cluster.checkpointing import (
    NOW_S,
    make_checkpoint,
    make_vpa,
    status,
    stored,
    write,
)


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def ours(api: Api, namespace: str) -> Checkpoints:
    return Checkpoints(api, lambda: 0.0, namespace)


@pytest.fixture
def crowd(api: Api, namespace: str) -> dict[str, Any]:
    """A VPA of ours, one of another recommender, and checkpoints of all sorts."""
    mine, theirs = make_vpa(api, namespace, "mine"), make_vpa(api, namespace, "theirs", "default")
    fresh, stale = status(now_s=NOW_S), status(now_s=NOW_S - CONTAINER_UNUSED_S - 60)
    for name, vpa, container, told in (
        ("mine-app", "mine", "app", fresh),
        ("mine-before", "mine", "before", stale),
        ("mine-paused", "mine", "paused", fresh),
        ("theirs-app", "theirs", "app", stale),
        ("gone-mine", "gone", "app", fresh),
        ("gone-theirs", "gone", "app2", stale),
    ):
        make_checkpoint(api, namespace, name, vpa, container, status=told)
    return {"ours": {mine}, "existing": {mine, theirs}}


def test_what_nobody_will_read_again_is_cleared_away_and_nothing_else(
    api: Api, namespace: str, ours: Checkpoints, crowd: dict[str, Any]
) -> None:
    gone = ours.collect(crowd["existing"], crowd["ours"], NOW_S, lambda _: True)
    assert sorted(gone) == [f"{namespace}/{name}" for name in ("gone-mine", "gone-theirs", "mine-before")]
    assert set(stored(api, namespace)) == {"mine-app", "mine-paused", "theirs-app"}
    assert ours.collect(crowd["existing"], crowd["ours"], NOW_S, lambda _: True) == []


def test_in_a_namespace_that_is_not_ours_to_look_after_all_stays(
    api: Api, namespace: str, ours: Checkpoints, crowd: dict[str, Any]
) -> None:
    assert ours.collect(crowd["existing"], set(), NOW_S, lambda name: name != namespace) == []
    assert "gone-theirs" in stored(api, namespace)


def test_a_list_of_vpas_that_misses_one_costs_no_checkpoint(
    api: Api, namespace: str, ours: Checkpoints, crowd: dict[str, Any]
) -> None:
    """The server is asked about each VPA before anything goes."""
    gone = ours.collect(set(), set(), NOW_S, lambda _: True)
    assert {name.partition("/")[2].partition("-")[0] for name in gone} == {"gone"}
    assert "mine-app" in stored(api, namespace)


def test_a_vpa_that_comes_back_starts_with_a_checkpoint_of_its_own(api: Api, namespace: str, ours: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    write(ours, {web: {"app": status()}})
    assert ours.collect(set(), set(), NOW_S, lambda _: True) == [f"{namespace}/web-app"]
    write(ours, {})
    assert write(ours, {web: {"app": status(2.0)}}).failed == 0
    assert stored(api, namespace)["web-app"]["status"] == status(2.0)
