"""The gate to the Eviction API: the order of its writes, what it refuses, and what a kill between two writes does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.ledger import Ledger, hand_over_reservations, replacement_members, still_needed
from extender.gangs.member import Member
from extender.moves.board import PlannedMove
from extender.moves.gate import CONFIRM_S, MoveEvent, MoveGate, MoveLimits
from extender.moves.job import ANNOTATION, Algorithm, MoveRecord, Outcome, read_job, records_json
from extender.moves.store import BARRED, MoveStore, read_profile_facts
from extender.pods.pod import RESERVED_FOR_GANG
from extender.pods.reservations import read_reservations
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerFailed,
    Throttled,
    Unreachable,
)
from tests.extender.gangs.herds import NOON_S, gang
from tests.extender.moves.fakes import FakeApi, FakeReflector, Killed
from tests.extender.moves.trainings import ADMITTED, job_json, training
from tests.worlds.placement import World as Extender
from tests.worlds.placement import node_json, pod_json

NOT_RESERVED = "it did not get its node by a reservation at the gate, and its replacement would not either"
LIMITS = MoveLimits(max_active=2, return_timeout_s=300.0, cool_down_s=100.0)
BUDGET = Throttled("Cannot evict pod as it would violate the pod's disruption budget. (429)", status=429)


RESNET = {"template": {"metadata": {"labels": {"phasewise.dev/workload": "resnet"}}, "spec": {}}}


@dataclass
class World:
    """A cluster of three Jobs, and a controller that can be killed and started again."""

    api: FakeApi = field(default_factory=FakeApi)
    at_s: float = 0.0
    leads: bool = True
    ahead_s: float = 0.0
    """By how much the clock is set forward."""
    full: set[str] = field(default_factory=set)
    """Nodes where nothing fits any more."""

    def __post_init__(self) -> None:
        self.api.jobs = FakeReflector(read_job, job_json("a"), job_json("b"), job_json("c"))
        self.profiles = FakeReflector(read_profile_facts)
        self.pods = {name: training(name, "n3", annotations=ADMITTED) for name in "abc"}
        self.start_controller()

    def start_controller(self) -> None:
        """Start a controller, which knows only what was written."""
        api = cast(Api, self.api)
        clocks = (lambda: NOON_S + self.at_s + self.ahead_s, lambda: self.at_s)
        self.ledger = Ledger(api, "kube-system", *clocks)
        self.store = MoveStore(api)
        self.store._jobs, self.store._profiles = cast(Any, self.api.jobs), cast(Any, self.profiles)
        self.gate = MoveGate(api, self.ledger, lambda: self.leads, self.store, LIMITS, *clocks)

    def move(self, name: str = "a", algorithm: Algorithm = Algorithm.REALLOCATE) -> PlannedMove:
        return PlannedMove(self.pods[name], "n1", "because", algorithm)

    def start_move(self, name: str = "a") -> list[MoveEvent]:
        self.reserve(name)
        return list(self.gate.start(self.move(name), self.store.jobs()[name]))

    def reserve(self, name: str = "a") -> None:
        self.gate.reserve(self.move(name), self.pods[name].requirements)

    def advance(self, after_s: float = 2.0) -> list[MoveEvent]:
        self.at_s += after_s
        return list(
            self.gate.advance(self.store.jobs().values(), self.pods.values(), lambda _, node: node not in self.full)
        )

    def pod_ends(self, name: str = "a") -> None:
        """The evicted pod ends."""
        del self.pods[name]

    def replacement_runs(self, name: str = "a", node: str = "n1") -> Member:
        """The replacement of the pod runs."""
        annotations = {**ADMITTED, "phasewise.dev/gang-node": node}
        self.pods[name] = replace(training(name, node, annotations=annotations), uid=f"uid-next-{name}")
        return self.pods[name]

    def refusal(self, name: str = "a", algorithm: Algorithm = Algorithm.REALLOCATE) -> str:
        return self.gate.refusal(self.move(name, algorithm), self.store.jobs(), self.store.late_classes())

    def outcomes(self, name: str = "a") -> list[Outcome]:
        return [record.outcome for record in self.store.jobs()[name].records]


@pytest.fixture
def world() -> World:
    return World()


def test_a_move_reserves_a_node_then_annotates_the_job_then_evicts_the_pod(world: World) -> None:
    (event,) = world.start_move()
    assert world.api.log == ["reserve", "jobs", "evict"]
    (held,) = read_reservations(world.api.ledger)
    assert (held.nodes, held.needs, held.hold_s) == ({"uid-a": "n1"}, {"cpu": 1.0, "pods": 1.0}, 300.0)
    assert (event.reason, event.text) == ("MoveStarted", "is being moved to n1 (reallocate)")
    assert world.outcomes() == [Outcome.UNDER_WAY]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("n1", "runs on n1 8 s after it was moved"),
        ("n2", "runs on n2 8 s after it was moved; n1 was reserved for it"),
    ],
)
def test_once_the_replacement_runs_the_move_is_done_and_its_reservation_released(
    node: str, text: str, world: World
) -> None:
    world.start_move()
    world.pod_ends()
    assert world.advance() == []
    world.replacement_runs(node=node)
    (event,) = world.advance(after_s=6.0)
    assert (event.reason, event.text) == ("MoveDone", text)
    world.advance()
    assert (world.outcomes(), world.api.reserved) == ([Outcome.BACK], {})


def test_each_algorithm_moves_a_job_once_and_only_after_the_cool_down(world: World) -> None:
    world.start_move()
    world.pod_ends()
    world.replacement_runs("a", "n1")
    world.advance()
    assert world.refusal(algorithm=Algorithm.REALLOCATE) == "it has been moved as often as allowed"
    assert world.refusal(algorithm=Algorithm.REBALANCE) == "its last move was less than 100 s ago"
    world.at_s += 200.0
    assert world.refusal(algorithm=Algorithm.REALLOCATE) == "it has been moved as often as allowed"
    assert world.refusal(algorithm=Algorithm.REBALANCE) == ""


def test_a_pod_whose_eviction_was_delayed_is_not_evicted_once_its_replacement_no_longer_fits(world: World) -> None:
    world.api.fails["evict"] = [BUDGET]
    assert world.start_move() == []
    world.full = {"n1"}
    (event,) = world.advance()
    assert event.text == "was not evicted: n1 has no room any more for what replaces it"
    world.advance()
    assert (world.api.evicted, world.api.reserved, world.outcomes()) == ([], {}, [Outcome.REFUSED])


def test_a_move_that_a_disruption_budget_blocks_for_a_minute_is_refused(world: World) -> None:
    world.api.fails["evict"] = [BUDGET] * 99
    assert world.start_move() == []
    assert world.advance() == []
    assert world.refusal() != ""
    (event,) = world.advance(after_s=60.0)
    assert (event.reason, event.text) == ("MoveRefused", f"was not evicted: {BUDGET}")
    world.advance()
    assert (world.outcomes(), world.api.reserved, world.api.evicted) == ([Outcome.REFUSED], {}, [])
    assert world.refusal() == "its last move was less than 100 s ago"
    world.at_s += 100.0
    assert world.refusal() == ""


def test_a_refused_move_that_is_planned_again_at_once_is_retried_for_as_long_as_the_first(world: World) -> None:
    world.api.fails["evict"] = [BUDGET] * 9
    for _ in range(2):
        assert world.start_move() == []
        assert world.advance() == []
        assert [event.reason for event in world.advance(after_s=60.0)] == ["MoveRefused"]


def test_the_same_move_continues_once_the_disruption_budget_allows_it(world: World) -> None:
    world.api.fails["evict"] = [BUDGET, Unreachable("away")]
    world.start_move()
    assert world.advance() == []
    (event,) = world.advance()
    assert (event.reason, world.api.evicted) == ("MoveStarted", ["a"])


def test_an_evicted_pod_is_not_evicted_again_or_called_refused_while_the_watch_is_behind(world: World) -> None:
    world.start_move()
    for _ in range(50):
        assert world.advance() == []
    assert (world.api.evicted, world.outcomes()) == (["a"], [Outcome.UNDER_WAY])


@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("another has its name")])
def test_the_replacement_of_a_pod_that_is_gone_already_is_waited_for(error: Exception, world: World) -> None:
    world.api.fails["evict"] = [cast(Any, error)]
    assert world.start_move() == []
    world.pod_ends()
    world.replacement_runs()
    (event,) = world.advance()
    assert event.reason == "MoveDone"


def test_a_late_job_and_its_class_are_not_moved_again_even_after_the_job_is_deleted(world: World) -> None:
    world.api.jobs = FakeReflector(read_job, job_json("a", **RESNET), job_json("b", **RESNET), job_json("c"))
    world.start_controller()
    world.start_move()
    world.pod_ends()
    assert world.advance(after_s=299.0) == []
    assert world.advance() == []
    (event,) = world.advance(after_s=CONFIRM_S)
    assert (event.reason, event.warning) == ("MoveLate", True)
    assert event.text == "did not run again within 300 s: neither it nor its class resnet will be moved again"
    world.replacement_runs()
    reason = "a job of its class resnet once did not run again in time"
    assert [world.refusal(name) for name in "abc"] == [reason, reason, ""]
    (patch,) = (body for path, body in world.api.patched if path == "phaseprofiles/class.resnet")
    assert patch["metadata"]["annotations"] == {BARRED: "a did not come back from a move to n1"}
    del world.api.jobs.objects["a"]
    assert world.refusal("b") == ""
    profile = {"metadata": {"name": "class.resnet", "namespace": "team", **patch["metadata"]}}
    world.profiles.objects["class.resnet"] = profile
    assert world.refusal("b") == reason


def test_a_job_that_came_back_during_an_outage_is_not_late(world: World) -> None:
    """The first look after it may be at the pods from before: the watch has yet to show the later ones."""
    world.start_move()
    world.pod_ends()
    assert world.advance(after_s=900.0) == []
    world.replacement_runs()
    (event,) = world.advance()
    assert event.reason == "MoveDone"
    assert world.refusal("b") == ""


def test_a_reservation_ends_in_time_even_if_nobody_continues_its_move(world: World) -> None:
    """Moves were turned off. The next write of the ledger leaves it out."""
    world.start_move()
    for after_s, held in ((299.0, 1), (2.0, 0)):
        world.at_s += after_s
        assert len(world.ledger.read()) == held
    world.ledger.write([])
    assert world.api.reserved == {}


def test_a_clock_that_is_set_forward_ends_no_reservation_and_makes_no_move_late(world: World) -> None:
    """Otherwise the class would be barred from moves for good."""
    world.start_move()
    world.pod_ends()
    world.advance()
    world.ahead_s = 3600.0
    assert world.advance() == []
    reservations = world.ledger.read()
    assert still_needed(reservations, [], [], NOON_S + world.ahead_s) == reservations != []
    world.replacement_runs()
    (event,) = world.advance()
    assert (event.reason, event.text) == ("MoveDone", "runs on n1 6 s after it was moved")
    assert world.refusal("b") == ""


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_a_controller_that_starts_with_another_clock_ends_no_reservation_and_makes_no_move_late(
    ahead_s: float, world: World
) -> None:
    """Its node has rebooted, say."""
    world.start_move()
    world.pod_ends()
    world.ahead_s = ahead_s
    world.start_controller()
    for after_s in (2.0, CONFIRM_S, 250.0):
        assert world.advance(after_s) == []
        assert [each.nodes for each in world.ledger.read()] == [{"uid-a": "n1"}]
    world.replacement_runs()
    (event,) = world.advance()
    assert event.reason == "MoveDone"
    assert world.refusal("b") == ""


def test_a_job_that_does_not_run_in_time_after_the_controller_has_restarted_is_late(world: World) -> None:
    world.start_move()
    world.pod_ends()
    world.at_s += 3600.0
    world.start_controller()
    assert world.advance() == []
    assert world.advance(after_s=301.0) == []
    assert [event.reason for event in world.advance(after_s=CONFIRM_S)] == ["MoveLate"]


@pytest.mark.parametrize("error", [Invalid("annotations: Too long"), Forbidden("a policy"), ServerFailed("a hook")])
def test_a_job_that_cannot_be_annotated_is_not_moved_until_the_cool_down_is_over(error: ApiError, world: World) -> None:
    world.api.fails["jobs"] = [error]
    assert world.start_move() == []
    assert world.refusal() == f"its Job could not be annotated: {error}"
    assert world.refusal("b") == ""
    world.advance()
    assert (world.api.evicted, world.api.reserved) == ([], {})
    world.advance(after_s=100.0)
    assert world.refusal() == ""


def test_a_move_whose_end_cannot_be_recorded_does_not_hold_up_others(world: World) -> None:
    for name in "ab":
        world.start_move(name)
        world.pod_ends(name)
        world.replacement_runs(name)
    world.api.fails["jobs"] = [Invalid("annotations: Too long")]
    (event,) = world.advance()
    assert (event.reason, event.pod.name) == ("MoveDone", "b")
    (event,) = world.advance()
    assert (event.reason, event.pod.name) == ("MoveDone", "a")


def test_a_job_whose_record_is_refused_every_time_is_written_less_and_less_often(world: World) -> None:
    """Its owner invented a move that never ended, and left no room in the annotations."""
    invented = MoveRecord("", Algorithm.SOONER, "gone", "gone", "n1", NOON_S - 86_400.0)
    world.api.jobs.objects["b"]["metadata"]["annotations"][ANNOTATION] = records_json([invented])
    world.api.fails["jobs"] = [Invalid("annotations: Too long")] * 1000
    for _ in range(300):
        assert world.advance() == []
    assert 8 <= 1000 - len(world.api.fails["jobs"]) <= 14
    assert len(world.api.patched) <= 14, "the class is barred before each attempt"


def test_the_number_of_moves_in_progress_is_limited_per_namespace_and_in_total(world: World) -> None:

    def room() -> tuple[bool, bool]:
        fits = world.gate.capacity_check()
        return fits("team"), fits("other")

    assert room() == (True, True)
    world.start_move("a")
    assert room() == (False, True)
    world.pod_ends("a")
    world.ledger.write([])
    assert room() == (False, True), "its replacement has taken the reservation, and starts"
    world.start_move("b")
    assert room() == (False, False)
    world.start_controller()
    assert room() == (False, True), "the next controller knows the reservations"


def test_reservations_of_gangs_neither_count_as_moves_in_progress_nor_end_with_them(world: World) -> None:
    world.reserve()
    assert not world.gate.capacity_check()("team")
    world.ledger.write([replace(held, needs={}) for held in world.ledger.cached()])
    assert world.gate.capacity_check()("team")
    world.advance()
    assert world.api.reserved == {"uid-a": "n1"}


def test_without_a_move_nothing_is_written(world: World) -> None:
    world.advance()
    assert world.api.log == []


def test_records_that_job_owners_invent_do_not_block_moves_of_others(world: World) -> None:
    """They belong to jobs without pods and begin tomorrow. A real record that its owner postdates counts for the time
    that a move may take."""
    tomorrow = MoveRecord("", Algorithm.SOONER, "gone", "gone", "n1", NOON_S + 86_400.0)
    for name in "bc":
        world.api.jobs.objects[name]["metadata"]["annotations"][ANNOTATION] = records_json([tomorrow])
        del world.pods[name]
    world.advance()
    assert world.gate.capacity_check()("team")
    world.start_move("a")
    world.pod_ends("a")
    record = replace(world.store.jobs()["a"].records[-1], since_s=NOON_S + 86_400.0)
    world.store.write(world.store.jobs()["a"], [record])
    world.ledger.write([])
    world.advance(after_s=200.0)
    assert not world.gate.capacity_check()("team")
    world.advance(after_s=200.0)
    assert world.gate.capacity_check()("team")


@pytest.mark.parametrize(
    ("job", "pod", "why"),
    [
        pytest.param({"podFailurePolicy": None}, {}, "its Job counts an eviction as a failure: no podFailurePolicy "
                     "ignores DisruptionTarget", id="an eviction would spend its backoffLimit"),
        pytest.param({"parallelism": 2}, {}, "it belongs to a group of 2 pods, which is never moved in part",
                     id="a gang"),
        pytest.param({}, {"annotations": {"phasewise.dev/checkpointable": "true"}}, NOT_RESERVED, id="not gated"),
        pytest.param({}, {"on": "n0"}, NOT_RESERVED, id="not on its reserved node"),
        pytest.param({}, {"owner": ("ReplicaSet", "web")}, "only pods of Jobs are moved", id="not of a Job"),
        pytest.param({}, {"labels": {}}, "it names no group by which to recognise its replacement", id="no group"),
    ],
)  # fmt: skip
def test_a_job_that_would_not_survive_a_move_is_refused(
    job: dict[str, Any], pod: dict[str, Any], why: str, world: World
) -> None:
    assert world.refusal() == ""
    world.api.jobs = FakeReflector(read_job, job_json("a", **job))
    world.start_controller()
    world.pods["a"] = training("a", **{"on": "n3", "annotations": ADMITTED, **pod})
    assert world.refusal() == why


def test_without_its_reservation_no_pod_is_evicted(world: World) -> None:
    """Somebody emptied the ledger between two runs."""
    world.api.fails["evict"] = [BUDGET]
    world.start_move()
    world.ledger.write([])
    world.advance()
    assert world.api.evicted == []


def test_the_reservation_of_another_pod_does_not_allow_an_eviction(world: World) -> None:
    world.api.fails["evict"] = [BUDGET]
    world.start_move("a")
    world.start_move("b")
    world.ledger.write([held for held in world.ledger.cached() if "uid-b" in held.nodes])
    world.advance()
    assert world.api.evicted == ["b"]


def test_a_job_that_completes_during_its_move_is_no_longer_waited_for(world: World) -> None:
    world.start_move()
    world.pod_ends()
    completed = {**world.api.jobs.objects["a"], "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    world.api.jobs.objects["a"] = completed
    assert world.advance() == []
    assert world.outcomes() == [Outcome.ENDED]


def test_nothing_is_kept_of_a_move_whose_job_completed_before_its_pod_could_be_evicted(world: World) -> None:
    world.api.fails["evict"] = [BUDGET]
    world.start_move()
    del world.api.jobs.objects["a"]
    world.advance()
    assert world.gate._under_way == {}


def test_a_job_that_goes_on_with_its_next_index_is_no_longer_waited_for(world: World) -> None:
    """The evicted pod of the first index saved its work and succeeded."""
    first, next_one = ({**ADMITTED, "batch.kubernetes.io/job-completion-index": index} for index in "01")
    world.pods["a"] = training("a", "n3", annotations=first)
    world.start_move()
    world.pods["a"] = replace(training("a", "n3", annotations=next_one), uid="uid-next")
    assert world.advance(after_s=301.0) == []
    assert world.outcomes() == [Outcome.ENDED]


def test_a_controller_that_no_longer_leads_evicts_no_pod(world: World) -> None:
    world.reserve()
    world.leads = False
    assert list(world.gate.start(world.move(), world.store.jobs()["a"])) == []
    world.advance()
    assert (world.api.evicted, world.outcomes()) == ([], [])


def test_a_job_that_changed_since_it_was_read_is_not_moved(world: World) -> None:
    stale = world.store.jobs()["a"]
    world.api.jobs.objects["a"]["metadata"]["resourceVersion"] = "7"
    world.reserve()
    with pytest.raises(Conflict):
        list(world.gate.start(world.move(), stale))
    world.advance()
    assert (world.api.evicted, world.api.reserved) == ([], {})


@given(dies_after=st.integers(0, 5), answers=st.lists(st.sampled_from(["ok", "budget", "away"]), max_size=3))
def test_after_a_kill_no_job_is_moved_twice_and_no_reservation_is_left(dies_after: int, answers: list[str]) -> None:
    """The next controller continues from what was written; in the end the job is where it was, or moved once."""
    world = World()
    errors = {"budget": BUDGET, "away": ServerFailed("away")}
    world.api.fails["evict"] = [errors[each] for each in answers if each != "ok"]
    world.api.writes_left = dies_after
    for _ in range(2):
        try:
            if not world.store.jobs()["a"].records:
                world.start_move()
            for _ in range(3):
                if world.api.evicted and world.pods["a"].uid == "uid-a":
                    world.pod_ends()
                    world.replacement_runs()
                world.advance()
        except Killed:
            world.api.writes_left = 1 << 20
            world.start_controller()
    for _ in range(40):
        if world.api.evicted and world.pods["a"].uid == "uid-a":
            world.replacement_runs()
        world.advance()
    assert len(world.api.evicted) <= 1
    assert world.api.reserved == {}
    assert world.outcomes() in ([], [Outcome.REFUSED], [Outcome.BACK])
    assert (world.outcomes() == [Outcome.BACK]) == bool(world.api.evicted)


def test_the_reservation_for_a_moved_pod_is_handed_over_to_its_gated_replacement(world: World) -> None:
    world.start_move()
    reservations, (gated,) = list(world.ledger.cached()), gang("g", 1)
    replacement = replace(gated, membership=world.pods["a"].membership)
    assert hand_over_reservations(reservations, [*world.pods.values(), replacement], NOON_S, 60.0) == reservations, (
        "while the old pod exists"
    )
    world.pod_ends()
    (held,) = hand_over_reservations(reservations, [*world.pods.values(), replacement], NOON_S + 5.0, 60.0)
    assert (held.nodes, held.needs, held.since_s, held.hold_s) == ({replacement.uid: "n1"}, {}, NOON_S + 5.0, 60.0)


def test_for_a_pod_with_shares_of_gpus_as_many_are_reserved_as_it_requests() -> None:
    """Of ten shares of five GPUs eight are used, and the other two, of 30 percent each, are for the replacement."""
    gpu, world = "nvidia.com/gpu", World()
    requests = {gpu: "2", "nvidia.com/gpucores": "30"}
    world.pods["a"] = training("a", "n3", annotations=ADMITTED, requests=requests)
    world.start_move()
    extender = Extender(None, node_json("n1", extended={gpu: "10"}), pod_json("there", node="n1", extended={gpu: "8"}))
    extender.state.reservations.put(read_reservations(world.api.ledger))
    assert extender.filter(pod_json("other", extended={gpu: "1"})) == {"n1": RESERVED_FOR_GANG}
    (placeholder,) = replacement_members(world.ledger.cached(), NOON_S)
    assert dict(placeholder.requirements.needs)[gpu] == 2 / 3, "of the node's five GPUs"


def test_the_class_of_a_job_is_its_template_label_or_its_name_without_the_counter() -> None:
    assert read_job(job_json("x", **RESNET)).workload == "resnet"
    assert re.fullmatch("bert-[0-9a-f]{6}", read_job(job_json("bert-17")).workload)
    nightly = job_json("night-29381")
    nightly["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "night", "uid": "u", "controller": True}
    ]
    assert re.fullmatch("night-[0-9a-f]{6}", read_job(nightly).workload)
