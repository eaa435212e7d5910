"""Pods that were refused every node are tried again, not too often and never too many at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from extender.gangs.member import Member
from extender.gangs.reading import read_member
from extender.gangs.waking import ANNOTATION, MAX_PER_PERIOD, Waker
from extender.reasons import MEMORY_REASON
from placement_bench.worlds import Clock, Json, pod_json
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import NotFound, ServerFailed

SAID = f"0/2 nodes are available: 1 Insufficient cpu, 1 {MEMORY_REASON}. preemption: none."


class PlayedApi:
    """Remembers which pods were changed and how; fails where it was told to."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.fails: dict[str, Exception] = {}

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        name = path.rpartition("/")[2]
        if failure := self.fails.get(name):
            raise failure
        self.woken.append(name)
        self.bodies.append(body)


def refused(name: str) -> Member:
    return read_member(waiting(SAID, name))


def waker(api: PlayedApi, clock: Clock, leads: bool = True) -> Waker:
    return Waker(cast(Api, api), lambda: leads, lambda: (), 30.0, clock=clock, monotonic=clock)


def waiting(message: str, name: str = "p", **more: Any) -> Json:
    pod = pod_json(name, **more)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    return pod


def test_a_pod_is_woken_after_a_rest_and_again_after_the_next() -> None:
    api, clock = PlayedApi(), Clock()
    made = waker(api, clock)
    for step_s, times in ((0.0, 0), (29.0, 0), (1.0, 1), (29.0, 1), (1.0, 2)):
        clock.now_s += step_s
        made.wake_due([refused("p")])
        assert len(api.woken) == times
    assert api.bodies[0]["metadata"]["uid"] == "uid-p"
    assert list(api.bodies[0]["metadata"]["annotations"]) == [ANNOTATION]


def test_of_many_those_that_rest_longest_go_first_and_only_some_at_once() -> None:
    api, clock = PlayedApi(), Clock()
    made = waker(api, clock)
    crowd = [refused(f"p{number}") for number in range(12)]
    made.wake_due(crowd)
    clock.now_s += 30.0
    for looks in (1, 2, 3):
        made.wake_due(crowd)
        assert len(api.woken) == min(12, looks * MAX_PER_PERIOD)
    assert len(set(api.woken)) == 12


def test_one_that_is_gone_stops_none_of_the_others_and_a_failed_write_waits_for_the_next_rest() -> None:
    api, clock = PlayedApi(), Clock()
    made = waker(api, clock)
    both = [refused("gone"), refused("there")]
    api.fails = {"gone": NotFound("gone")}
    made.wake_due(both)
    clock.now_s += 30.0
    made.wake_due(both)
    assert api.woken == ["there"]
    api.fails = {"there": ServerFailed("no")}
    clock.now_s += 30.0
    with pytest.raises(ServerFailed):
        made.wake_due([refused("there")])
    made.wake_due([refused("there")])
    assert made.woken == 1


def test_without_leading_nobody_is_woken() -> None:
    api, clock = PlayedApi(), Clock()
    made = waker(api, clock, leads=False)
    made.wake_due([refused("p")])
    clock.now_s += 60.0
    made.wake_due([refused("p")])
    assert api.woken == []


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        pytest.param(waiting(SAID), True, id="refused by the forecast"),
        pytest.param(waiting("0/2 nodes are available: 2 Insufficient cpu."), False, id="refused by others"),
        pytest.param(waiting(SAID, node="n"), False, id="bound meanwhile"),
        pytest.param(waiting(SAID, schedulingGates=[{"name": "x"}]), False, id="at a gate"),
        pytest.param(pod_json("p"), False, id="not tried yet"),
    ],
)
def test_it_concerns_pods_that_the_extender_keeps_waiting(pod: Json, waits: bool) -> None:
    assert read_member(pod).refused == waits
