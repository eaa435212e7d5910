"""Kills for memory in whole rounds: which are accepted, which container they count for, and the next target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.live.round import Recommender
from tests.fakes.records import GIB, MAIN, FakeView, a_pod, a_vpa, recommender, rounds, target_of


@pytest.fixture
def cluster() -> FakeView:
    records = FakeView()
    records.raw["job"] = a_vpa()
    records.pods["job"] = [a_pod("job-1", memory="4Gi")]
    return records


@pytest.fixture
def ours(cluster: FakeView) -> Recommender:
    """After three rounds."""
    made = recommender(cluster)
    rounds(made, cluster, 3)
    return made


def kill(cluster: FakeView, had_gib: float, age_s: float = 0.0, pod: str = "job-1") -> OomObservation:
    return OomObservation(ObjectKey("ns", pod), "main", cluster.now_s - age_s, had_gib * GIB)


def test_a_kill_of_a_pod_that_is_gone_before_the_round_counts_for_its_replacement(
    cluster: FakeView, ours: Recommender
) -> None:
    cluster.killed = [kill(cluster, 4.0)]
    cluster.pods["job"] = [a_pod("job-2", memory="4Gi")]
    report = rounds(ours, cluster, 1)
    assert report.kills == 1
    assert target_of(cluster)[1] >= 4.8


def test_the_bump_is_based_on_the_peak_of_the_day_and_not_of_the_last_minutes(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 2, memory_gib=6.0)
    rounds(ours, cluster, 100, memory_gib=1.0)
    cluster.killed = [kill(cluster, 1.0)]
    rounds(ours, cluster, 1, memory_gib=1.0)
    assert target_of(cluster)[1] >= 6.0 * 1.19


def test_a_kill_of_an_unknown_pod_or_one_whose_vpa_is_gone_is_ignored(cluster: FakeView, ours: Recommender) -> None:
    for pod in ("stranger", "job-1"):
        if pod == "job-1":
            del cluster.raw["job"]
        cluster.killed = [kill(cluster, 4.0, pod=pod)]
        report = ours.run()
        assert (report.kills, report.problems) == (0, {})


def test_a_kill_with_more_memory_than_its_limit_or_its_node_is_refused_and_counted(
    cluster: FakeView, ours: Recommender
) -> None:
    cluster.killed = [replace(kill(cluster, 900 * 1024.0), most_bytes=8 * GIB)]
    report = rounds(ours, cluster, 1)
    assert (report.kills, report.refused.total()) == (0, 1)
    assert target_of(cluster)[1] == 4.0


@pytest.mark.parametrize("seen_late_s", [0.0, 30.0])
def test_a_kill_outlives_a_crash_before_its_target_is_published(
    seen_late_s: float, cluster: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the PhaseProfile by then, also where no other profiles are written in this round, and where a later kill
    of another pod was seen before it."""

    def crash(*_: object) -> None:
        raise SystemExit

    ours = recommender(cluster, profiles_per_round=0)
    rounds(ours, cluster, 3)
    cluster.killed = [kill(cluster, 2.0)]
    rounds(ours, cluster, 1)
    cluster.killed, killed_s = [kill(cluster, 4.0, seen_late_s)], cluster.now_s - seen_late_s
    with monkeypatch.context() as crashing, pytest.raises(SystemExit):
        crashing.setattr(cluster, "publish", crash)
        rounds(ours, cluster, 1)
    restarted = recommender(cluster, profiles_per_round=0)
    rounds(restarted, cluster, 1)
    assert restarted.engine.killed_s([MAIN]) == killed_s
    assert target_of(cluster)[1] == pytest.approx(4.8, rel=0.01)
    assert len(cluster.profiles["job"]) == 2, "a kill that was read from the profile is not written again"


def test_a_kill_before_the_first_sample_outlives_two_restarts_while_its_job_has_no_pod(cluster: FakeView) -> None:
    """There is no checkpoint yet, only the PhaseProfile."""
    ours = recommender(cluster)
    ours.run()
    cluster.killed = [kill(cluster, 4.0)]
    ours.run()
    pods, cluster.pods["job"] = cluster.pods["job"], []
    rounds(recommender(cluster), cluster, 2)
    cluster.pods["job"], again = pods, recommender(cluster)
    again.run()
    assert again.engine.groups.arrays.kill_floor(cluster.now_s).max() == pytest.approx(4.8 * GIB)


def test_a_kill_that_cannot_be_written_to_the_profile_raises_the_target_all_the_same(
    cluster: FakeView, monkeypatch: pytest.MonkeyPatch, ours: Recommender
) -> None:
    def fail(*_: object) -> None:
        raise Unreachable("no PhaseProfiles")

    monkeypatch.setattr(cluster, "write_profile", fail)
    cluster.killed = [kill(cluster, 4.0)]
    report = rounds(ours, cluster, 1)
    assert report.problems == {"PhaseProfile ns/job": "no PhaseProfiles"}
    assert target_of(cluster)[1] == pytest.approx(4.8, rel=0.01)
