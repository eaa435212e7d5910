"""The controller against a fake API: what it writes, in what order, and what happens on races and failures."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.gangs.controller import Controller, ControllerOptions
from extender.gangs.gang import Gang, gangs_of
from extender.gangs.ledger import Admitter, Ledger, NotLeading, gate_removal_patch
from extender.gangs.member import GATE, RESERVED_NODE, Member
from extender.gangs.sizes import MAX_READS
from extender.pods.reservations import CONFIG_MAP, Reservation, read_reservations, reservations_data
from extender.watches import Watches
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, ServerFailed
from tests.extender.gangs.herds import NOON_S, gang, node, pod, reserved


class FakeApi:
    """Records calls, and fails those in `fails`. The ledger has a resourceVersion, as in a real API."""

    def __init__(self, **objects: Mapping[str, Any]) -> None:
        self.objects = objects
        self.ledger: Mapping[str, Any] = {"metadata": {"name": CONFIG_MAP, "resourceVersion": "1"}}
        self.written: list[tuple[str, str]] = []
        self.annotated_nodes: dict[str, str] = {}
        self.events: list[Mapping[str, Any]] = []
        self.fails: dict[tuple[str, str], list[ApiError]] = {}

    def get(self, path: str) -> Mapping[str, Any]:
        name = path.rpartition("/")[2]
        self._record("get", name)
        return self.ledger if name == CONFIG_MAP else self.objects[name]

    def patch(self, path: str, body: Mapping[str, Any], *, strategic: bool) -> None:
        assert strategic
        name = path.rpartition("/")[2]
        self._record("open", name)
        assert body["metadata"]["uid"] == f"uid-{name}"
        if annotations := body["metadata"].get("annotations"):
            self.annotated_nodes[name] = annotations[RESERVED_NODE]

    def replace(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        version = self.ledger["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise Conflict("another wrote meanwhile")
        self._record("reserve", " ".join(sorted(uid for each in read_reservations(body) for uid in each.nodes)))
        self.ledger = {**body, "metadata": {**body["metadata"], "resourceVersion": version + "1"}}
        return self.ledger

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.events.append(body)

    def _record(self, *call: str) -> None:
        if failures := self.fails.get(cast(Any, call)):
            raise failures.pop(0)
        self.written.append(cast(Any, call))

    @property
    def reserved(self) -> Mapping[str, str]:
        """Pod UID -> node, as in the ledger."""
        return {uid: node for each in read_reservations(self.ledger) for uid, node in each.nodes.items()}


class FakeReflector:
    """A watch that shows the given objects."""

    synced, problem = True, ""

    def __init__(self, *objects: Any) -> None:
        self.objects = dict(enumerate(objects))

    def snapshot(self) -> Mapping[int, Any]:
        return self.objects


def admitter(api: FakeApi, leads: Sequence[bool] = ()) -> Admitter:
    answers = iter(leads)
    return Admitter(cast(Api, api), Ledger(cast(Api, api), "kube-system"), lambda: next(answers, not leads))


def gang_of(*members: Member) -> Gang:
    (found,) = gangs_of(members, lambda _: None)
    return found


def controller_of(
    api: FakeApi, *pods: Any, clock: Any = lambda: 100.0, options: ControllerOptions | None = None
) -> Controller:
    controller = Controller(cast(Api, api), lambda: True, options, clock=lambda: NOON_S, monotonic=clock)
    controller._jitter = random.Random(1)  # noqa: S311
    controller._pods = cast(Any, FakeReflector(*pods))
    controller._nodes = cast(Any, FakeReflector(node("n0"), node("n1")))
    controller.watches = Watches(controller._pods, controller._nodes)
    return controller


RESERVED = {"uid-g-0": "n0", "uid-g-1": "n1"}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def test_all_nodes_are_reserved_by_one_write_before_the_first_gate_is_removed(api: FakeApi) -> None:
    admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert api.written == [
        ("get", CONFIG_MAP),
        ("reserve", "uid-g-0 uid-g-1"),
        ("open", "g-0"),
        ("open", "g-1"),
    ]
    assert api.reserved == RESERVED
    (held,) = read_reservations(api.ledger)
    assert (held.since_s, held.hold_s) == (NOON_S, 300.0)


def test_the_patch_removes_our_gate_from_the_pod_with_that_uid_and_annotates_its_node() -> None:
    assert gate_removal_patch("u", "n0") == {
        "metadata": {"uid": "u", "annotations": {"phasewise.dev/gang-node": "n0"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }


@pytest.mark.parametrize("writes", range(4))
def test_a_controller_that_no_longer_leads_stops_between_two_writes(writes: int, api: FakeApi) -> None:
    with contextlib.suppress(NotLeading):
        admitter(api, [True] * writes + [False] * 9).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    done = [("reserve", "uid-g-0 uid-g-1"), ("open", "g-0"), ("open", "g-1")]
    assert [each for each in api.written if each[0] != "get"] == done[:writes]


def test_a_former_leader_reports_nothing_of_its_term_and_is_ready_to_lead_again() -> None:
    """As after an outage of the API server, in which it lost the Lease: its standby leads now."""
    now_s, leads, api = [100.0], [True], FakeApi()
    controller = controller_of(api, *gang("huge", 3, cpu="99"), clock=lambda: now_s[0])
    controller._leads = lambda: leads[0]
    controller._reconcile_if_leading()
    api.fails, now_s[0] = {("get", CONFIG_MAP): [ServerFailed("down")]}, 200.0
    with pytest.raises(ServerFailed):
        controller._reconcile_if_leading()
    assert (controller.not_ready(), controller.waiting) == ("down", 1)
    leads[0] = False
    controller._reconcile_if_leading()
    assert (controller.not_ready(), controller.waiting) == ("", 0)


def test_a_former_leader_that_still_believes_it_leads_overwrites_nothing(api: FakeApi) -> None:
    """Both have read the same reservations; the successor writes first."""
    former, successor = admitter(api), admitter(api)
    former.write([])
    successor.admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    with pytest.raises(Conflict):
        former.admit(gang_of(*gang("h", 1)), {"uid-h-0": "n0"}, NOON_S, 300.0)
    assert api.reserved == RESERVED
    assert ("open", "h-0") not in api.written


def test_completing_an_interrupted_admission_does_not_extend_its_reservation(api: FakeApi) -> None:
    api.fails = {("open", "g-1"): [ServerFailed("died")]}
    with pytest.raises(ServerFailed):
        admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    (reservation,) = read_reservations(api.ledger)
    gated = reserved(pod("g-1", gang="g", size=2), "n1")
    admitter(api).admit(gang_of(gated), {"uid-g-1": "n1"}, NOON_S + 200.0, 300.0)
    assert read_reservations(api.ledger) == (reservation,)
    assert api.written[-1] == ("open", "g-1")


@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("another has its name")])
def test_a_member_that_was_deleted_or_recreated_is_skipped(error: ApiError, api: FakeApi) -> None:
    api.fails = {("open", "g-0"): [error]}
    admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert api.written[-1] == ("open", "g-1")


def test_a_gang_is_admitted_once_while_the_watch_is_behind(api: FakeApi) -> None:
    controller = controller_of(api, *gang("g", 2))
    controller.reconcile()
    controller.reconcile()
    assert api.written.count(("open", "g-0")) == 1
    assert controller.admitted == 1
    assert {event["reason"] for event in api.events} == {"GangAdmitted"}


def test_a_reservation_begins_when_its_gang_is_admitted_however_long_the_gates_of_others_took(api: FakeApi) -> None:
    native, now_s, patch = pod("native", gates=[GATE], schedulingGroup={"podGroupName": "pg"}), [NOON_S], api.patch

    def slow(*call: Any, **options: Any) -> None:
        now_s[0] += 40.0
        patch(*call, **options)

    api.patch = slow  # type: ignore[method-assign]
    controller = controller_of(api, native, *gang("g", 2))
    controller._clock = lambda: now_s[0]
    controller.reconcile()
    assert [name for kind, name in api.written if kind == "open"] == ["native", "g-0", "g-1"]
    (held,) = read_reservations(api.ledger)
    assert (held.since_s, held.hold_s) == (NOON_S + 40.0, 300.0)


def test_a_gang_is_in_back_off_after_a_failed_write(api: FakeApi) -> None:
    now = [100.0]
    api.fails = {("reserve", "uid-g-0 uid-g-1"): [ServerFailed("no")]}
    controller = controller_of(api, *gang("g", 2), clock=lambda: now[0])
    controller.reconcile()
    controller.reconcile()
    assert (api.reserved, controller.admitted) == ({}, 0)
    assert {event["message"] for event in api.events} == {"gang g: admission failed part-way: no"}
    now[0] += 2.0
    controller.reconcile()
    assert controller.admitted == 1


def test_the_same_event_is_repeated_only_after_a_while(api: FakeApi) -> None:
    now = [100.0]
    controller = controller_of(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    controller.reconcile()
    controller.reconcile()
    assert len(api.events) == 3
    assert api.events[0]["message"].startswith("gang huge: even when all jobs have ended, 0 of 3 pods fit")
    assert (api.events[0]["type"], controller.waiting) == ("Warning", 1)
    now[0] += 601.0
    controller.reconcile()
    assert len(api.events) == 6


def test_an_event_whose_text_changes_is_written_again_only_after_a_pause(api: FakeApi) -> None:
    now = [100.0]
    controller = controller_of(api, *gang("huge", 3, cpu="99"), clock=lambda: now[0])
    controller.reconcile()
    controller._nodes = cast(Any, FakeReflector(node("n0"), node("closed", unschedulable=True)))
    controller.reconcile()
    assert len(api.events) == 3
    now[0] += 11.0
    controller.reconcile()
    assert len(api.events) == 6
    assert api.events[-1]["message"].endswith("1 of 2 nodes are ruled out")


def test_a_pod_whose_annotations_are_full_is_admitted_without_ours(api: FakeApi) -> None:
    api.fails = {("open", "g-0"): [Invalid("annotations: Too long: may not be more than 262144 bytes")]}
    admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    assert [each for each in api.written if each[0] == "open"] == [("open", "g-0"), ("open", "g-1")]
    assert api.annotated_nodes == {"g-1": "n1"}


@pytest.mark.parametrize("refuses", [Forbidden("a policy refuses it"), Invalid("it is frozen"), ServerFailed("a hook")])
def test_a_gang_whose_gates_cannot_be_removed_does_not_hold_up_others(refuses: ApiError, api: FakeApi) -> None:
    now = [100.0]
    api.fails = {("open", "g-0"): [refuses] * 99}
    controller = controller_of(api, *gang("g", 2, cpu="10", age_s=9), *gang("h", 2, cpu="10"), clock=lambda: now[0])
    controller.reconcile()
    controller.reconcile()
    assert api.reserved == {"uid-h-0": "n0", "uid-h-1": "n1"}
    assert [event["message"] for event in api.events][:2] == [f"gang g: admission failed part-way: {refuses}"] * 2
    controller._pods = cast(Any, FakeReflector(*gang("g", 2, cpu="10", age_s=9)))
    for _ in range(600):
        now[0] += 1.0
        controller.reconcile()
    assert 10 <= 99 - len(api.fails["open", "g-0"]) <= 60, "it retries less and less often"


def test_a_native_pod_group_that_cannot_be_ungated_does_not_hold_up_gangs(api: FakeApi) -> None:
    api.fails = {("open", "native"): [Forbidden("a policy refuses it")] * 9}
    controller = controller_of(api, pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"}), *gang("g", 2))
    controller.reconcile()
    controller.reconcile()
    assert (controller.admitted, len(api.fails["open", "native"])) == (1, 8)


def test_pods_of_native_pod_groups_are_ungated(api: FakeApi) -> None:
    controller_of(api, pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"})).reconcile()
    assert api.written[-1] == ("open", "native")


def test_reservations_of_a_gang_that_no_longer_fits_are_released(api: FakeApi) -> None:
    """A controller died before it had removed a gate, and the capacity it had found is gone."""
    with pytest.raises(NotLeading):
        admitter(api, [True, False]).admit(gang_of(*gang("huge", 1, cpu="99")), {"uid-huge-0": "n0"}, NOON_S, 300.0)
    assert api.reserved == {"uid-huge-0": "n0"}
    controller_of(api, *gang("huge", 1, cpu="99")).reconcile()
    assert api.reserved == {}


FREE, BOUND = pod("g-0", gang="g", size=2, gates=[]), pod("g-1", gang="g", size=2, on="n1")


@pytest.mark.parametrize(
    ("pods", "at_s", "kept"),
    [
        pytest.param([FREE, BOUND], 9, True, id="partly bound"),
        pytest.param([replace(FREE, node="n0"), BOUND], 9, False, id="bound"),
        pytest.param([replace(FREE, phase="Failed"), BOUND], 9, False, id="finished"),
        pytest.param([BOUND], 9, True, id="not seen yet"),
        pytest.param([BOUND], 200, True, id="not seen yet after an outage"),
        pytest.param([FREE, BOUND], 299, True, id="waiting for long"),
        pytest.param([replace(FREE, uid="new"), BOUND], 9, True, id="recreated"),
        pytest.param([FREE, BOUND], 301, False, id="expired"),
    ],
)
def test_a_reservation_is_kept_until_its_pods_are_bound_or_finished_or_it_expires(
    pods: Sequence[Member], at_s: float, kept: bool, api: FakeApi
) -> None:
    admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S - at_s, 300.0)
    controller_of(api, *pods).reconcile()
    assert api.reserved == (RESERVED if kept else {})


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_a_controller_whose_watch_lags_behind_the_last_leader_waits_for_the_pods_with_reservations(
    seen: int, api: FakeApi
) -> None:
    """It was suspended, say. A gang that fits by what its watch shows would get the nodes of the other one."""
    g, h = gang("g", 3, cpu="6", age_s=9), gang("h", 2, cpu="6", age_s=99)
    api.fails = {("open", "g-0"): [ServerFailed("died")]}
    with pytest.raises(ServerFailed):
        admitter(api).admit(gang_of(*g), {"uid-g-0": "n0", "uid-g-1": "n1", "uid-g-2": "n2"}, NOON_S - 100.0, 300.0)
    held = api.reserved
    controller = controller_of(api, *h, *g[:seen])
    controller._nodes = cast(Any, FakeReflector(*(node(f"n{number}") for number in range(3))))
    controller.reconcile()
    assert (api.reserved, controller.admitted) == (held, 0)
    controller._pods = cast(Any, FakeReflector(*h, *g))
    controller.reconcile()
    assert (api.reserved, controller.admitted) == (held, 1)
    assert [name for kind, name in api.written if kind == "open"] == ["g-0", "g-1", "g-2"]


def test_a_gang_keeps_the_reservation_that_another_controller_made_since_the_ledger_was_read(api: FakeApi) -> None:
    """The other one died before it had removed a gate; this one decides once without knowing of it."""
    controller = controller_of(api)
    controller.reconcile()
    with pytest.raises(NotLeading):
        admitter(api, [True, False]).admit(gang_of(*gang("g", 2)), {"uid-g-0": "n1", "uid-g-1": "n0"}, NOON_S, 300.0)
    held = api.reserved
    controller._pods = cast(Any, FakeReflector(*gang("g", 2)))
    with contextlib.suppress(Conflict):
        controller.reconcile()
    controller.reconcile()
    assert (api.reserved, controller.admitted) == (held, 1)


def test_pods_with_reservations_of_another_controller_that_are_still_not_seen_were_deleted(api: FakeApi) -> None:
    now = [100.0]
    admitter(api).admit(gang_of(*gang("g", 2)), RESERVED, NOON_S, 300.0)
    controller = controller_of(api, BOUND, *gang("h", 1), clock=lambda: now[0])
    controller.reconcile()
    now[0] += 9.0
    controller.reconcile()
    assert (api.reserved, controller.admitted) == (RESERVED, 0)
    now[0] += 2.0
    controller.reconcile()
    assert (api.reserved.keys(), controller.admitted) == ({"uid-h-0"}, 1)


def test_a_watch_that_lags_for_long_leads_to_no_admission_into_capacity_that_has_been_given_away(api: FakeApi) -> None:
    """Only one of the two fits. The watch goes on showing both at the gate, long after that of one was opened."""
    now = [100.0]
    two = (*gang("one", 2, cpu="10", age_s=9), *gang("two", 2, cpu="10"))
    controller = controller_of(api, *two, clock=lambda: now[0])
    for _ in range(60):
        controller.reconcile()
        now[0] += 1.0
    assert {name for kind, name in api.written if kind == "open"} == {"one-0", "one-1"}
    assert api.reserved.keys() == {"uid-one-0", "uid-one-1"}


def test_the_nodes_of_a_gang_that_has_waited_for_long_are_reserved_and_so_is_a_new_term_of_them(api: FakeApi) -> None:
    """Each term is five minutes, so that it ends soon after the controller does."""
    now_s, large = [NOON_S], gang("large", 2, cpu="10", age_s=700)
    controller = controller_of(api, pod("r0", on="n0", cpu="1"), pod("r1", on="n1", cpu="1"), *large)
    controller._clock = lambda: now_s[0]
    controller.reconcile()
    assert api.reserved.keys() == {"uid-large-0", "uid-large-1"}
    assert {event["message"] for event in api.events} == {
        "gang large: 0 of 2 pods fit; free capacity is kept for it on 2 nodes"
    }
    for after_s, since_s in ((149.0, 0.0), (151.0, 151.0), (290.0, 151.0)):
        now_s[0] = NOON_S + after_s
        controller.reconcile()
        (held,) = read_reservations(api.ledger)
        assert (held.since_s, held.hold_s) == (NOON_S + since_s, 300.0)
    controller._pods = cast(Any, FakeReflector(*large))
    controller.reconcile()
    assert [name for kind, name in api.written if kind == "open"] == ["large-0", "large-1"]


def test_a_new_leader_keeps_the_nodes_that_the_former_one_kept(api: FakeApi) -> None:
    running = [pod(f"r{number}", on=f"n{number}", cpu="1") for number in range(2)]
    large = gang("large", 1, cpu="10", age_s=700)
    controller_of(api, *running[:1], pod("r2", on="n1", cpu="3"), *large).reconcile()
    assert api.reserved == {"uid-large-0": "n0"}
    controller_of(api, running[1], pod("r2", on="n0", cpu="3"), *large).reconcile()
    assert api.reserved == {"uid-large-0": "n0"}


def test_gangs_that_are_created_and_deleted_again_and_again_do_not_hold_up_others(api: FakeApi) -> None:
    now = [100.0]
    controller = controller_of(api, *gang("g", 2), clock=lambda: now[0])
    controller.reconcile()
    now[0] += 6.0  # the reservations are read again
    controller._pods = cast(Any, FakeReflector(*gang("h", 1)))
    controller.reconcile()
    assert (api.reserved.keys(), controller.admitted) == ({"uid-h-0"}, 2)


MOVE_RESERVATION = Reservation("team", "phasewise.dev/gang=moved", NOON_S, 300.0, {"uid-old": "n0"}, {"cpu": 6.0})


def test_the_node_reserved_for_a_moved_pod_is_kept_for_its_replacement(api: FakeApi) -> None:
    """n0 and n1 have 10 cores each: with six reserved on n0, only one pod of seven fits."""
    api.ledger = {**api.ledger, "data": reservations_data([MOVE_RESERVATION])}
    old, seven = pod("old", on="n1"), [pod(f"s-{n}", gang=f"s{n}", size=1, cpu="7") for n in range(2)]
    controller = controller_of(api, old, *seven)
    controller.reconcile()
    assert api.reserved == {"uid-old": "n0", "uid-s-0": "n1"}
    controller._pods = cast(
        Any, FakeReflector(replace(seven[0], gates=(), node="n1"), seven[1], *gang("moved", 1, cpu="6"))
    )
    controller.reconcile()
    assert api.reserved == {"uid-moved-0": "n0"}
    assert api.written[-1] == ("open", "moved-0")


def test_a_controller_without_its_ledger_admits_no_gang_and_is_not_ready(api: FakeApi) -> None:
    api.fails = {("get", CONFIG_MAP): [NotFound("not there")]}
    controller = controller_of(api, *gang("g", 2))
    controller.reconcile()
    assert (controller.not_ready(), controller.admitted) == ("not there", 0)
    controller.reconcile()
    assert (controller.not_ready(), controller.admitted) == ("", 1)


@pytest.mark.parametrize("error", [NotFound("not there"), Forbidden("no right to read it")])
def test_events_say_that_nodes_cannot_be_reserved_and_native_pod_groups_do_not_wait_for_it(
    error: ApiError, api: FakeApi
) -> None:
    api.fails = {("get", CONFIG_MAP): [error] * 2}
    native = pod("native", gates=[GATE], schedulingGroup={"podGroupName": "n"})
    controller = controller_of(api, *gang("g", 2), *gang("part", 2)[:1], native)
    controller.reconcile()
    assert api.written == [("open", "native")]
    assert controller.waiting == 1
    messages = {event["involvedObject"]["name"]: event["message"] for event in api.events}
    text = f"gang g: nodes cannot be reserved: {error}"
    assert messages == {"g-0": text, "g-1": text}


def test_an_api_server_that_fails_does_not_cost_a_request_for_each_gang(api: FakeApi) -> None:
    api.fails = {("get", CONFIG_MAP): [ServerFailed("down")]}
    with pytest.raises(ServerFailed):
        controller_of(api, *gang("g", 2)).reconcile()
    assert (api.written, api.events) == ([], [])


def test_reservations_that_cannot_be_parsed_are_ignored_and_replaced(api: FakeApi) -> None:
    api.ledger = {**api.ledger, "data": {"gangs.json": "{"}}
    controller = controller_of(api, *gang("g", 2))
    controller.reconcile()
    assert (controller.admitted, len(api.reserved)) == (1, 2)


def test_reservations_of_another_replica_are_read_again_though_nothing_is_written() -> None:
    """The burst leaves no capacity for the gang, but its nodes are reserved already."""
    now = [100.0]
    api, two = FakeApi(), gang("g", 2, cpu="10")
    burst = [pod(f"b{n}", cpu="10") for n in range(2)]
    controller = controller_of(api, *burst, clock=lambda: now[0])
    controller.reconcile()
    with pytest.raises(NotLeading):
        admitter(api, [True, False]).admit(gang_of(*two), RESERVED, NOON_S, 300.0)
    controller._pods = cast(Any, FakeReflector(*burst, *two))
    now[0] += 6.0
    controller.reconcile()
    assert controller.admitted == 1


def test_a_gang_pod_without_the_gate_gets_its_own_event_besides_those_of_its_gang(api: FakeApi) -> None:
    controller = controller_of(api, *gang("g", 2, cpu="99"), pod("g-2", gang="g", size=2, gates=[]))
    controller.reconcile()
    controller.reconcile()
    events = sorted((event["reason"], event["involvedObject"]["name"], event["type"]) for event in api.events)
    assert events == [
        ("GangNeverFits", "g-0", "Warning"),
        ("GangNeverFits", "g-1", "Warning"),
        ("GangNotGated", "g-2", "Warning"),
    ]


def test_the_next_gang_does_not_wait_for_as_long_as_the_gates_of_a_large_one_took_to_open() -> None:
    now, api = [100.0], FakeApi()
    controller = controller_of(api, *gang("g", 2), clock=lambda: now[0])
    controller._admitter._gate_removed = lambda _: now.append(now.pop() + 30.0)  # as our rate limit makes it wait
    controller.reconcile()
    assert (controller.admitted, now) == (1, [160.0])
    assert controller.loop._min_pause_s() < 1.0


def test_a_hundred_waiting_gangs_are_admitted_one_by_one_with_few_events(api: FakeApi) -> None:
    """Each takes both nodes, is bound at once, and has ended when the next is admitted, a minute later."""
    now = [100.0]
    waiting = {f"g{n}": gang(f"g{n}", 8, cpu="2500m", age_s=1000.0 - n) for n in range(100)}
    controller = controller_of(api, clock=lambda: now[0])
    event_counts = []
    for number, name in enumerate(list(waiting)):
        controller._pods = cast(Any, FakeReflector(*(member for members in waiting.values() for member in members)))
        before = len(api.events)
        controller.reconcile()
        assert controller.admitted == number + 1
        event_counts.append(len(api.events) - before)
        bound = [replace(each, gates=(), node=api.reserved[each.uid]) for each in waiting.pop(name)]
        controller._pods = cast(
            Any, FakeReflector(*bound, *(member for members in waiting.values() for member in members))
        )
        before = len(api.events)
        controller.reconcile()
        event_counts.append(len(api.events) - before)
        now[0] += 60.0
    assert max(event_counts) <= 50
    assert sum(event_counts) <= 8 * 100 * (1 + 100 * 60 / 600), "each waiting gang gets an event every ten minutes"


def test_every_waiting_gang_gets_an_event_before_any_gets_its_second(api: FakeApi) -> None:
    """There are more than events can be repeated for: one gang a minute, repeated after ten."""
    now = [100.0]
    waiting = [member for n in range(15) for member in gang(f"g{n}", 2, cpu="99", age_s=1000.0 - n)]
    options = ControllerOptions(max_events=2)
    controller = controller_of(api, *waiting, options=options, clock=lambda: now[0])
    for _ in range(30):
        controller.reconcile()
        now[0] += 60.0
    pods = [event["involvedObject"]["name"] for event in api.events]
    assert pods == [member.key.name for member in waiting] * 2


def test_the_size_of_a_job_is_cached_for_a_while() -> None:
    api = FakeApi(j={"spec": {"parallelism": 2}})
    members = [
        pod(f"j-{n}", labels={"batch.kubernetes.io/job-name": "j"}, gates=[GATE], owner=("Job", "j")) for n in range(2)
    ]
    now = [100.0]
    controller = controller_of(api, *members, clock=lambda: now[0])
    controller._nodes = cast(Any, FakeReflector(node("full", cpu="0")))
    for _ in range(20):
        controller.reconcile()
        now[0] += 31.0
    assert api.written.count(("get", "j")) == 2


def test_the_size_of_a_job_recreated_under_its_name_is_read_again() -> None:
    api = FakeApi(j={"spec": {"parallelism": 1}})
    label = {"batch.kubernetes.io/job-name": "j"}
    controller = controller_of(api, pod("j-0", labels=label, gates=[GATE], owner=("Job", "j"), cpu="99"))
    controller.reconcile()
    api.objects["j"] = {"spec": {"parallelism": 2}}
    recreated = pod("j-1", labels=label, gates=[GATE], owner=("Job", "j"))
    assert recreated.owner is not None
    controller._pods = cast(Any, FakeReflector(replace(recreated, owner=replace(recreated.owner, uid="recreated"))))
    controller.reconcile()
    assert controller.admitted == 0, "the other pod of it is missing"


class ApiWithoutMostJobs(FakeApi):
    """Says of every job that is not in `objects` that it does not exist."""

    def get(self, path: str) -> Mapping[str, Any]:
        name = path.rpartition("/")[2]
        if name != CONFIG_MAP and name not in self.objects:
            self.fails["get", name] = [NotFound("no such job")]
        return super().get(path)

    @property
    def reads(self) -> int:
        """Requests for jobs so far, also failed ones."""
        return len(self.fails) + sum(1 for call, name in self.written if call == "get" and name != CONFIG_MAP)


def gated_pod_of_job(name: str) -> Member:
    return pod(f"{name}-0", labels={"batch.kubernetes.io/job-name": name}, gates=[GATE], owner=("Job", name))


def test_pods_of_many_jobs_that_do_not_exist_delay_other_gangs_only_little() -> None:
    """However many gated pods name such jobs, a run asks for few of them, and each waits for its turn."""
    now = [100.0]
    api = ApiWithoutMostJobs(real={"spec": {"parallelism": 1}})
    pods = [gated_pod_of_job(name) for name in (*(f"no-{n}" for n in range(10 * MAX_READS)), "real")]
    controller = controller_of(api, *pods, clock=lambda: now[0])
    for run in range(1, 11):
        controller.reconcile()
        assert api.reads == run * MAX_READS
        assert controller.admitted == 0
        now[0] += 4.0
    controller.reconcile()
    assert controller.admitted == 1
    assert "GangInvalid" in {event["reason"] for event in api.events}


def test_a_gang_whose_size_has_not_been_read_yet_waits() -> None:
    api = ApiWithoutMostJobs()
    controller = controller_of(api, *(gated_pod_of_job(f"no-{n}") for n in range(MAX_READS + 1)))
    controller.reconcile()
    assert controller.waiting == MAX_READS + 1
    messages = {event["involvedObject"]["name"]: event["message"] for event in api.events}
    assert messages[f"no-{MAX_READS}-0"] == f"gang no-{MAX_READS}: the size of its job has not been read yet"


def test_the_size_of_a_job_is_used_until_it_is_read_again() -> None:
    """It is due again, but it is the turn of others."""
    now = [100.0]
    api = ApiWithoutMostJobs(real={"spec": {"parallelism": 1}})
    controller = controller_of(api, gated_pod_of_job("real"), clock=lambda: now[0])
    controller._nodes = cast(Any, FakeReflector(node("full", cpu="0")))
    controller.reconcile()
    now[0] += 301.0
    pods = [gated_pod_of_job(name) for name in (*(f"no-{n}" for n in range(2 * MAX_READS)), "real")]
    controller._pods, controller._nodes = cast(Any, FakeReflector(*pods)), cast(Any, FakeReflector(node("n0")))
    controller.reconcile()
    assert controller.admitted == 1


def test_jobs_whose_pods_are_gone_are_not_asked_for() -> None:
    now = [100.0]
    api = ApiWithoutMostJobs()
    controller = controller_of(api, *(gated_pod_of_job(f"no-{n}") for n in range(9 * MAX_READS)), clock=lambda: now[0])
    controller.reconcile()
    controller._pods = cast(Any, FakeReflector())
    for _ in range(9):
        now[0] += 4.0
        controller.reconcile()
    assert api.reads <= 2 * MAX_READS
