"""Deleting checkpoints that nobody will read again, on a real API server, and no others."""

from __future__ import annotations

from typing import Any

import pytest

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
from tests.rig.cluster import Cluster


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def checkpoints(api: Api, namespace: str) -> Checkpoints:
    return Checkpoints(api, lambda: 0.0, namespace)


@pytest.fixture
def vpas(api: Api, namespace: str) -> dict[str, Any]:
    """Our VPA, one of another recommender, and checkpoints in use, stale and orphaned."""
    mine, theirs = make_vpa(api, namespace, "mine"), make_vpa(api, namespace, "theirs", "default")
    fresh, stale = status(now_s=NOW_S), status(now_s=NOW_S - CONTAINER_UNUSED_S - 60)
    for name, vpa, container, checkpoint_status in (
        ("mine-app", "mine", "app", fresh),
        ("mine-before", "mine", "before", stale),
        ("mine-paused", "mine", "paused", fresh),
        ("theirs-app", "theirs", "app", stale),
        ("gone-mine", "gone", "app", fresh),
        ("gone-theirs", "gone", "app2", stale),
    ):
        make_checkpoint(api, namespace, name, vpa, container, status=checkpoint_status)
    return {"ours": {mine}, "existing": {mine, theirs}}


def test_orphaned_checkpoints_and_stale_ones_of_our_vpas_are_deleted(
    api: Api, namespace: str, checkpoints: Checkpoints, vpas: dict[str, Any]
) -> None:
    deleted = checkpoints.collect(vpas["existing"], vpas["ours"], NOW_S, lambda _: True)
    assert sorted(deleted) == [f"{namespace}/{name}" for name in ("gone-mine", "gone-theirs", "mine-before")]
    assert set(stored(api, namespace)) == {"mine-app", "mine-paused", "theirs-app"}
    assert checkpoints.collect(vpas["existing"], vpas["ours"], NOW_S, lambda _: True) == []


def test_nothing_is_deleted_in_a_namespace_that_is_not_covered(
    api: Api, namespace: str, checkpoints: Checkpoints, vpas: dict[str, Any]
) -> None:
    assert checkpoints.collect(vpas["existing"], set(), NOW_S, lambda name: name != namespace) == []
    assert "gone-theirs" in stored(api, namespace)


def test_a_vpa_missing_from_the_list_keeps_its_checkpoints_if_it_exists(
    api: Api, namespace: str, checkpoints: Checkpoints, vpas: dict[str, Any]
) -> None:
    """The server is asked for each VPA before a deletion."""
    deleted = checkpoints.collect(set(), set(), NOW_S, lambda _: True)
    assert {name.partition("/")[2].partition("-")[0] for name in deleted} == {"gone"}
    assert "mine-app" in stored(api, namespace)


def test_a_vpa_created_again_writes_a_new_checkpoint(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    write(checkpoints, {web: {"app": status()}})
    assert checkpoints.collect(set(), set(), NOW_S, lambda _: True) == [f"{namespace}/web-app"]
    write(checkpoints, {})
    assert write(checkpoints, {web: {"app": status(2.0)}}).failed == 0
    assert stored(api, namespace)["web-app"]["status"] == status(2.0)
