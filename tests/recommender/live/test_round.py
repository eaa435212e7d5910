"""Whole rounds in a cluster of plain records: a view without an API, watches or a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recommender.base.records import UNKNOWN_PHASE, ContainerRecommendation
from recommender.base.units import format_time
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import BOUNDS, status_of
from recommender.cluster.workloads.horizontal import ALL, Scaler, left_alone
from recommender.cluster.workloads.ownership import Ref
from recommender.engine.persistence import unpack
from recommender.live.round import Recommender
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram import HistogramSession
from tests.fakes.records import (
    GIB,
    MAIN,
    MODEL,
    FakeView,
    a_container,
    a_pod,
    a_vpa,
    pod_of,
    recommender,
    rounds,
    target_of,
    use,
)


@pytest.fixture
def cluster() -> FakeView:
    records = FakeView()
    records.raw["job"] = a_vpa()
    records.pods["job"] = [a_pod("job-1")]
    return records


def members_in(cluster: FakeView) -> dict[str, Any]:
    """What the profile keeps of each container."""
    members: dict[str, Any] = unpack(cluster.profiles["job"][-1]["state"], "job")["members"]
    return members


def state_of(ours: Recommender) -> VpaState:
    (state,) = ours.vpas.values()
    return state


def conditions_of(cluster: FakeView, name: str = "job") -> dict[str, str]:
    return {c["type"]: c["status"] for c in cluster.raw[name]["status"]["conditions"]}


def test_a_container_with_constant_usage_gets_about_that_usage(cluster: FakeView) -> None:
    report = rounds(recommender(cluster), cluster, 40)
    cpu_cores, memory_gib = target_of(cluster)
    assert 0.5 <= cpu_cores * 1.05 < 1.1
    assert memory_gib == 4.0  # the pod's request: memory is lowered late
    assert not report.problems
    assert conditions_of(cluster) == {"RecommendationProvided": "True"}


def test_a_published_recommendation_is_kept_until_the_first_samples(cluster: FakeView) -> None:
    recommendation = ContainerRecommendation("main", (3.0, 5 * GIB), (3.0, 5 * GIB), (3.0, 5 * GIB), (3.0, 5 * GIB))
    cluster.raw["job"]["status"] = status_of(read_vpa(cluster.raw["job"]), [recommendation], {}, 0.0)
    recommender(cluster).run()
    assert target_of(cluster) == (3.0, 5.0)


def test_one_broken_vpa_does_not_stop_the_others(cluster: FakeView) -> None:
    cluster.raw["broken"], cluster.broken = a_vpa("broken"), {"broken"}
    report = rounds(recommender(cluster), cluster, 40)
    assert target_of(cluster)[0] > 0
    assert report.problems == {"ns/broken": "the API server does not answer"}


def test_containers_are_kept_while_the_pods_of_their_vpa_cannot_be_read(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before, member = target_of(cluster), next(iter(ours.engine.fleet))
    cluster.broken = {"job"}
    report = rounds(ours, cluster, 5)
    assert report.problems == {"ns/job": "the API server does not answer"}
    assert next(iter(ours.engine.fleet)) is member
    assert ours.engine.fleet.arrays.samples[member.slot] == 45
    assert target_of(cluster) == before


def test_pods_in_different_phases_get_what_the_most_demanding_one_needs(cluster: FakeView) -> None:
    cluster.pods["job"] = [a_pod("job-1"), a_pod("job-2")]
    ours = recommender(cluster)
    for _ in range(40):
        cluster.now_s += 1.0
        use(cluster, "job-1", 0.2, 1.0)
        use(cluster, "job-2", 1.5, 3.0)
        ours.run()
    cpu_cores, memory_gib = target_of(cluster)
    assert cpu_cores * 1.05 >= 1.5
    assert memory_gib >= 3.3


def test_in_an_unknown_phase_use_is_followed(cluster: FakeView, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = recommender(cluster)
    monkeypatch.setattr(ours.engine.fleet.tracker, "observe", lambda slots, _: np.full(len(slots), UNKNOWN_PHASE))
    rounds(ours, cluster, 60, cpu_cores=0.5, memory_gib=0.5)
    assert "LowConfidence" not in conditions_of(cluster)
    assert 0.5 <= target_of(cluster)[0] <= 0.6


def test_with_few_samples_the_bounds_include_the_request(cluster: FakeView) -> None:
    rounds(recommender(cluster), cluster, 2, cpu_cores=0.01, memory_gib=0.1)
    entry = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"][0]
    lower, upper = (parse_quantity(entry[bound]["memory"]) for bound in ("lowerBound", "upperBound"))
    assert lower < 4 * GIB < upper  # the pod's request
    assert conditions_of(cluster)["LowConfidence"] == "True"


def test_the_profile_shows_the_phase_the_next_phases_and_the_reasons(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    profile = cluster.profiles["job"][-1]
    container = profile["containers"][0]
    phase = int(ours.engine.fleet.arrays.phase[next(iter(ours.engine.fleet)).slot])
    assert (container["name"], container["phase"]) == ("main", phase)
    assert profile["phase"] == str(phase)
    assert sum(following["probability"] for following in container["next"]) <= 1.0 + 1e-9
    assert {following["phase"] for following in container["next"]} <= set(range(MODEL.detector.n_phases)) - {phase}
    assert container["why"]["policy"] == "recent.use"
    assert container["why"]["forecastCpuCores"] > 0
    (pod,) = profile["pods"]
    assert pod.pop("startedAt") == format_time(cluster.now_s - 39.0)
    assert pod == {"name": "job-1", "uid": "uid-job-1", "container": "main", "phase": phase, "meanCpuCores": 0.5}
    assert profile["cpu"].endswith("m")
    assert profile["memory"].endswith("Gi")


def test_the_profile_says_when_it_was_written(cluster: FakeView) -> None:
    rounds(recommender(cluster), cluster, 1)
    assert cluster.profiles["job"][-1]["updated"] == format_time(cluster.now_s)


def test_the_profile_is_written_only_when_something_has_changed(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    before = len(cluster.profiles["job"])
    rounds(ours, cluster, 10)
    assert len(cluster.profiles["job"]) - before <= 1  # one decision may have been due
    assert before < 20


def test_the_profile_of_two_hundred_pods_is_bounded(cluster: FakeView) -> None:
    cluster.pods["job"] = [a_pod(f"job-{number}") for number in range(200)]
    rounds(recommender(cluster), cluster, 5)
    profile = cluster.profiles["job"][-1]
    assert len(profile["pods"]) == 64
    assert len(str(profile)) < 20_000


def test_a_profile_of_more_containers_than_it_can_hold_has_those_with_the_largest_cpu_targets(
    cluster: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recommender.live.writing.profile.MAX_CONTAINERS", 2)
    cluster.pods["job"] = [a_pod("job-1", containers=("a", "b", "c"))]
    ours = recommender(cluster)
    for _ in range(40):
        cluster.now_s += 1.0
        for name, cpu_cores in {"a": 0.1, "b": 0.5, "c": 1.0}.items():
            use(cluster, "job-1", cpu_cores, 1.0, name)
        assert not ours.run().problems
    assert [container["name"] for container in cluster.profiles["job"][-1]["containers"]] == ["b", "c"]


def test_a_container_that_is_throttled_to_its_request_is_raised_to_what_it_needs(cluster: FakeView) -> None:
    ours, needed, requested = recommender(cluster), 1.0, 0.2
    for _ in range(60):
        cluster.pods["job"] = [a_pod("job-1", cpu=str(requested))]
        rounds(ours, cluster, 1, cpu_cores=min(needed, requested))  # its node is full
        requested = target_of(cluster)[0]
    assert requested * 1.05 >= needed


@pytest.mark.parametrize(("declared_cpu", "expected_cores"), [("500m", 0.999), ("1", 1.0)])
def test_a_target_above_a_limit_that_stays_is_that_limit_and_keeps_the_qos_class(
    cluster: FakeView, declared_cpu: str, expected_cores: float
) -> None:
    """The updater cuts it all the same; a Burstable pod whose requests came to equal its limits would be evicted."""
    policies = [{"containerName": "*", "controlledValues": "RequestsOnly"}]
    cluster.raw["job"] = a_vpa(resourcePolicy={"containerPolicies": policies})
    memory = "1Gi" if declared_cpu == "500m" else "2Gi"
    limits = {"cpu": "1", "memory": "2Gi"}
    cluster.pods["job"] = [pod_of("job-1", a_container(cpu=declared_cpu, memory=memory, limits=limits))]
    rounds(recommender(cluster), cluster, 60, cpu_cores=1.0, memory_gib=1.95)
    assert target_of(cluster) == (expected_cores, 2.0)


@pytest.mark.parametrize(("mode", "observe_only"), [("Off", False), ("Initial", False), ("InPlaceOrRecreate", True)])
def test_requests_declared_too_low_do_not_widen_targets_that_are_not_applied(
    cluster: FakeView, mode: str, observe_only: bool
) -> None:
    cluster.raw["job"] = a_vpa(updatePolicy={"updateMode": mode})
    cluster.pods["job"] = [a_pod("job-1", cpu="50m", memory="64Mi")]
    ours = recommender(cluster, observe_only=observe_only)
    rounds(ours, cluster, 80)
    groups = ours.engine.groups
    assert groups.arrays.judged[groups.slots[MAIN]] > 40
    assert groups.arrays.violation_ratio()[groups.slots[MAIN]].max() < 0.05
    assert "LowConfidence" not in conditions_of(cluster)
    assert target_of(cluster)[0] < 1.0


def test_cpu_that_an_autoscaler_measures_is_left_as_requested_while_it_does(
    cluster: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    target = Ref.of(read_vpa(cluster.raw["job"]).target)
    scaler = Scaler(ObjectKey("ns", "of-job"), target, frozenset({(ALL, "cpu")}))
    with monkeypatch.context() as scaled:
        scaled.setattr(
            cluster, "vpas", lambda: [left_alone(vpa, [scaler]) for vpa in map(read_vpa, cluster.raw.values())]
        )
        assert not rounds(ours, cluster, 3).problems
        (entry,) = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"]
        assert [set(entry[name]) for name in BOUNDS] == [{"memory"}] * 4
        (condition,) = (c for c in cluster.raw["job"]["status"]["conditions"] if c["type"] == "ScaledByUtilization")
        assert condition["message"].startswith("cpu is left as requested: HorizontalPodAutoscaler of-job")
    rounds(ours, cluster, 3)
    assert target_of(cluster)[0] == pytest.approx(0.5, rel=0.1)
    assert "ScaledByUtilization" not in conditions_of(cluster)


def test_a_container_that_no_pod_has_gets_no_recommendation_and_is_dropped_once_its_samples_expire(
    cluster: FakeView,
) -> None:
    ours = recommender(cluster)
    for name in ("old", "new"):
        cluster.pods["job"] = [a_pod(f"job-{name}", containers=(name,))]
        use(cluster, f"job-{name}", 0.5, 1.0, name)
        ours.run()
    state = state_of(ours)
    for days, remaining in ((0, ["new", "old"]), (1, ["new", "old"]), (6, ["new", "old"]), (2, ["new"])):
        cluster.now_s += days * 86400.0
        use(cluster, "job-new", 0.5, 1.0, "new")
        ours.run()
        assert sorted(state.groups) == sorted(group.container for group in ours.engine.groups.slots) == remaining
        entries = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"]
        assert [entry["containerName"] for entry in entries] == ["new"]


def test_between_two_runs_the_next_pod_is_taken_to_be_like_the_last(cluster: FakeView) -> None:
    """Requests of pods that declare limits alone cannot be changed in place, and their limits move with them."""
    cluster.raw["job"] = a_vpa(updatePolicy={"updateMode": "InPlace"})
    limits = {"limits": {"cpu": "2", "memory": "4Gi"}}
    cluster.pods["job"] = [pod_of("job-1", {"name": "main", "resources": limits})]
    ours = recommender(cluster)
    rounds(ours, cluster, 3)
    for left in (cluster.pods["job"], [], []):
        cluster.pods["job"] = left
        ours.run()
        groups = ours.engine.groups
        slot = groups.slots[MAIN]
        assert groups.arrays.evicts[slot]
        assert groups.arrays.cpu_limit_follows[slot]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_renamed_container_does_not_return_while_there_are_no_pods(cluster: FakeView, *, restarted: bool) -> None:
    ours = recommender(cluster)
    for name in ("old", "new"):
        cluster.pods["job"] = [a_pod(f"job-{name}", containers=(name,))]
        use(cluster, f"job-{name}", 0.5, 1.0, name)
        ours.run()
        cluster.now_s += 1.0
    cluster.pods["job"] = []
    if restarted:
        cluster.past = {name: ours.engine.history(group).past for name, group in state_of(ours).groups.items()}
        ours = recommender(cluster)
    ours.run()
    entries = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"]
    assert [entry["containerName"] for entry in entries] == ["new"]
    assert set(state_of(ours).groups) == {"new", "old"}, "it may come back"


def test_a_recreated_vpa_keeps_what_was_learned(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before, member = target_of(cluster), next(iter(ours.engine.fleet))
    cluster.raw["job"] = a_vpa()
    cluster.raw["job"]["metadata"]["uid"] = "another"
    rounds(ours, cluster, 1)
    assert next(iter(ours.engine.fleet)) is member
    assert target_of(cluster) == before


@pytest.mark.parametrize("resolved", [True, False], ids=["no samples", "no pods"])
def test_what_was_learned_of_a_container_outlives_a_second_restart_before_its_next_sample(
    cluster: FakeView, *, resolved: bool
) -> None:
    rounds(recommender(cluster), cluster, 40)
    (kept,) = members_in(cluster).values()
    cluster.broken = set() if resolved else {"job"}
    cluster.now_s += 1.0
    recommender(cluster).run()
    cluster.broken = set()
    ours = recommender(cluster)
    rounds(ours, cluster, 1)
    (member,) = ours.engine.fleet
    assert ours.engine.fleet.arrays.samples[member.slot] == kept["samples"] + 1


def test_what_is_learned_after_the_clock_was_set_back_is_saved_within_a_cycle(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    cluster.now_s -= 3600.0
    cluster.set_back_s = 3600.0
    rounds(ours, cluster, 32)
    (kept,) = members_in(cluster).values()
    assert cluster.now_s - 32.0 <= kept["last_cell"] <= cluster.now_s


def test_after_the_clock_was_set_back_by_an_hour_a_rise_and_a_kill_are_answered_at_once(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    cluster.now_s -= 3600.0
    cluster.set_back_s, written = 3600.0, len(cluster.writes)
    report = rounds(ours, cluster, 30)
    assert (report.problems, len(cluster.writes)) == ({}, written)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(ours, cluster, 5, cpu_cores=1.9)
    cpu_cores, memory_gib = target_of(cluster)
    assert cpu_cores >= 1.9
    assert memory_gib == pytest.approx(4.8)


@pytest.mark.parametrize("both", [False, True], ids=["one after the other", "at once"])
def test_two_pods_with_one_uid_count_as_one(cluster: FakeView, both: bool) -> None:
    ours, first = recommender(cluster), cluster.pods["job"]
    rounds(ours, cluster, 40)
    second = replace(a_pod("job-2"), uid=first[0].uid)
    cluster.pods["job"] = [*first, second] if both else [second]
    report = rounds(ours, cluster, 40, cpu_cores=1.5)
    assert (report.problems, len(ours.engine.running)) == ({}, 1)
    assert target_of(cluster)[0] == pytest.approx(1.5, rel=0.07)


def test_a_container_renamed_in_its_pod_is_another_one(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    cluster.pods["job"] = [a_pod("job-1", containers=("worker",))]
    for _ in range(40):
        cluster.now_s += 1.0
        use(cluster, "job-1", 0.7, 1.0, container="worker")
        assert ours.run().problems == {}
    assert [instance.container for instance in ours.engine.running] == ["worker"]
    (entry,) = read_vpa(cluster.raw["job"]).status["recommendation"]["containerRecommendations"]
    assert entry["containerName"] == "worker"
    assert target_of(cluster, container="worker")[0] == pytest.approx(0.7, rel=0.07)


def test_a_vpa_whose_target_changes_while_its_pods_run_follows_the_pods_of_the_new_target(cluster: FakeView) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    cluster.raw["job"]["spec"]["targetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    cluster.pods["job"] = [a_pod("web-1")]
    assert rounds(ours, cluster, 60, cpu_cores=1.5).problems == {}
    assert [instance.pod_uid for instance in ours.engine.running] == ["uid-web-1"]
    assert target_of(cluster)[0] >= 1.5


def test_what_was_learned_of_a_container_is_dropped_with_its_pod_also_if_no_sample_has_claimed_it(
    cluster: FakeView,
) -> None:
    rounds(recommender(cluster), cluster, 40)
    cluster.pods["job"] = [a_pod("job-2")]
    ours = recommender(cluster)
    rounds(ours, cluster, 1)
    (state,) = ours.vpas.values()
    assert members_in(cluster) == state.saved["members"] == {}


def test_a_new_vpa_in_a_round_that_is_cut_short_does_not_prevent_the_safe_values_of_others(
    cluster: FakeView, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    groups = ours.engine.groups
    groups.arrays.published[groups.slots[MAIN]] *= 0.1
    cluster.raw["new"], cluster.profiles["new"] = a_vpa("new"), cluster.profiles["job"][-1:]

    def stop(vpa: ObjectKey) -> list[str]:
        ours.stopping = True
        return ["main"]

    monkeypatch.setattr(cluster, "containers_with_history", stop)
    cluster.writes.clear()
    assert "decide" not in rounds(ours, cluster, 1).step_s
    assert ours.publish_safe_values().unwritten_statuses == 0
    assert cluster.writes == ["job"]
    assert len(cluster.profiles["new"]) == 1, "what an earlier process saved there is still needed"


NAMES = [f"c{number:02}" for number in range(70)]


def recommended(cluster: FakeView) -> list[str]:
    status = cluster.raw["job"]["status"]["recommendation"]
    return [entry["containerName"] for entry in status["containerRecommendations"]]


def test_of_a_pod_with_seventy_containers_the_first_sixty_four_by_name_get_a_recommendation(cluster: FakeView) -> None:
    cluster.pods["job"] = [a_pod("job-1", containers=NAMES[::-1])]
    ours = recommender(cluster)
    for _ in range(2):
        for name in NAMES:
            use(cluster, "job-1", 0.5, 1.0, name)
        report = ours.run()
        assert recommended(cluster) == NAMES[:64]
        assert len(ours.engine.running) == len(ours.engine.groups.slots) == 64
        assert report.problems == {"ns/job": "70 container names: only the first 64 by name get a recommendation"}
        cluster.now_s += 1.0


def test_of_container_names_that_change_with_every_pod_only_the_latest_are_kept(cluster: FakeView) -> None:
    ours = recommender(cluster)
    for number in range(5):
        names = [f"{number}-{name}" for name in NAMES[:40]]
        cluster.pods["job"] = [a_pod(f"job-{number}", containers=names)]
        for _ in range(2):
            cluster.now_s += 1.0
            use(cluster, f"job-{number}", 0.5, 1.0, names[0])
            report = ours.run()
        assert not report.problems
        assert {group.container for group in ours.engine.groups.slots} >= set(names)
        assert len(ours.engine.groups.slots) <= 64
    assert recommended(cluster) == ["4-c00"]


def test_of_seventy_checkpoints_of_a_vpa_without_pods_sixty_four_are_continued(cluster: FakeView) -> None:
    cluster.past, cluster.pods["job"] = dict.fromkeys(NAMES, HistogramSession()), []
    ours = recommender(cluster)
    ours.run()
    assert [group.container for group in ours.engine.groups.slots] == NAMES[:64]
