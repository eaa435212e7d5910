"""The controller against an API that is played: what it writes, in what order, and what a race or a failure does."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from extender.gangs.admitting import Admitter, NotLeading, opening
from extender.gangs.controller import Controller
from extender.gangs.names import GATE
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, Invalid, NotFound, ServerFailed
from tests.extender.gangs.herds import NOON_S, gang, node, pod, pod_json

Body = Sequence[Mapping[str, Any]] | Mapping[str, Any]


class PlayedApi:
    """Remembers what was written; fails where it was told to."""

    def __init__(self, **pods: Mapping[str, Any]) -> None:
        self.pods = pods
        self.written: list[tuple[str, str]] = []
        self.events: list[Mapping[str, Any]] = []
        self.fails: dict[tuple[str, str], list[ApiError]] = {}

    def get(self, path: str) -> Mapping[str, Any]:
        self.written.append(("get", path.rpartition("/")[2]))
        return self.pods[path.rpartition("/")[2]]

    def patch(self, path: str, body: Body) -> None:
        what = ("note" if isinstance(body, Mapping) else "open", path.rpartition("/")[2])
        if failures := self.fails.get(what):
            raise failures.pop(0)
        self.written.append(what)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.events.append(body)


class Shown:
    """A watch that shows what a test says."""

    synced, problem = True, ""

    def __init__(self, *objects: Any) -> None:
        self.objects = dict(enumerate(objects))

    def snapshot(self) -> Mapping[int, Any]:
        return self.objects


def admitter(api: PlayedApi, leads: Sequence[bool] = ()) -> Admitter:
    answers = iter(leads)
    return Admitter(cast(Api, api), lambda: next(answers, not leads))


def controller(api: PlayedApi, *pods: Any, clock: Any = lambda: 100.0) -> Controller:
    chance = random.Random(1)  # noqa: S311  # jitter
    made = Controller(cast(Api, api), lambda: True, clock=lambda: NOON_S, monotonic=clock, chance=chance)
    made._pods = cast(Any, Shown(*pods))
    made._nodes = cast(Any, Shown(node("n0"), node("n1")))
    return made


def test_every_seat_is_written_before_the_first_gate_is_opened() -> None:
    api = PlayedApi()
    admitter(api).admit(gang("g", 2), {"uid-g-0": "n0", "uid-g-1": "n1"}, NOON_S)
    assert api.written == [("note", "g-0"), ("note", "g-1"), ("open", "g-0"), ("open", "g-1")]


def test_a_gate_is_opened_by_its_place_and_its_name_on_the_very_pod() -> None:
    assert opening("u", ["other", GATE]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


def test_who_leads_no_more_stops_between_two_writes() -> None:
    api = PlayedApi()
    with pytest.raises(NotLeading):
        admitter(api, [True, True, True, False]).admit(gang("g", 2), {"uid-g-0": "n0", "uid-g-1": "n1"}, NOON_S)
    assert api.written == [("note", "g-0"), ("note", "g-1"), ("open", "g-0")]


def test_after_a_race_the_pod_is_read_anew_and_a_gate_that_is_open_is_left_alone() -> None:
    api = PlayedApi(a=pod_json("a", gang="g", gates=["new", GATE]), b=pod_json("b", gang="g", gates=[]))
    api.fails = {("open", "a"): [Invalid("test failed")], ("open", "b"): [Invalid("test failed")]}
    admitter(api).open([pod("a", gang="g"), pod("b", gang="g")])
    assert api.written == [("get", "a"), ("open", "a"), ("get", "b")]


def test_tries_are_bounded_and_members_that_are_gone_are_left_out() -> None:
    api = PlayedApi(a=pod_json("a", gang="g"))
    api.fails = {("open", "a"): [Conflict("again")] * 9}
    with pytest.raises(Conflict):
        admitter(api).open([pod("a", gang="g")])
    assert len(api.fails["open", "a"]) == 5
    api.fails = {("open", "a"): [NotFound("gone")], ("note", "b"): [NotFound("gone")]}
    admitter(api).admit([pod("a", gang="g"), pod("b", gang="g")], {"uid-a": "n0", "uid-b": "n0"}, NOON_S)
    assert ("open", "b") in api.written


def test_it_admits_a_gang_once_while_the_watch_is_behind() -> None:
    api = PlayedApi()
    made = controller(api, *gang("g", 2))
    made.look()
    made.look()
    assert api.written.count(("open", "g-0")) == 1
    assert made.admitted == 1
    assert {event["reason"] for event in api.events} == {"GangAdmitted"}


def test_after_a_failed_write_the_gang_is_left_alone_for_a_while() -> None:
    now = [100.0]
    api = PlayedApi()
    api.fails = {("note", "g-0"): [ServerFailed("no")]}
    made = controller(api, *gang("g", 2), clock=lambda: now[0])
    made.look()
    made.look()
    assert (api.written, made.admitted) == ([], 0)
    now[0] += 2.0
    made.look()
    assert made.admitted == 1


def test_the_same_is_not_said_twice_and_is_said_again_after_a_while() -> None:
    now = [100.0]
    api = PlayedApi()
    made = controller(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    made.look()
    made.look()
    assert len(api.events) == 3
    assert api.events[0]["message"].startswith("gang huge: even when all jobs have ended, 0 of 3 pods fit")
    assert (api.events[0]["type"], made.waiting) == ("Warning", 1)
    now[0] += 601.0
    made.look()
    assert len(api.events) == 6


def test_words_that_change_all_the_time_are_written_now_and_then() -> None:
    now = [100.0]
    api = PlayedApi()
    made = controller(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    made.look()
    made._nodes = cast(Any, Shown(node("n0"), node("closed", unschedulable=True)))
    made.look()
    assert len(api.events) == 3
    now[0] += 11.0
    made.look()
    assert len(api.events) == 6
    assert api.events[-1]["message"].endswith("1 of 2 nodes are ruled out")


def test_groups_of_kubernetes_pass_and_seats_of_gangs_that_do_not_go_are_taken_back() -> None:
    api = PlayedApi()
    native = pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"})
    stale = gang("huge", 1, cpu="99", annotations={"phasewise.dev/gang-node": "n0"})
    controller(api, native, *stale).look()
    assert api.written == [("open", "native"), ("note", "huge-0")]


def test_the_size_of_a_job_is_asked_for_once_in_a_while() -> None:
    api = PlayedApi(j={"spec": {"parallelism": 2}})
    members = [
        pod(f"j-{n}", labels={"batch.kubernetes.io/job-name": "j"}, gates=[GATE], owner=("Job", "j")) for n in range(2)
    ]
    made = controller(api, *members)
    made.look()
    assert made.admitted == 1
    assert api.written.count(("get", "j")) == 1
