"""The one door to the Eviction API: what is written in which order, who is refused, what a death in between does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.ledger import Ledger, hand_over_reservations
from extender.gangs.member import Member
from extender.moves.board import PlannedMove
from extender.moves.gate import MoveEvent, MoveGate, MoveLimits
from extender.moves.job import ANNOTATION, Algorithm, MoveRecord, Outcome, read_job, records_json
from extender.moves.store import BARRED, MoveStore, read_profile_facts
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
from recommender.cluster.objects.metadata import ObjectKey
from tests.extender.gangs.herds import NOON_S, gang
from tests.extender.moves.played import Died, PlayedApi, Shown
from tests.extender.moves.trainings import LET_IN, job_json, training

NOT_RESERVED = "it did not get its node by a reservation at the gate, and its replacement would not either"
LIMITS = MoveLimits(max_active=2, return_timeout_s=300.0, cool_down_s=100.0)
BUDGET = Throttled("Cannot evict pod as it would violate the pod's disruption budget. (429)", status=429)


RESNET = {"template": {"metadata": {"labels": {"phasewise.dev/workload": "resnet"}}, "spec": {}}}


@dataclass
class World:
    """A cluster of one to three Jobs, and a controller that can be killed and started anew."""

    api: PlayedApi = field(default_factory=PlayedApi)
    at_s: float = 0.0
    leads: bool = True

    def __post_init__(self) -> None:
        self.api.jobs = Shown(read_job, job_json("a"), job_json("b"), job_json("c"))
        self.profiles = Shown(read_profile_facts)
        self.pods = {name: training(name, "n3", annotations=LET_IN) for name in "abc"}
        self.start()

    def start(self) -> None:
        """A new controller, which knows nothing but what was written."""
        api = cast(Api, self.api)
        self.ledger = Ledger(api, "kube-system", monotonic=lambda: 10.0 * self.at_s)
        self.book = MoveStore(api)
        self.book._jobs, self.book._profiles = cast(Any, self.api.jobs), cast(Any, self.profiles)
        clock = lambda: NOON_S + self.at_s  # noqa: E731
        self.gate = MoveGate(api, self.ledger, lambda: self.leads, self.book, LIMITS, clock)

    def move(self, name: str = "a", algorithm: Algorithm = Algorithm.REALLOCATE) -> PlannedMove:
        return PlannedMove(self.pods[name], "n1", "because", algorithm)

    def begin(self, name: str = "a") -> list[MoveEvent]:
        move = self.move(name)
        self.gate.reserve(move)
        return list(self.gate.start(move, self.book.jobs()[name]))

    def follow(self, after_s: float = 2.0) -> list[MoveEvent]:
        self.at_s += after_s
        return list(self.gate.advance(self.book.jobs().values(), self.pods.values()))

    def leaves(self, name: str = "a") -> None:
        """Its pod, which was evicted, ends."""
        del self.pods[name]

    def comes_back(self, name: str = "a", node: str = "n1") -> Member:
        """Its next pod runs."""
        words = {**LET_IN, "phasewise.dev/gang-node": node}
        self.pods[name] = replace(training(name, node, annotations=words), uid=f"uid-next-{name}")
        return self.pods[name]

    def refusal(self, name: str = "a", algorithm: Algorithm = Algorithm.REALLOCATE) -> str:
        return self.gate.refusal(self.move(name, algorithm), self.book.jobs(), self.book.late_classes())

    def outcomes(self, name: str = "a") -> list[Outcome]:
        return [record.outcome for record in self.book.jobs()[name].records]


def test_the_seat_is_reserved_then_the_job_told_and_then_the_pod_evicted() -> None:
    world = World()
    (news,) = world.begin()
    assert world.api.log == ["reserve", "jobs", "evict"]
    (seat,) = read_reservations(world.api.ledger)
    assert (seat.nodes, seat.needs, seat.hold_s) == ({"uid-a": "n1"}, {"cpu": 1.0, "pods": 1.0}, 300.0)
    assert (news.reason, news.text) == ("MoveStarted", "is being moved to n1 (reallocate)")
    assert world.outcomes() == [Outcome.UNDER_WAY]


def test_once_its_next_pod_runs_the_seat_is_given_back_and_both_nodes_are_told() -> None:
    world = World()
    world.begin()
    world.leaves()
    assert world.follow() == []
    world.comes_back()
    (news,) = world.follow(after_s=6.0)
    assert (news.reason, news.text) == ("MoveDone", "runs on n1 8 s after it was moved")
    world.follow()
    assert (world.outcomes(), world.api.reserved) == ([Outcome.BACK], {})


def test_a_job_that_comes_back_elsewhere_says_so() -> None:
    world = World()
    world.begin()
    world.leaves()
    world.comes_back(node="n2")
    (news,) = world.follow()
    assert news.text == "runs on n2 2 s after it was moved; n1 was reserved for it"


def test_each_algorithm_moves_a_job_once_and_not_before_it_has_rested() -> None:
    world = World()
    world.begin()
    world.leaves()
    world.comes_back("a", "n1")
    world.follow()
    assert world.refusal(algorithm=Algorithm.REALLOCATE) == "it has been moved as often as allowed"
    assert world.refusal(algorithm=Algorithm.REBALANCE) == "its last move was less than 100 s ago"
    world.at_s += 200.0
    assert world.refusal(algorithm=Algorithm.REALLOCATE) == "it has been moved as often as allowed"
    assert world.refusal(algorithm=Algorithm.REBALANCE) == ""


def test_a_disruption_budget_refuses_for_a_minute_and_then_it_was_no_move() -> None:
    world = World()
    world.api.fails["evict"] = [BUDGET] * 99
    assert world.begin() == []
    assert world.follow() == []
    assert world.refusal() != ""
    (news,) = world.follow(after_s=60.0)
    assert (news.reason, news.text) == ("MoveRefused", f"was not evicted: {BUDGET}")
    world.follow()
    assert (world.outcomes(), world.api.reserved, world.api.evicted) == ([Outcome.REFUSED], {}, [])
    assert world.refusal() == "its last move was less than 100 s ago"
    world.at_s += 100.0
    assert world.refusal() == ""


def test_a_budget_that_allows_it_after_all_lets_the_same_move_go_on() -> None:
    world = World()
    world.api.fails["evict"] = [BUDGET, Unreachable("away")]
    world.begin()
    assert world.follow() == []
    (news,) = world.follow()
    assert (news.reason, world.api.evicted) == ("MoveStarted", ["a"])


def test_what_was_evicted_is_not_evicted_again_while_the_watch_is_behind_nor_called_refused() -> None:
    world = World()
    world.begin()
    for _ in range(50):
        assert world.follow() == []
    assert (world.api.evicted, world.outcomes()) == (["a"], [Outcome.UNDER_WAY])


@pytest.mark.parametrize("error", [NotFound("gone"), Conflict("another has its name")])
def test_a_pod_that_is_gone_already_is_waited_for_like_one_that_was_evicted(error: Exception) -> None:
    world = World()
    world.api.fails["evict"] = [cast(Any, error)]
    assert world.begin() == []
    world.leaves()
    world.comes_back()
    (news,) = world.follow()
    assert news.reason == "MoveDone"


def test_a_job_that_is_late_is_moved_no_more_and_its_class_neither_though_the_job_be_gone() -> None:
    world = World()
    world.api.jobs = Shown(read_job, job_json("a", **RESNET), job_json("b", **RESNET), job_json("c"))
    world.start()
    world.begin()
    world.leaves()
    assert world.follow(after_s=299.0) == []
    (news,) = world.follow()
    assert (news.reason, news.warning) == ("MoveLate", True)
    assert news.text == "did not run again within 300 s: neither it nor its class resnet will be moved again"
    world.comes_back()
    told = "a job of its class resnet once did not run again in time"
    assert [world.refusal(name) for name in "abc"] == [told, told, ""]
    (patch,) = (body for path, body in world.api.patched if path == "phaseprofiles/class.resnet")
    assert patch["metadata"]["annotations"] == {BARRED: "a did not come back from a move to n1"}
    del world.api.jobs.objects["a"]
    assert world.refusal("b") == ""
    profile = {"metadata": {"name": "class.resnet", "namespace": "team", **patch["metadata"]}}
    world.profiles.objects["class.resnet"] = profile
    assert world.refusal("b") == told


@pytest.mark.parametrize("refuses", [Invalid("annotations: Too long"), Forbidden("a policy"), ServerFailed("a hook")])
def test_a_job_that_may_not_be_written_to_is_not_moved_and_rests(refuses: ApiError) -> None:
    world = World()
    world.api.fails["jobs"] = [refuses]
    assert world.begin() == []
    assert world.refusal() == f"its Job could not be annotated: {refuses}"
    assert world.refusal("b") == ""
    world.follow()
    assert (world.api.evicted, world.api.reserved) == ([], {})
    world.follow(after_s=100.0)
    assert world.refusal() == ""


def test_a_move_whose_end_cannot_be_written_holds_up_no_other() -> None:
    world = World()
    for name in "ab":
        world.begin(name)
        world.leaves(name)
        world.comes_back(name)
    world.api.fails["jobs"] = [Invalid("annotations: Too long")]
    (news,) = world.follow()
    assert (news.reason, news.pod.name) == ("MoveDone", "b")
    (news,) = world.follow()
    assert (news.reason, news.pod.name) == ("MoveDone", "a")


def test_only_so_many_are_on_their_way_at_once_in_a_namespace_and_in_all() -> None:
    world = World()

    def room() -> tuple[bool, bool]:
        fits = world.gate.capacity_check()
        return fits("team"), fits("other")

    assert room() == (True, True)
    world.begin("a")
    assert room() == (False, True)
    world.leaves("a")
    world.ledger.write([])
    assert room() == (False, True), "its next pod has taken the seat, and starts"
    world.begin("b")
    assert room() == (False, False)
    world.start()
    assert room() == (False, True), "whoever comes next knows the seats"


def test_moves_that_owners_make_up_keep_nobody_else_where_it_is() -> None:
    """Their pods wait for ever, and their records begin tomorrow. A record of a real move that is put off by its owner
    counts for as long as one may take."""
    world = World()
    tomorrow = MoveRecord("", Algorithm.SOONER, "gone", "gone", "n1", NOON_S + 86_400.0)
    for name in "bc":
        world.api.jobs.objects[name]["metadata"]["annotations"][ANNOTATION] = records_json([tomorrow])
        del world.pods[name]
    world.follow()
    assert world.gate.capacity_check()("team")
    world.begin("a")
    world.leaves("a")
    record = replace(world.book.jobs()["a"].records[-1], since_s=NOON_S + 86_400.0)
    world.book.write(world.book.jobs()["a"], [record])
    world.ledger.write([])
    world.follow(after_s=200.0)
    assert not world.gate.capacity_check()("team")
    world.follow(after_s=200.0)
    assert world.gate.capacity_check()("team")


@pytest.mark.parametrize(
    ("job", "pod", "why"),
    [
        pytest.param({"podFailurePolicy": None}, {}, "its Job counts an eviction as a failure: no podFailurePolicy "
                     "ignores DisruptionTarget", id="an eviction would spend its backoffLimit"),
        pytest.param({"parallelism": 2}, {}, "it belongs to a group of 2 pods, which is never moved in part",
                     id="a gang"),
        pytest.param({}, {"annotations": {"phasewise.dev/checkpointable": "true"}}, NOT_RESERVED, id="no gate"),
        pytest.param({}, {"on": "n0"}, NOT_RESERVED, id="its scheduler goes its own way"),
        pytest.param({}, {"owner": ("ReplicaSet", "web")}, "only pods of Jobs are moved", id="no job"),
        pytest.param({}, {"labels": {}}, "it names no group by which to recognise its replacement", id="no label"),
    ],
)  # fmt: skip
def test_whoever_would_not_survive_a_move_stays(job: dict[str, Any], pod: dict[str, Any], why: str) -> None:
    world = World()
    assert world.refusal() == ""
    world.api.jobs = Shown(read_job, job_json("a", **job))
    world.start()
    world.pods["a"] = training("a", **{"on": "n3", "annotations": LET_IN, **pod})
    assert world.refusal() == why


def test_without_its_seat_nothing_is_evicted() -> None:
    """Somebody emptied the ledger between two looks."""
    world = World()
    world.api.fails["evict"] = [BUDGET]
    world.begin()
    world.ledger.write([])
    world.follow()
    assert world.api.evicted == []


def test_a_job_that_ends_by_itself_meanwhile_is_waited_for_no_more() -> None:
    world = World()
    world.begin()
    world.leaves()
    assert world.api.jobs is not None
    done = {**world.api.jobs.objects["a"], "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    world.api.jobs.objects["a"] = done
    assert world.follow() == []
    assert world.outcomes() == [Outcome.ENDED]


def test_who_leads_no_more_evicts_nobody() -> None:
    world = World()
    move = world.move()
    world.gate.reserve(move)
    world.leads = False
    assert list(world.gate.start(move, world.book.jobs()["a"])) == []
    world.follow()
    assert (world.api.evicted, world.outcomes()) == ([], [])


def test_a_job_that_changed_since_it_was_looked_at_is_not_moved() -> None:
    world = World()
    stale = world.book.jobs()["a"]
    assert world.api.jobs is not None
    world.api.jobs.objects["a"]["metadata"]["resourceVersion"] = "7"
    world.gate.reserve(world.move())
    with pytest.raises(Conflict):
        list(world.gate.start(world.move(), stale))
    world.follow()
    assert (world.api.evicted, world.api.reserved) == ([], {})


@pytest.mark.parametrize("dies_after", range(6))
@given(answers=st.lists(st.sampled_from(["ok", "budget", "away"]), max_size=3))
def test_killed_before_any_write_nobody_is_moved_twice_and_no_seat_is_left(dies_after: int, answers: list[str]) -> None:
    """Whoever comes next goes on by what was written; in the end the job is where it was, or moved once."""
    world = World()
    errors = {"budget": BUDGET, "away": ServerFailed("away")}
    world.api.fails["evict"] = [errors[each] for each in answers if each != "ok"]
    world.api.writes_left = dies_after
    for _ in range(2):
        try:
            if not world.book.jobs()["a"].records:
                world.begin()
            for _ in range(3):
                if world.api.evicted and world.pods["a"].uid == "uid-a":
                    world.leaves()
                    world.comes_back()
                world.follow()
        except Died:
            world.api.writes_left = 1 << 20
            world.start()
    for _ in range(40):
        if world.api.evicted and world.pods["a"].uid == "uid-a":
            world.comes_back()
        world.follow()
    assert len(world.api.evicted) <= 1
    assert world.api.reserved == {}
    assert world.outcomes() in ([], [Outcome.REFUSED], [Outcome.BACK])
    assert (world.outcomes() == [Outcome.BACK]) == bool(world.api.evicted)


def test_the_seat_of_a_moved_pod_goes_to_the_one_at_the_gate_that_takes_its_place() -> None:
    world = World()
    world.begin()
    known, (waits,) = list(world.ledger.cached()), gang("g", 1)
    after = replace(waits, membership=world.pods["a"].membership)
    assert hand_over_reservations(known, [*world.pods.values(), after], NOON_S, 60.0) == known, (
        "while the old one is there"
    )
    world.leaves()
    (seat,) = hand_over_reservations(known, [*world.pods.values(), after], NOON_S + 5.0, 60.0)
    assert (seat.nodes, seat.needs, seat.since_s, seat.hold_s) == ({after.uid: "n1"}, {}, NOON_S + 5.0, 60.0)


def test_a_class_is_named_by_the_label_of_the_template_or_by_the_job_without_its_counter() -> None:
    assert read_job(job_json("x", **RESNET)).workload == "resnet"
    assert read_job(job_json("bert-17")).workload == "bert"
    nightly = job_json("night-29381")
    nightly["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "night", "uid": "u", "controller": True}
    ]
    assert read_job(nightly).workload == "night"
    assert ObjectKey("team", "bert") not in World().book.late_classes()


def test_the_seat_of_another_pod_lets_nobody_be_evicted() -> None:
    world = World()
    world.api.fails["evict"] = [BUDGET]
    world.begin("a")
    world.begin("b")
    world.ledger.write([seat for seat in world.ledger.cached() if "uid-b" in seat.nodes])
    world.follow()
    assert world.api.evicted == ["b"]


def test_seats_of_gangs_are_no_moves_and_where_nothing_moves_nothing_is_written() -> None:
    world = World()
    world.follow()
    assert world.api.log == []
    world.gate.reserve(world.move())
    assert not world.gate.capacity_check()("team")
    world.ledger.write([replace(seat, needs={}) for seat in world.ledger.cached()])
    assert world.gate.capacity_check()("team")
