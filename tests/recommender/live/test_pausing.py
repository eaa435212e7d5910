"""VPAs that an operator has paused, or of which he put back what their owner declares."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.cluster.objects.vpa import DECLARED, KEEP, PAUSE
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, rounds, target_of

GIB = float(1 << 30)


@pytest.fixture
def cluster() -> FakeView:
    """A job that declares 3 cores and 4 GiB and runs with 2 cores, which it does not need."""
    found = FakeView()
    found.raw["job"], found.pods["job"] = a_vpa(), [a_pod("job-0")]
    found.declared = {"main": (3.0, 4.0 * GIB)}
    return found


def annotate(cluster: FakeView, value: str | None) -> None:
    cluster.raw["job"]["metadata"]["annotations"] = {} if value is None else {PAUSE: value}


def entry(cluster: FakeView) -> Any:
    (found,) = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"]
    return found


def paused(cluster: FakeView) -> str | None:
    conditions = {one["type"]: one for one in cluster.raw["job"]["status"]["conditions"]}
    return conditions["Paused"]["message"] if "Paused" in conditions else None


@pytest.mark.parametrize("value", [KEEP, "true", "yes, please"])
def test_while_paused_what_was_published_stays_and_a_condition_says_so(cluster: FakeView, value: str) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    before = entry(cluster)
    annotate(cluster, value)
    rounds(ours, cluster, 60, cpu_cores=1.7, memory_gib=3.0)
    assert entry(cluster) == before
    assert "stays until" in str(paused(cluster))


def test_a_paused_vpa_that_has_no_recommendation_gets_none(cluster: FakeView) -> None:
    annotate(cluster, KEEP)
    rounds(recommender(cluster), cluster, 60)
    assert cluster.raw["job"]["status"]["recommendation"] == {}


def test_while_paused_the_profile_shows_what_would_be_done(cluster: FakeView) -> None:
    annotate(cluster, KEEP)
    ours = recommender(cluster)
    rounds(ours, cluster, 60, cpu_cores=0.3)
    low = cluster.profiles["job"][-1]["cpu"]
    rounds(ours, cluster, 60, cpu_cores=1.7)
    assert cluster.profiles["job"][-1]["cpu"] != low


def test_afterwards_it_goes_on(cluster: FakeView) -> None:
    ours = recommender(cluster)
    annotate(cluster, KEEP)
    rounds(ours, cluster, 60)
    annotate(cluster, None)
    rounds(ours, cluster, 60, cpu_cores=1.7)
    assert target_of(cluster)[0] >= 1.7
    assert paused(cluster) is None


def test_what_the_owner_declares_is_put_back(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    assert target_of(cluster)[0] < 3.0
    annotate(cluster, DECLARED)
    rounds(ours, cluster, 1)
    assert target_of(cluster) == (3.0, 4.0)
    assert entry(cluster)["lowerBound"] == entry(cluster)["upperBound"] == entry(cluster)["target"]
    assert "the owner declares" in str(paused(cluster))


def test_nothing_is_evicted_to_put_it_back(cluster: FakeView) -> None:
    """Where the updater would evict, present requests lie within the bounds: only new pods change."""
    cluster.raw["job"]["spec"]["updatePolicy"]["updateMode"] = "Recreate"
    annotate(cluster, DECLARED)
    rounds(recommender(cluster), cluster, 60)
    assert target_of(cluster) == (3.0, 4.0)
    assert entry(cluster)["lowerBound"]["cpu"] == "2"


def test_memory_in_use_is_not_taken_away(cluster: FakeView) -> None:
    cluster.declared = {"main": (3.0, 1.0 * GIB)}
    ours = recommender(cluster)
    rounds(ours, cluster, 60, memory_gib=2.0)
    annotate(cluster, DECLARED)
    rounds(ours, cluster, 1, memory_gib=2.0)
    assert target_of(cluster) == (3.0, 2.0)


def test_what_the_owner_does_not_declare_is_not_recommended(cluster: FakeView) -> None:
    cluster.declared = {}
    annotate(cluster, DECLARED)
    rounds(recommender(cluster), cluster, 60)
    assert cluster.raw["job"]["status"]["recommendation"] == {}


@pytest.mark.parametrize("value", [KEEP, DECLARED])
def test_no_safe_value_is_left_behind_for_a_paused_vpa(cluster: FakeView, value: str) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    annotate(cluster, value)
    rounds(ours, cluster, 2)
    before = entry(cluster)
    ours.publish_safe_values()
    assert entry(cluster) == before


def test_a_pause_outlives_a_restart(cluster: FakeView) -> None:
    rounds(recommender(cluster), cluster, 60)
    annotate(cluster, DECLARED)
    rounds(recommender(cluster), cluster, 1)
    rounds(recommender(cluster), cluster, 60, cpu_cores=1.7)
    assert target_of(cluster) == (3.0, 4.0)
