"""The controller against an API that is played: what it writes, in what order, and what a race or a failure does."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.gangs.controller import Controller
from extender.gangs.gang import Gang, gangs_of
from extender.gangs.ledger import Admitter, Ledger, NotLeading, gate_removal_patch
from extender.gangs.member import GATE, RESERVED_NODE, Member
from extender.pods.reservations import CONFIG_MAP, Reservation, read_reservations, reservations_data
from extender.watches import Watches
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, ServerFailed
from tests.extender.gangs.herds import NOON_S, gang, node, pod, reserved


class PlayedApi:
    """Remembers what was written; fails where it was told to. The ledger has a version, as in a real one."""

    def __init__(self, **objects: Mapping[str, Any]) -> None:
        self.objects = objects
        self.ledger: Mapping[str, Any] = {"metadata": {"name": CONFIG_MAP, "resourceVersion": "1"}}
        self.written: list[tuple[str, str]] = []
        self.told: dict[str, str] = {}
        self.events: list[Mapping[str, Any]] = []
        self.fails: dict[tuple[str, str], list[ApiError]] = {}

    def get(self, path: str) -> Mapping[str, Any]:
        name = path.rpartition("/")[2]
        self._note("get", name)
        return self.ledger if name == CONFIG_MAP else self.objects[name]

    def patch(self, path: str, body: Mapping[str, Any], *, strategic: bool) -> None:
        assert strategic
        name = path.rpartition("/")[2]
        self._note("open", name)
        if told := body["metadata"].get("annotations"):
            self.told[name] = told[RESERVED_NODE]

    def replace(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        was = self.ledger["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != was:
            raise Conflict("another wrote meanwhile")
        self._note("reserve", " ".join(sorted(uid for each in read_reservations(body) for uid in each.nodes)))
        self.ledger = {**body, "metadata": {**body["metadata"], "resourceVersion": was + "1"}}
        return self.ledger

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.events.append(body)

    def _note(self, *what: str) -> None:
        if failures := self.fails.get(cast(Any, what)):
            raise failures.pop(0)
        self.written.append(cast(Any, what))

    @property
    def reserved(self) -> Mapping[str, str]:
        """Pod UID -> node, as it stands in the ledger."""
        return {uid: node for each in read_reservations(self.ledger) for uid, node in each.nodes.items()}


class Shown:
    """A watch that shows what a test says."""

    synced, problem = True, ""

    def __init__(self, *objects: Any) -> None:
        self.objects = dict(enumerate(objects))

    def snapshot(self) -> Mapping[int, Any]:
        return self.objects


def admitter(api: PlayedApi, leads: Sequence[bool] = ()) -> Admitter:
    answers = iter(leads)
    return Admitter(cast(Api, api), Ledger(cast(Api, api), "kube-system"), lambda: next(answers, not leads))


def made_of(*members: Member) -> Gang:
    (found,) = gangs_of(members, lambda _: None)
    return found


def controller(api: PlayedApi, *pods: Any, clock: Any = lambda: 100.0) -> Controller:
    chance = random.Random(1)  # noqa: S311  # jitter
    made = Controller(cast(Api, api), lambda: True, clock=lambda: NOON_S, monotonic=clock, rng=chance)
    made._pods = cast(Any, Shown(*pods))
    made._nodes = cast(Any, Shown(node("n0"), node("n1")))
    made.watches = Watches(made._pods, made._nodes)
    return made


RESERVED = {"uid-g-0": "n0", "uid-g-1": "n1"}


def test_all_is_reserved_by_one_write_before_the_first_gate_is_opened() -> None:
    api = PlayedApi()
    admitter(api).admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert api.written == [
        ("get", CONFIG_MAP),
        ("reserve", "uid-g-0 uid-g-1"),
        ("open", "g-0"),
        ("open", "g-1"),
    ]
    assert api.reserved == RESERVED


def test_a_gate_is_opened_by_its_name_on_the_very_pod_and_people_are_told_the_node() -> None:
    assert gate_removal_patch("u", "n0") == {
        "metadata": {"uid": "u", "annotations": {"phasewise.dev/gang-node": "n0"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }


@pytest.mark.parametrize("writes", range(4))
def test_who_leads_no_more_stops_between_two_writes(writes: int) -> None:
    api = PlayedApi()
    with contextlib.suppress(NotLeading):
        admitter(api, [True] * writes + [False] * 9).admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    done = [("reserve", "uid-g-0 uid-g-1"), ("open", "g-0"), ("open", "g-1")]
    assert [each for each in api.written if each[0] != "get"] == done[:writes]


def test_who_leads_no_more_and_does_not_know_it_writes_over_nobody() -> None:
    """Both had read the same; the successor wrote first."""
    api = PlayedApi()
    former, successor = admitter(api), admitter(api)
    former.write([])
    successor.admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    with pytest.raises(Conflict):
        former.admit(made_of(*gang("h", 1)), {"uid-h-0": "n0"}, NOON_S, 300.0)
    assert api.reserved == RESERVED
    assert ("open", "h-0") not in api.written


def test_after_a_death_between_two_gates_nothing_is_reserved_for_longer() -> None:
    api = PlayedApi()
    api.fails = {("open", "g-1"): [ServerFailed("died")]}
    with pytest.raises(ServerFailed):
        admitter(api).admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    (before,) = read_reservations(api.ledger)
    left = reserved(pod("g-1", gang="g", size=2), "n1")
    admitter(api).admit(made_of(left), {"uid-g-1": "n1"}, NOON_S + 200.0, 300.0)
    assert read_reservations(api.ledger) == (before,)
    assert api.written[-1] == ("open", "g-1")


@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("another has its name")])
def test_a_member_that_is_gone_or_made_anew_is_left_out(error: ApiError) -> None:
    api = PlayedApi()
    api.fails = {("open", "g-0"): [error]}
    admitter(api).admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert api.written[-1] == ("open", "g-1")


def test_it_admits_a_gang_once_while_the_watch_is_behind() -> None:
    api = PlayedApi()
    made = controller(api, *gang("g", 2))
    made.reconcile()
    made.reconcile()
    assert api.written.count(("open", "g-0")) == 1
    assert made.admitted == 1
    assert {event["reason"] for event in api.events} == {"GangAdmitted"}


def test_after_a_failed_write_the_gang_is_left_alone_for_a_while() -> None:
    now = [100.0]
    api = PlayedApi()
    api.fails = {("reserve", "uid-g-0 uid-g-1"): [ServerFailed("no")]}
    made = controller(api, *gang("g", 2), clock=lambda: now[0])
    made.reconcile()
    made.reconcile()
    assert (api.reserved, made.admitted) == ({}, 0)
    assert {event["message"] for event in api.events} == {"gang g: admission failed part-way: no"}
    now[0] += 2.0
    made.reconcile()
    assert made.admitted == 1


def test_the_same_is_not_said_twice_and_is_said_again_after_a_while() -> None:
    now = [100.0]
    api = PlayedApi()
    made = controller(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    made.reconcile()
    made.reconcile()
    assert len(api.events) == 3
    assert api.events[0]["message"].startswith("gang huge: even when all jobs have ended, 0 of 3 pods fit")
    assert (api.events[0]["type"], made.waiting) == ("Warning", 1)
    now[0] += 601.0
    made.reconcile()
    assert len(api.events) == 6


def test_words_that_change_all_the_time_are_written_now_and_then() -> None:
    now = [100.0]
    api = PlayedApi()
    made = controller(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    made.reconcile()
    made._nodes = cast(Any, Shown(node("n0"), node("closed", unschedulable=True)))
    made.reconcile()
    assert len(api.events) == 3
    now[0] += 11.0
    made.reconcile()
    assert len(api.events) == 6
    assert api.events[-1]["message"].endswith("1 of 2 nodes are ruled out")


def test_a_pod_whose_annotations_have_no_room_is_let_in_without_ours() -> None:
    api = PlayedApi()
    api.fails = {("open", "g-0"): [Invalid("annotations: Too long: may not be more than 262144 bytes")]}
    admitter(api).admit(made_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert [each for each in api.written if each[0] == "open"] == [("open", "g-0"), ("open", "g-1")]
    assert api.told == {"g-1": "n1"}


@pytest.mark.parametrize("refuses", [Forbidden("a policy refuses it"), Invalid("it is frozen"), ServerFailed("a hook")])
def test_a_gang_whose_gates_cannot_be_opened_holds_no_other(refuses: ApiError) -> None:
    now = [100.0]
    api = PlayedApi()
    api.fails = {("open", "g-0"): [refuses] * 99}
    made = controller(api, *gang("g", 2, cpu="10", age_s=9), *gang("h", 2, cpu="10"), clock=lambda: now[0])
    made.reconcile()
    made.reconcile()
    assert api.reserved == {"uid-h-0": "n0", "uid-h-1": "n1"}
    assert [event["message"] for event in api.events][:2] == [f"gang g: admission failed part-way: {refuses}"] * 2
    made._pods = cast(Any, Shown(*gang("g", 2, cpu="10", age_s=9)))
    for _ in range(600):
        now[0] += 1.0
        made.reconcile()
    assert 10 <= 99 - len(api.fails["open", "g-0"]) <= 60, "less and less often"


def test_a_group_of_kubernetes_that_cannot_be_let_through_holds_no_gang() -> None:
    api = PlayedApi()
    api.fails = {("open", "native"): [Forbidden("a policy refuses it")] * 9}
    made = controller(api, pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"}), *gang("g", 2))
    made.reconcile()
    made.reconcile()
    assert (made.admitted, len(api.fails["open", "native"])) == (1, 8)


def test_groups_of_kubernetes_pass() -> None:
    api = PlayedApi()
    controller(api, pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"})).reconcile()
    assert api.written[-1] == ("open", "native")


def test_what_is_reserved_for_a_gang_that_does_not_go_is_given_back() -> None:
    """A controller died before it had opened any gate, and what it had found is not there any more."""
    api = PlayedApi()
    with pytest.raises(NotLeading):
        admitter(api, [True, False]).admit(made_of(*gang("huge", 1, cpu="99")), {"uid-huge-0": "n0"}, NOON_S, 300.0)
    assert api.reserved == {"uid-huge-0": "n0"}
    controller(api, *gang("huge", 1, cpu="99")).reconcile()
    assert api.reserved == {}


FREE, BOUND = pod("g-0", gang="g", size=2, gates=[]), pod("g-1", gang="g", size=2, on="n1")


@pytest.mark.parametrize(
    ("pods", "at_s", "kept"),
    [
        pytest.param([FREE, BOUND], 9, True, id="in part"),
        pytest.param([replace(FREE, node="n0"), BOUND], 9, False, id="bound"),
        pytest.param([replace(FREE, phase="Failed"), BOUND], 9, False, id="or at an end"),
        pytest.param([BOUND], 9, True, id="not seen yet, or gone"),
        pytest.param([replace(FREE, uid="new"), BOUND], 9, True, id="or made anew"),
        pytest.param([FREE, BOUND], 301, False, id="or too late"),
    ],
)
def test_what_is_reserved_is_kept_until_all_are_bound(pods: Sequence[Member], at_s: float, kept: bool) -> None:
    api = PlayedApi()
    admitter(api).admit(made_of(*gang("g", 2)), RESERVED, NOON_S - at_s, 300.0)
    controller(api, *pods).reconcile()
    assert api.reserved == (RESERVED if kept else {})


SEAT = Reservation("team", "phasewise.dev/gang=moved", NOON_S, 300.0, {"uid-old": "n0"}, {"cpu": 6.0})


def test_the_seat_of_a_moved_pod_is_nobody_elses_and_its_next_pod_goes_there_first() -> None:
    """n0 and n1 have 10 cores each: beside the seat of six there is room for one of seven."""
    api = PlayedApi()
    api.ledger = {**api.ledger, "data": reservations_data([SEAT])}
    old, seven = pod("old", on="n1"), [pod(f"s-{n}", gang=f"s{n}", size=1, cpu="7") for n in range(2)]
    made = controller(api, old, *seven)
    made.reconcile()
    assert api.reserved == {"uid-old": "n0", "uid-s-0": "n1"}
    made._pods = cast(Any, Shown(replace(seven[0], gates=(), node="n1"), seven[1], *gang("moved", 1, cpu="6")))
    made.reconcile()
    assert api.reserved == {"uid-moved-0": "n0"}
    assert api.written[-1] == ("open", "moved-0")


def test_without_its_ledger_it_lets_nobody_in_and_says_so() -> None:
    api = PlayedApi()
    api.fails = {("get", CONFIG_MAP): [NotFound("not there")]}
    made = controller(api, *gang("g", 2))
    with pytest.raises(NotFound):
        made.reconcile()
    assert (made.not_ready(), made.admitted) == ("not there", 0)
    made.reconcile()
    assert (made.not_ready(), made.admitted) == ("", 1)


def test_what_somebody_else_has_written_over_it_counts_for_nothing_and_stops_nobody() -> None:
    api = PlayedApi()
    api.ledger = {**api.ledger, "data": {"gangs.json": "{"}}
    made = controller(api, *gang("g", 2))
    made.reconcile()
    assert (made.admitted, len(api.reserved)) == (1, 2)


def test_what_another_has_reserved_meanwhile_is_seen_though_nothing_is_to_be_written() -> None:
    """One that was held up for long finds no room for the gang, which has its nodes already."""
    now = [100.0]
    api, two = PlayedApi(), gang("g", 2, cpu="10")
    burst = [pod(f"b{n}", cpu="10") for n in range(2)]
    made = controller(api, *burst, clock=lambda: now[0])
    made.reconcile()
    with pytest.raises(NotLeading):
        admitter(api, [True, False]).admit(made_of(*two), RESERVED, NOON_S, 300.0)
    made._pods = cast(Any, Shown(*burst, *two))
    now[0] += 6.0
    made.reconcile()
    assert made.admitted == 1


def test_a_pod_of_a_gang_without_the_gate_is_told_so_beside_what_its_gang_is_told() -> None:
    api = PlayedApi()
    made = controller(api, *gang("g", 2, cpu="99"), pod("g-2", gang="g", size=2, gates=[]))
    made.reconcile()
    made.reconcile()
    told = sorted((event["reason"], event["involvedObject"]["name"], event["type"]) for event in api.events)
    assert told == [
        ("GangNeverFits", "g-0", "Warning"),
        ("GangNeverFits", "g-1", "Warning"),
        ("GangNotGated", "g-2", "Warning"),
    ]


def test_a_hundred_gangs_that_wait_are_let_in_one_after_the_other_and_little_is_said_of_it() -> None:
    """Each takes both nodes, is bound at once, and has ended when the next is let in, a minute later."""
    now = [100.0]
    api = PlayedApi()
    waiting = {f"g{n}": gang(f"g{n}", 8, cpu="2500m", age_s=1000.0 - n) for n in range(100)}
    made = controller(api, clock=lambda: now[0])
    said = []
    for number, name in enumerate(list(waiting)):
        made._pods = cast(Any, Shown(*(member for members in waiting.values() for member in members)))
        before = len(api.events)
        made.reconcile()
        assert made.admitted == number + 1
        said.append(len(api.events) - before)
        bound = [replace(each, gates=(), node=api.reserved[each.uid]) for each in waiting.pop(name)]
        made._pods = cast(Any, Shown(*bound, *(member for members in waiting.values() for member in members)))
        before = len(api.events)
        made.reconcile()
        said.append(len(api.events) - before)
        now[0] += 60.0
    assert max(said) <= 50
    assert sum(said) <= 8 * 100 * (1 + 100 * 60 / 600), "each is told that it waits every ten minutes"


def test_the_size_of_a_job_is_asked_for_once_in_a_while() -> None:
    api = PlayedApi(j={"spec": {"parallelism": 2}})
    members = [
        pod(f"j-{n}", labels={"batch.kubernetes.io/job-name": "j"}, gates=[GATE], owner=("Job", "j")) for n in range(2)
    ]
    now = [100.0]
    made = controller(api, *members, clock=lambda: now[0])
    made._nodes = cast(Any, Shown(node("full", cpu="0")))
    for _ in range(20):
        made.reconcile()
        now[0] += 31.0
    assert api.written.count(("get", "j")) == 2


def test_a_job_that_is_made_anew_under_its_name_is_asked_for_its_size_anew() -> None:
    api = PlayedApi(j={"spec": {"parallelism": 1}})
    label = {"batch.kubernetes.io/job-name": "j"}
    made = controller(api, pod("j-0", labels=label, gates=[GATE], owner=("Job", "j"), cpu="99"))
    made.reconcile()
    api.objects["j"] = {"spec": {"parallelism": 2}}
    anew = pod("j-1", labels=label, gates=[GATE], owner=("Job", "j"))
    assert anew.owner is not None
    made._pods = cast(Any, Shown(replace(anew, owner=replace(anew.owner, uid="anew"))))
    made.reconcile()
    assert made.admitted == 0, "the other pod of it is missing"
