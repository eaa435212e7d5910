"""Pods that the extender refused every node are woken for another attempt, not too often and few at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.gangs.member import Member, read_member
from extender.gangs.waking import ANNOTATION, MAX_PER_PERIOD, Waker
from extender.pods.pod import MEMORY_REASON
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Invalid, NotFound, ServerFailed
from recommender.cluster.objects.metadata import ObjectKey
from tests.worlds.placement import Clock, Json, pod_json

REFUSAL = f"0/2 nodes are available: 1 Insufficient cpu, 1 {MEMORY_REASON}. preemption: none."


class FakeApi:
    """Records patches of pods, and fails for those in `failures`."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.failures: dict[str, Exception] = {}

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        name = path.rpartition("/")[2]
        if failure := self.failures.get(name):
            raise failure
        self.woken.append(name)
        self.bodies.append(body)


def refused(name: str) -> Member:
    return read_member(waiting(REFUSAL, name))


def waker_with(api: FakeApi, clock: Clock, leads: bool = True) -> Waker:
    return Waker(cast(Api, api), lambda: leads, lambda: (), 30.0, clock=clock, monotonic=clock)


def waiting(message: str, name: str = "p", **fields: Any) -> Json:
    pod = pod_json(name, **fields)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    return pod


def test_a_pod_is_woken_after_a_pause_and_again_after_the_next() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock)
    for step_s, times in ((0.0, 0), (29.0, 0), (1.0, 1), (29.0, 1), (1.0, 2)):
        clock.now_s += step_s
        waker.wake_due([refused("p")])
        assert len(api.woken) == times
    assert api.bodies[0]["metadata"]["uid"] == "uid-p"
    assert list(api.bodies[0]["metadata"]["annotations"]) == [ANNOTATION]


def test_a_few_pods_are_woken_per_period_and_none_twice_before_the_others() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock)
    pods = [refused(f"p{number}") for number in range(12)]
    waker.wake_due(pods)
    clock.now_s += 30.0
    for periods in (1, 2, 3):
        waker.wake_due(pods)
        assert len(api.woken) == min(12, periods * MAX_PER_PERIOD)
    assert len(set(api.woken)) == 12


def test_a_pod_is_woken_in_its_turn_however_many_pods_of_another_namespace_are_refused() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock)
    many = [refused(f"many{number}") for number in range(500)]
    waker.wake_due(many)
    clock.now_s += 10.0
    everybody = [*many, replace(refused("mine"), key=ObjectKey("other", "mine"))]
    for _ in range(31):
        waker.wake_due(everybody)
        clock.now_s += 1.0
    assert "mine" in api.woken
    for _ in range(31):
        waker.wake_due(everybody)
        clock.now_s += 1.0
    assert api.woken.count("mine") == 2, "every thirty seconds"


def test_a_deleted_pod_does_not_stop_others_and_a_failed_write_waits_for_the_next_pause() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock)
    both = [refused("gone"), refused("there")]
    api.failures = {"gone": NotFound("gone")}
    waker.wake_due(both)
    clock.now_s += 30.0
    waker.wake_due(both)
    assert api.woken == ["there"]
    api.failures = {"there": ServerFailed("no")}
    clock.now_s += 30.0
    with pytest.raises(ServerFailed):
        waker.wake_due([refused("there")])
    waker.wake_due([refused("there")])
    assert waker.woken == 1


def test_pods_whose_annotations_are_full_do_not_stop_others_from_being_woken() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock)
    pods = [refused(name) for name in ("full-0", "full-1", "there")]
    api.failures = {f"full-{n}": Invalid("annotations: Too long: may not be more than 262144 bytes") for n in (0, 1)}
    waker.wake_due(pods)
    clock.now_s += 30.0
    waker.wake_due(pods)
    assert (api.woken, waker.woken) == (["there"], 1)


def test_a_replica_that_does_not_lead_wakes_no_pod() -> None:
    api, clock = FakeApi(), Clock()
    waker = waker_with(api, clock, leads=False)
    waker.wake_due([refused("p")])
    clock.now_s += 60.0
    waker.wake_due([refused("p")])
    assert api.woken == []


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        pytest.param(waiting(REFUSAL), True, id="refused by the forecast"),
        pytest.param(waiting("0/2 nodes are available: 2 Insufficient cpu."), False, id="refused by others"),
        pytest.param(waiting(REFUSAL, node="n"), False, id="bound"),
        pytest.param(waiting(REFUSAL, schedulingGates=[{"name": "x"}]), False, id="gated"),
        pytest.param(pod_json("p"), False, id="not attempted yet"),
    ],
)
def test_only_pending_pods_that_the_extender_refused_count_as_refused(pod: Json, waits: bool) -> None:
    assert read_member(pod).refused == waits
