"""What is learned from one run serves the next of its class, also after a restart of the recommender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recommender.cluster.errors import ApiError, Invalid, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.containers import Member
from recommender.engine.keys import Group, WorkloadKey
from recommender.engine.persistence import pack, unpack
from recommender.engine.tally import Report
from recommender.live import class_profiles
from recommender.live.round import Recommender
from recommender.policies.memory_runs import AGES, RunMemory
from tests.fakes.class_jobs import STAGES, Jobs, a_run, run_to_completion
from tests.fakes.curves import curve_of
from tests.fakes.records import GIB, recommender, target_of, use

KEY, CLASS = ObjectKey("ns", "bert"), WorkloadKey("ns", "bert")


@pytest.fixture
def cluster() -> Jobs:
    jobs = Jobs()
    jobs.now_s = 1_000_000.0
    return jobs


def test_a_run_has_a_target_from_earlier_runs_before_its_first_sample(cluster: Jobs) -> None:
    ours = recommender(cluster)
    ours.engine.lead_time.configured_s = 5.0
    least_gib = 4.0
    for number in range(1, 4):
        run_to_completion(cluster, ours, f"bert-{number}")
        cluster.add(name := f"bert-next-{number}", a_run(f"{name}-pod", phase="Pending"))
        ours.run()
        cpu_cores, memory_gib = target_of(cluster, name)
        assert cpu_cores == pytest.approx(0.1, abs=0.01)  # the work needs more later
        assert 0.8 < memory_gib < least_gib  # the runs all used 0.8, other classes spread more
        least_gib = memory_gib
        container = cluster.profiles[name][-1]["containers"][0]
        assert container["why"]["policy"] == "class.runs"
        assert container["demand"]["runs"] == number
    assert "memory by 3 earlier runs of its class" in container["why"]["rule"]


def test_a_run_whose_pod_is_deleted_as_soon_as_it_finishes_is_still_learned(cluster: Jobs) -> None:
    """With `ttlSecondsAfterFinished: 0` no round ever sees it finished."""
    ours = recommender(cluster)
    for number, exit_code in enumerate((0, 1, 0), start=1):
        run_to_completion(cluster, ours, f"bert-{number}", exit_code, deleted=True)
    assert len(ours.engine.classes.runs(CLASS, "main")) == 2
    cluster.now_s += 1.0
    ours.run()
    assert not ours.engine.running and not ours.engine.fleet.members


def test_a_run_that_is_stopped_teaches_nothing_although_it_exits_with_0(cluster: Jobs) -> None:
    """A program that saves itself on SIGTERM may do so; finalizers keep its pod until a round sees it."""
    ours = recommender(cluster)
    run_to_completion(cluster, ours, "bert-1", stopped=True)
    assert ours.engine.classes.known(CLASS, "main") is None


def test_what_the_class_needs_next_is_published_one_lead_time_ahead(cluster: Jobs) -> None:
    ours = recommender(cluster)
    for number in range(1, 4):
        run_to_completion(cluster, ours, f"bert-{number}")
    ours.engine.lead_time.configured_s = 3.0
    cluster.add("bert-9", a_run("bert-9-pod", started_s=cluster.now_s))
    targets = []
    for cpu_cores, memory_gib in STAGES:
        use(cluster, "bert-9-pod", cpu_cores, memory_gib)
        ours.run()
        targets.append(target_of(cluster, "bert-9")[0])
        cluster.now_s += 1.0
    assert max(targets[:4]) < 0.2
    assert min(targets[7:18]) >= 0.95  # the work of the seconds 10 to 19, three seconds ahead
    assert max(targets[24:]) < 0.3


def test_a_finished_pod_that_still_has_metrics_is_not_taken_for_a_running_one(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_completion(cluster, ours, "bert-1")
    for _ in range(3):
        cluster.now_s += 1.0
        use(cluster, "bert-1-pod", 0.2, 0.8)
        ours.run()
    assert not ours.engine.fleet.members
    assert len(ours.engine.classes.runs(CLASS, "main")) == 1


def test_a_restarted_recommender_knows_the_classes_and_the_state_of_each_run(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_completion(cluster, ours, "bert-1")
    cluster.add("bert-2", a_run("bert-2-pod", started_s=cluster.now_s))
    for cpu_cores, memory_gib in STAGES[:31]:
        use(cluster, "bert-2-pod", cpu_cores, memory_gib)
        ours.run()
        cluster.now_s += 1.0
    killed = ObjectKey("ns", "bert-2-pod")
    cluster.killed = [OomObservation(killed, "main", cluster.now_s, 2.5 * GIB)]
    ours.run()  # saves its state again
    restarted = recommender(cluster)
    use(cluster, "bert-2-pod", 0.2, 0.8)
    restarted.run()
    (before,), (after,) = list(ours.engine.fleet), list(restarted.engine.fleet)
    assert len(restarted.engine.classes.runs(CLASS, "main")) == 1
    new, old = restarted.engine.fleet.arrays, ours.engine.fleet.arrays
    assert _phase_and_start(restarted, after) == _phase_and_start(ours, before)
    assert new.samples[after.slot] == old.samples[before.slot] + 1
    levels = ours.engine.fleet.curves.curve(before.slot).levels
    np.testing.assert_allclose(restarted.engine.fleet.curves.curve(after.slot).levels[: len(levels)], levels, rtol=1e-2)
    floors = restarted.engine.groups.arrays.kill_floor(cluster.now_s)
    assert floors[restarted.engine.groups.slots[Group("ns", "bert-2", "main")]] == 3 * GIB
    assert target_of(cluster, "bert-2")[1] >= 3.0


def test_a_kill_is_in_the_profile_of_its_class_before_its_target_is_published(
    cluster: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise SystemExit

    ours = recommender(cluster)
    cluster.add("bert-1", a_run("bert-1-pod", started_s=cluster.now_s))
    for cpu_cores, memory_gib in STAGES[:31]:
        use(cluster, "bert-1-pod", cpu_cores, memory_gib)
        ours.run()
        cluster.now_s += 1.0
    cluster.killed = [OomObservation(ObjectKey("ns", "bert-1-pod"), "main", cluster.now_s, 4 * GIB)]
    monkeypatch.setattr(cluster, "publish", crash)
    with pytest.raises(SystemExit):
        ours.run()
    restarted = recommender(cluster)
    restarted.classes.load(Report())
    assert restarted.engine.classes.runs(CLASS, "main").memory.killed.tolist() == [True]


class FailingJobs(Jobs):
    """An API server that answers writes of one class's profile with an error, and records the requests."""

    def __init__(self, error: type[ApiError]) -> None:
        super().__init__()
        self.error, self.now_s = error, 1_000_000.0
        self.requests: list[str] = []

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        self.requests.append(key.name if profile is not None else f"-{key.name}")
        if key.name == "a" and profile is not None:
            raise self.error("no")
        super().write_class_profile(key, profile)


def _learn(ours: Recommender, *names: str) -> None:
    curve, memory = curve_of(10.0, np.ones((3, 2), np.float32)), RunMemory(2e9, np.ones(AGES))
    for name in names:
        ours.engine.classes.learn(WorkloadKey("ns", name), "main", curve, memory, 30.0, ours.clock())


def test_a_profile_that_the_api_server_rejects_is_given_up_and_delays_no_other() -> None:
    cluster = FailingJobs(Invalid)
    ours = recommender(cluster, profiles_per_round=2)
    ours.run()
    _learn(ours, "a", "b", "c")
    reports = [ours.run() for _ in range(3)]
    assert cluster.requests == ["a", "b", "c"]
    assert [report.unwritten_profiles for report in reports] == [1, 0, 0]
    assert list(reports[0].problems) == ["workload class ns/a"]


def test_a_profile_that_cannot_be_written_is_retried_after_the_others() -> None:
    cluster = FailingJobs(Unreachable)
    ours = recommender(cluster, profiles_per_round=1)
    ours.run()
    _learn(ours, "a", "b")
    for _ in range(3):
        ours.run()
    assert cluster.requests == ["a", "b", "a"]


def test_a_namespace_with_too_many_classes_loses_those_unused_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_profiles, "MAX_CLASSES_PER_NAMESPACE", 2)
    cluster = FailingJobs(Unreachable)
    ours = recommender(cluster)
    ours.run()
    for name in ("b", "c", "d"):
        cluster.now_s += 1.0
        _learn(ours, name)
        ours.run()
    assert {key.name for key in cluster.class_profiles} == {"c", "d"}
    assert ours.engine.classes.known(WorkloadKey("ns", "b"), "main") is None
    assert cluster.requests == ["b", "c", "d", "-b"]


def test_a_recommender_that_starts_with_a_clock_a_month_ahead_deletes_no_class(
    cluster: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its node has synchronised its clock; a class that is old by a clock that keeps running is deleted."""
    run_to_completion(cluster, recommender(cluster), "bert-1", deleted=True)
    saved = {KEY: (cluster.class_profiles[KEY]["state"], cluster.now_s)}
    monkeypatch.setattr(cluster, "saved_classes", lambda: saved)
    cluster.now_s += 31 * 86400.0
    ours = recommender(cluster, class_ttl_s=30 * 86400.0)
    for later_s, classes in ((0.0, {KEY}), (3599.0, {KEY}), (1.0, set())):
        cluster.now_s += later_s
        assert not ours.run().problems
        assert cluster.class_profiles.keys() == classes


def test_a_class_is_kept_as_long_as_a_vpa_waits_for_its_next_run_however_seldom_that_is(cluster: Jobs) -> None:
    """A CronJob that runs on the first of each month, and keeps no finished Job."""
    ours = recommender(cluster, class_ttl_s=30 * 86400.0)
    run_to_completion(cluster, ours, "monthly")
    cluster.pods["monthly"] = []
    for present, days in ((True, 31), (False, 31)):
        if not present:
            del cluster.raw["monthly"]
        for _ in range(days):
            cluster.now_s += 86400.0
            ours.run()
        assert (KEY in cluster.class_profiles) == present


def _phase_and_start(ours: Recommender, member: Member) -> tuple[int, int]:
    arrays = ours.engine.fleet.arrays
    return int(arrays.phase[member.slot]), int(arrays.start_cell[member.slot])


def test_a_broken_state_is_reported_and_the_container_starts_without_it(cluster: Jobs) -> None:
    ours = recommender(cluster)
    cluster.add("bert-2", a_run("bert-2-pod", started_s=cluster.now_s))
    use(cluster, "bert-2-pod", 0.2, 0.8)
    ours.run()
    profile = dict(cluster.profiles["bert-2"][-1])
    cluster.profiles["bert-2"].append(profile | {"state": profile["state"][:-9]})
    cluster.class_profiles[KEY] = {"state": "nonsense"}
    restarted = recommender(cluster)
    cluster.now_s += 1.0
    use(cluster, "bert-2-pod", 0.2, 0.8)
    report = restarted.run()
    assert set(report.problems) == {"PhaseProfile ns/bert-2", "workload class ns/bert"}
    assert [restarted.engine.fleet.arrays.samples[member.slot] for member in restarted.engine.fleet] == [1]


@pytest.mark.parametrize("part", ["groups", "members"])
def test_an_incomplete_saved_state_stops_no_container(cluster: Jobs, part: str) -> None:
    ours = recommender(cluster)
    for name in ("bert-2", "bert-3"):
        cluster.add(name, a_run(f"{name}-pod", started_s=cluster.now_s))
    for _ in range(6):
        for name in ("bert-2", "bert-3"):
            use(cluster, f"{name}-pod", 0.2, 0.8)
        ours.run()
        cluster.now_s += 1.0
    profile = dict(cluster.profiles["bert-2"][-1])
    content = unpack(profile["state"], "it")
    content[part] = {name: {"last_cell": state.get("last_cell")} for name, state in content[part].items()}
    cluster.profiles["bert-2"].append(profile | {"state": pack(content)})
    restarted = recommender(cluster)
    for name in ("bert-2", "bert-3"):
        use(cluster, f"{name}-pod", 0.2, 0.8)
    report = restarted.run()
    assert not report.problems
    assert report.samples == 2
