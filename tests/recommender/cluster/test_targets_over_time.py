"""Targets over time: what is cached, when it is requested again, and what is kept while the server fails."""

from __future__ import annotations

import time

import pytest

from recommender.cluster.errors import Forbidden, NotFound, ServerFailed, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.workloads.ownership import Ref
from recommender.cluster.workloads.scales import UNUSED_TTL_S
from tests.recommender.cluster.worlds import APP, NAMESPACE, ROLLOUTS, World, owner, rollout
from tests.recommender.live.weighing import weigh


@pytest.fixture
def world() -> World:
    return World()


def test_resolutions_are_cached_until_something_changes(world: World) -> None:
    world.controller("Deployment", "web", APP)
    world.pod("web-0", APP)
    first = world.resolve("Deployment", "web")
    assert world.resolve("Deployment", "web") is first
    world.pod("web-1", APP)
    assert world.names("Deployment", "web") == ["web-0", "web-1"]
    world.pods.changed(world.pods.get(NAMESPACE, "web-0"), None)
    assert world.names("Deployment", "web") == ["web-1"]
    world.workloads.changed(world.workloads.get(NAMESPACE, Ref("", "Deployment", "web")), None)
    assert "does not exist" in world.resolve("Deployment", "web").problem


def test_a_pod_leaves_and_rejoins_a_target_as_its_labels_change(world: World) -> None:
    world.controller("Deployment", "web", APP)
    world.controller("Deployment", "other", {"app": "other"})
    for labels, names in ((APP, ["web-0"]), ({"app": "debug"}, []), (APP, ["web-0"])):
        world.pod("web-0", labels)
        assert world.names("Deployment", "web") == names
    assert world.names("Deployment", "other") == [], "another targetRef of the same VPA"


def test_a_scale_is_requested_again_only_after_minutes(world: World) -> None:
    rollout(world)
    world.names("Rollout", "web", ROLLOUTS)
    before = len(world.server.requested)
    for _ in range(19):  # 285 s of rounds
        world.now_s += 15
        world.names("Rollout", "web", ROLLOUTS)
    assert len(world.server.requested) == before
    world.now_s += 600
    world.names("Rollout", "web", ROLLOUTS)
    assert world.server.requested[before:] == [f"/apis/{ROLLOUTS}", world.server.requested[1]]


def test_a_target_created_later_is_found_within_two_minutes(world: World) -> None:
    assert world.resolve("Rollout", "web", ROLLOUTS).problem
    rollout(world)
    world.pod("web-0", APP)
    world.now_s += 120
    assert world.names("Rollout", "web", ROLLOUTS) == ["web-0"]


@pytest.mark.parametrize("failure", [Unreachable("gone"), ServerFailed("503", status=503), Forbidden("no", status=403)])
def test_the_last_good_answer_of_a_failing_server_is_kept_for_half_an_hour(world: World, failure: Exception) -> None:
    path = rollout(world)
    world.pod("web-0", APP)
    assert world.names("Rollout", "web", ROLLOUTS) == ["web-0"]
    answer = world.server.answers[path]
    for broken in (path, f"/apis/{ROLLOUTS}"):
        world.server.answers[broken] = failure  # type: ignore[assignment]
    world.now_s += 700
    for _ in range(8):  # requested again with backoff: 1,000 s of rounds
        assert world.names("Rollout", "web", ROLLOUTS) == ["web-0"]
        world.now_s += 125
    world.now_s += 1800
    lost = world.resolve("Rollout", "web", ROLLOUTS)
    assert lost.transient is not isinstance(failure, Forbidden), "waiting does not grant a missing right"
    assert "Cannot read targetRef" in lost.problem
    world.server.answers[path] = answer
    world.server.serve(ROLLOUTS, Rollout=("rollouts", True))
    world.now_s += 600
    assert world.names("Rollout", "web", ROLLOUTS) == ["web-0"]


def test_why_a_target_cannot_be_read_is_still_reported_after_a_week_without_the_right(world: World) -> None:
    world.server.answers[rollout(world)] = Forbidden("no right to get its scale", status=403)
    for _ in range(7 * 24 * 12):
        found = world.resolve("Rollout", "web", ROLLOUTS)
        world.now_s += 300.0
    assert "no right to get its scale" in found.problem


def test_a_deleted_target_is_reported_as_nonexistent(world: World) -> None:
    path = rollout(world)
    world.names("Rollout", "web", ROLLOUTS)
    world.server.answers[path] = NotFound("gone", status=404)
    world.now_s += 600
    resolution = world.resolve("Rollout", "web", ROLLOUTS)
    assert ("does not exist" in resolution.problem, resolution.transient) == (True, False)


def test_an_unreachable_server_gets_one_request_however_many_targets_there_are(world: World) -> None:
    world.server.answers[f"/apis/{ROLLOUTS}"] = Unreachable("gone")
    found = [world.resolve("Rollout", f"r{n}", ROLLOUTS, vpa=f"v{n}") for n in range(50)]
    assert len(world.server.requested) == 1
    assert all(resolution.transient for resolution in found)
    assert [resolution.problem for resolution in found[1:]] == [""] * 49, "a target not looked up yet has no problem"


def test_requests_for_many_new_targets_are_spread_over_rounds() -> None:
    world = World(per_window=10)
    world.server.serve(ROLLOUTS, Rollout=("rollouts", True))
    for n in range(25):
        world.server.scale(ROLLOUTS, "rollouts", f"r{n}", f"app=r{n}")
    resolved = []
    for _ in range(3):
        world.now_s += 15
        found = [world.resolve("Rollout", f"r{n}", ROLLOUTS, vpa=f"v{n}") for n in range(25)]
        resolved.append(sum(not resolution.transient for resolution in found))
    assert resolved == [10, 20, 25]


def test_targets_of_one_namespace_do_not_keep_those_of_another_waiting() -> None:
    """A hundred that do not exist are asked for again before the last of them had its turn."""
    world = World(per_window=10)
    world.server.serve(ROLLOUTS, Rollout=("rollouts", True))
    target = TargetRef(ROLLOUTS, "Rollout", "web")
    waiting = True
    for _ in range(3):
        world.now_s += 15
        for n in range(100):
            world.resolve("Rollout", f"absent-{n}", ROLLOUTS, vpa=f"v{n}")
        waiting = world.targets.resolve(ObjectKey("other", "v"), target).transient
    assert not waiting


def test_an_answer_unused_for_an_hour_is_forgotten(world: World) -> None:
    path = rollout(world)
    world.names("Rollout", "web", ROLLOUTS)
    world.now_s += 3700
    world.server.answers[path] = Unreachable("gone")
    assert world.resolve("Rollout", "web", ROLLOUTS).transient, "there is no last good answer"


def test_three_thousand_pods_are_resolved_within_a_second() -> None:
    """A generous bound: the work is a few look-ups per pod, not every pod against every selector."""
    world = World()
    for n in range(1000):
        world.controller("Deployment", f"d{n}", {"app": f"d{n}"})
        world.controller("ReplicaSet", f"d{n}-1", {"app": f"d{n}", "hash": "1"}, by=owner("Deployment", f"d{n}"))
        for replica in range(3):
            labels = {"app": f"d{n}", "hash": "1", "team": "all"}
            world.pod(f"d{n}-1-{replica}", labels, by=owner("ReplicaSet", f"d{n}-1"))
    began = time.process_time()
    assert all(len(world.resolve("Deployment", f"d{n}", vpa=f"v{n}").pods) == 3 for n in range(1000))
    first_s, began = time.process_time() - began, time.process_time()
    assert all(len(world.resolve("Deployment", f"d{n}", vpa=f"v{n}").pods) == 3 for n in range(1000))
    assert first_s < 1.0
    assert time.process_time() - began < 0.1


def test_nothing_is_kept_of_a_namespace_whose_objects_were_deleted(world: World) -> None:
    before = None
    for number in range(6):
        namespace, vpa = f"team-{number}", ObjectKey(f"team-{number}", "v")
        target = world.controller("Job", "job", APP, namespace=namespace)
        pod = world.pod("job-0", APP, by=owner("Job", "job", "batch/v1"), namespace=namespace)
        assert world.targets.resolve(vpa, TargetRef("batch/v1", "Job", "job")).pods == (pod,)
        world.pods.changed(pod, None)
        world.workloads.changed(target, None)
        assert world.targets.resolve(vpa, TargetRef("batch/v1", "Job", "job")).pods == ()
        world.targets.forget(vpa)
        now = weigh(world.pods, world.workloads, world.targets, excluding=(world.server,))
        assert before is None or now.objects.total() == before.objects.total(), now.more_than(before)
        before = now


def test_kinds_that_the_server_does_not_know_are_not_remembered_for_good(world: World) -> None:
    """Users choose the apiVersion: each must not cost memory until the next restart."""
    objects = []
    for numbers in (range(1), range(1, 20)):
        for number in numbers:
            world.resolve("Thing", "x", f"gone-{number}.io/v1")
            world.now_s += 2 * UNUSED_TTL_S
        objects.append(weigh(world.scales, excluding=(world.server,)).objects.total())
    assert objects[1] < objects[0] + 10
