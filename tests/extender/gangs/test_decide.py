"""Which gang may go, in what order, and what is said to the others: by hand first, then played with chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.decide import WITHOUT_GATE
from extender.gangs.member import GATE, Member
from tests.extender.gangs.herds import NOON_S, Play, decided, gang, node, nodes, pod, reserved, said

FIVE = nodes(5)
"""Fifty cores; two gangs of six times five need 60 % each."""


def past_the_gate(member: Member, at_s: float, reserved_node: str = "", on: str = "") -> Member:
    return replace(member, gates=(), reserved_since_s=NOON_S + at_s, reserved_node=reserved_node or on, node=on)


def test_of_two_gangs_of_60_percent_one_goes_and_the_other_when_it_has_ended() -> None:
    play = Play(FIVE)
    play.put(*gang("one", 6, cpu="5", age_s=2), *gang("two", 6, cpu="5", age_s=1))
    assert [play.step(), play.step()] == ["one", ""]
    decision = decided(list(play.pods.values()), FIVE, play.at_s)
    assert said(decision) == {"two": "GangWaiting: 4 of 6 pods fit"}
    play.end("one")
    assert play.step() == "two"


def test_an_incomplete_gang_waits_and_is_told_so_after_a_while() -> None:
    some = gang("g", 3)[:2]
    assert said(decided(some, FIVE, 1.0)) == {}
    decision = decided(some, FIVE, 60.0)
    assert decision.admit is None
    assert said(decision) == {"g": "GangIncomplete: 2 of 3 pods exist"}


def test_a_gang_that_never_fits_says_so_and_holds_nobody() -> None:
    decision = decided([*gang("huge", 2, cpu="11", age_s=9), *gang("small", 2)], FIVE)
    assert decision.admit is not None
    assert said(decision) == {
        "huge": "GangNeverFits: even when all jobs have ended, 0 of 2 pods fit",
        "small": "GangAdmitted: 2 pods admitted together on 1 nodes: all pods fit",
    }


def test_daemons_do_not_end() -> None:
    daemons = [pod(f"d{n}", on=f"n{n}", cpu="6", owner=("DaemonSet", "d")) for n in range(5)]
    assert "even when" in said(decided([*daemons, *gang("g", 6, cpu="5")], FIVE))["g"]
    jobs = [pod(f"d{n}", on=f"n{n}", cpu="6", owner=("Job", "d")) for n in range(5)]
    assert said(decided([*jobs, *gang("g", 6, cpu="5")], FIVE)) == {"g": "GangWaiting: 0 of 6 pods fit"}


def test_pods_that_nobody_holds_back_come_first() -> None:
    """They are with the scheduler already; what they will take is not there for a gang."""
    loose = [pod(f"l{n}", cpu="10") for n in range(3)]
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE).admit is None
    too_large = [pod(f"l{n}", cpu="99") for n in range(3)]
    assert decided([*too_large, *gang("g", 6, cpu="5")], FIVE).admit is not None


CLAIMS = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.mark.parametrize("stuck", [{"volumes": CLAIMS}, {"schedulerName": "nobody", "owner": ("ReplicaSet", "web")}])
def test_a_pod_that_nobody_places_holds_no_room_for_ever(stuck: dict[str, Any]) -> None:
    loose = [pod(f"l{n}", cpu="10", **stuck) for n in range(3)]
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 10.0).admit is None
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 400.0).admit is not None


def test_a_pod_that_is_not_placed_yet_holds_no_room_against_a_gang_of_higher_priority() -> None:
    """The gang of priority 7 goes over them; one of theirs waits for them, and is told so."""
    loose = [pod(f"l{n}", cpu="10", priority=-10) for n in range(3)]
    assert decided([*loose, *gang("urgent", 6, cpu="5", priority=7)], FIVE).admit is not None
    kept = "capacity is set aside for 3 pods not scheduled yet"
    equal = decided([*loose, *gang("equal", 6, cpu="5", priority=-10)], FIVE)
    assert said(equal) == {"equal": f"GangWaiting: 4 of 6 pods fit; {kept}"}
    behind = decided([*loose, *gang("huge", 9, cpu="10"), *gang("equal", 6, cpu="5", priority=-10)], FIVE)
    assert said(behind)["equal"] == f"GangWaiting: 4 of 6 pods fit; {kept}"


def test_a_gang_that_cannot_be_let_in_gives_back_what_was_reserved_and_holds_nobody() -> None:
    stuck, younger = (
        [reserved(member, "n0") for member in gang("stuck", 2, cpu="5", age_s=9)],
        gang("next", 5, cpu="10"),
    )
    decision = decided([*stuck, *younger], FIVE, backed_off={stuck[0].membership.name: "refused"})
    assert (str(decision.admit), decision.stale) == ("team/next", stuck)
    assert said(decision)["stuck"] == "GangWaiting: refused"


def test_what_is_reserved_for_the_rest_of_a_gang_that_cannot_be_let_in_wholly_is_kept_for_it() -> None:
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, on="n0")]
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    large, small = gang("large", 4, cpu="10"), gang("small", 3, cpu="10")
    backed_off = {rest.membership.name: "refused"}
    assert decided([*begun, rest, *large], FIVE, 5.0, backed_off=backed_off).admit is None
    decision = decided([*begun, rest, *small], FIVE, 5.0, backed_off=backed_off)
    assert (str(decision.admit), decision.stale) == ("team/small", [])


def test_nobody_goes_while_an_admitted_gang_is_not_bound_unless_that_takes_too_long() -> None:
    waiting = [past_the_gate(member, 0.0, reserved_node="n0") for member in gang("first", 2)]
    decision = decided([*waiting, *gang("second", 1)], FIVE, 10.0)
    assert said(decision) == {"second": "GangWaiting: waits behind team/first, which is being placed"}
    later = decided([*waiting, *gang("second", 1)], FIVE, 301.0)
    assert later.admit is not None
    assert said(later)["first"] == "GangNotBound: 2 of 2 pods were not bound in time; other gangs no longer wait for it"


def test_a_gang_of_higher_priority_does_not_wait_for_one_that_is_being_placed_nor_take_its_nodes() -> None:
    first = [past_the_gate(member, 0.0, reserved_node=f"n{n}") for n, member in enumerate(gang("first", 3, cpu="10"))]
    urgent, equal = gang("urgent", 2, cpu="10", priority=7), gang("equal", 1)
    decision = decided([*first, *urgent, *equal], FIVE, 10.0)
    assert str(decision.admit) == "team/urgent"
    assert sorted(decision.reserved_nodes.values()) == ["n3", "n4"]
    assert said(decision)["equal"] == "GangWaiting: waits behind team/first, which is being placed"


def test_after_a_controller_that_died_between_two_gates_the_rest_keeps_its_seats() -> None:
    members = [reserved(member, f"n{n}") for n, member in enumerate(gang("g", 3, cpu="5"))]
    cut = [replace(members[0], gates=()), *members[1:]]
    decision = decided([*gang("elder", 1, age_s=99), *cut], FIVE, 5.0)
    assert decision.admit is not None
    assert str(decision.admit) == "team/g"
    assert dict(decision.reserved_nodes) == {"uid-g-1": "n1", "uid-g-2": "n2"}
    assert not decision.stale


def test_after_a_controller_that_died_before_the_first_gate_all_is_decided_anew() -> None:
    large = [reserved(member, "n4") for member in gang("large", 6, cpu="10")]
    decision = decided(large, FIVE)
    assert decision.admit is None
    assert set(decision.stale) == set(large)


def test_after_a_controller_that_died_when_all_seats_were_written_these_hold_against_pods_that_came_since() -> None:
    def with_reservation(at_s: float) -> list[Member]:
        return [reserved(member, f"n{n % 3}", at_s) for n, member in enumerate(gang("g", 6, cpu="5"))]

    burst = [pod(f"b{n}", cpu="5") for n in range(10)]
    decision = decided([*burst, *with_reservation(0.0)], FIVE, 5.0)
    assert {uid: reserved_node for uid, reserved_node in decision.reserved_nodes.items() if uid == "uid-g-4"} == {
        "uid-g-4": "n1"
    }
    burst = [pod(f"b{n}", cpu="5", age_s=-300.0) for n in range(10)]
    too_old = decided([*burst, *with_reservation(0.0)], FIVE, 301.0)
    assert too_old.admit is None
    assert len(too_old.stale) == 6
    taken = decided([pod("t", on="n1", cpu="1"), *with_reservation(0.0)], FIVE, 5.0)
    assert "uid-g-4" in taken.reserved_nodes  # placed anew, as no gate was open


def test_a_rest_whose_seats_were_taken_is_placed_elsewhere_and_where_it_fits_nowhere_it_holds_the_others() -> None:
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, reserved_node="n0", on="n0"), rest]
    taken = pod("t", on="n1", cpu="8", owner=("Job", "t"))
    assert dict(decided([*begun, taken], FIVE).reserved_nodes) == {"uid-g-1": "n0"}
    full = [pod(f"f{n}", on=f"n{n}", cpu="8" if n else "4") for n in range(5)]
    behind = gang("behind", 1, cpu="1")
    assert said(decided([*begun, *full, *behind], FIVE, 10.0)) == {
        "g": "GangWaiting: 0 of 1 pods fit; its other pods are past the gate",
        "behind": "GangWaiting: waits behind team/g, which is being placed",
    }
    assert decided([*begun, *full, *behind], FIVE, 400.0).admit is not None


def test_a_pod_without_gate_puts_its_gang_before_nobody_and_holds_nobody_back() -> None:
    """Whoever may make pods can make one with the label, and one that says it was let in."""
    words = {"phasewise.dev/gang-node": "n0"}
    running = pod("g-0", gang="g", size=2, cpu="100m", gates=[], on="n0", age_s=999, annotations=words)
    stuck = pod("g-0", gang="g", size=2, cpu="99", gates=[], age_s=999, annotations=words)
    elder = gang("elder", 2, age_s=9)
    for free in (running, stuck):
        for cpu in ("1", "99"):
            decision = decided([free, pod("g-1", gang="g", size=2, cpu=cpu), *elder], FIVE, 10.0)
            assert str(decision.admit) == "team/elder"


def test_a_gang_that_is_never_bound_holds_the_others_once_however_many_pods_are_added_to_it() -> None:
    """One is made every four minutes; each is let in only in its turn, and the time does not begin anew."""
    stuck = past_the_gate(pod("g-0", gang="g", size=1), 0.0, reserved_node="n0")
    added = [pod(f"g-{n}", gang="g", size=1, age_s=-240.0 * n) for n in (1, 2)]
    behind = gang("behind", 1, age_s=9)
    assert decided([stuck, added[0], *behind], FIVE, 250.0).admit is None
    assert str(decided([stuck, *added, *behind], FIVE, 490.0).admit) == "team/behind"


def test_a_clock_that_is_put_back_holds_nobody_for_longer() -> None:
    waiting = [past_the_gate(member, 3600.0, reserved_node="n0") for member in gang("first", 2)]
    decision = decided([*waiting, *gang("second", 1)], FIVE, 0.0)
    assert str(decision.admit) == "team/second"
    assert said(decision)["first"].startswith("GangNotBound: 2 of 2 pods were not bound in time")


def test_a_pod_of_a_gang_that_was_made_without_the_gate_is_told_so_for_a_while() -> None:
    told = {"g": f"GangNotGated: {WITHOUT_GATE}"}
    free, running = pod("g-0", gang="g", gates=[]), pod("g-0", gang="g", on="n0")
    for each in (free, running):
        assert said(decided([each, *gang("other", 1)], FIVE, 5.0)).items() >= told.items()
        assert said(decided([each], FIVE, 5.0)) == told
        assert said(decided([each], FIVE, 700.0)) == {}
    let_in = pod("g-0", gang="g", on="n0", annotations={"phasewise.dev/gang-node": "n0"})
    native = pod("g-0", gang="g", gates=[], schedulingGroup={"podGroupName": "native"})
    of_a_job = pod("j", gates=[], labels={"batch.kubernetes.io/job-name": "j"})
    assert said(decided([let_in, native, of_a_job, reserved(free, "n0")], FIVE, 5.0)) == {}


def test_a_small_gang_goes_before_the_head_where_it_does_not_delay_it_and_not_where_it_would() -> None:
    """Ten cores are taken on n0 to n2 each. The head needs five nodes whole, or four of them."""
    running = [pod(f"r{n}", on=f"n{n}", cpu="10", age_s=99, owner=("Job", "r")) for n in range(3)]
    small = gang("small", 2, cpu="5")
    needs_all = decided([*running, *gang("head", 5, cpu="10", age_s=9), *small], FIVE)
    assert said(needs_all) == {
        "head": "GangWaiting: 2 of 5 pods fit",
        "small": "GangWaiting: waits behind team/head",
    }
    needs_four = decided([*running, *gang("head", 4, cpu="10", age_s=9), *small], FIVE)
    assert said(needs_four)["small"].endswith("does not delay team/head")
    went = [past_the_gate(member, 1.0, on="n4") for member in small]
    third = decided([*running, *went, *gang("head", 4, cpu="10", age_s=9), *gang("more", 1, cpu="5")], FIVE, 2.0)
    assert said(third)["more"] == "GangWaiting: waits behind team/head"


def test_a_higher_priority_goes_first() -> None:
    pods = [*gang("old", 6, cpu="5", age_s=99), *gang("urgent", 6, cpu="5", priority=7)]
    decision = decided(pods, FIVE)
    assert str(decision.admit) == "team/urgent"


def test_gates_of_others_are_waited_for_and_groups_of_kubernetes_let_through() -> None:
    kueue = gang("k", 2, gates=[GATE, "kueue.x-k8s.io/admission"])
    native = pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"})
    decision = decided([*kueue, native], FIVE)
    assert said(decision) == {"k": "GangWaiting: held by other scheduling gates: kueue.x-k8s.io/admission"}
    assert decision.native == [native]


def test_what_is_left_to_the_scheduler_is_said() -> None:
    claims = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    assert "left to the scheduler: volumes" in said(decided(gang("g", 2, volumes=claims), FIVE))["g"]


def test_nodes_that_are_ruled_out_are_counted() -> None:
    places = [*nodes(3), node("closed", unschedulable=True)]
    assert said(decided([*gang("g", 4, cpu="10")], places))["g"] == (
        "GangNeverFits: even when all jobs have ended, 3 of 4 pods fit; 1 of 4 nodes are ruled out"
    )


@pytest.mark.parametrize("spread", [False, True])
def test_an_admitted_gang_is_placed_beside_what_is_there(spread: bool) -> None:
    words = {"phasewise.dev/placement": "spread"} if spread else {}
    there = [pod(f"r{n}", on=f"n{n}", cpu="6") for n in range(5)]
    decision = decided([*there, *gang("g", 5, cpu="4", annotations=words)], FIVE)
    assert sorted(decision.reserved_nodes.values()) == ["n0", "n1", "n2", "n3", "n4"]


GANGS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 10), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=10
)
"""(size, cores of each, priority, step at which it comes)"""


@settings(max_examples=12, deadline=None)
@given(GANGS, st.randoms(use_true_random=False))
def test_never_a_part_never_more_than_fits_and_everybody_has_its_turn(
    gangs: list[tuple[int, int, int, int]], chance: object
) -> None:
    """Gangs come, run for a while that nobody knows, and end. All that can fit at all have run when all has ended."""
    play = Play(FIVE)
    can_run = {f"g{n}" for n, (size, cpu, _, _) in enumerate(gangs) if size <= 5 * (10 // cpu)}
    for step in range(8 + 2 * len(gangs)):
        for number, (size, cpu, priority, at) in enumerate(gangs):
            if at == step:
                play.put(*gang(f"g{number}", size, cpu=str(cpu), priority=priority, age_s=-play.at_s))
        play.step()
        assert all(cores <= 10 + 1e-9 for cores in play.used().values())
        for number, (size, _, _, _) in enumerate(gangs):
            bound = sum(1 for each in play.pods.values() if each.membership.name.endswith(f"=g{number}") and each.node)
            assert bound in (0, size)
        running = [name for name in play.admitted if f"uid-{name}-0" in play.pods]
        if running and (step >= 6 or chance.random() < 0.4):  # type: ignore[attr-defined]
            play.end(chance.choice(running))  # type: ignore[attr-defined]
    assert set(play.admitted) == can_run


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=4), st.lists(st.integers(0, 16)))
def test_however_often_the_controller_dies_every_gang_gets_through_and_one_at_most_is_under_way(
    gangs: list[tuple[int, int]], deaths: list[int]
) -> None:
    play = Play(FIVE)
    for number, (size, cpu) in enumerate(gangs):
        play.put(*gang(f"g{number}", size, cpu=str(cpu), age_s=-number))
    done = set()
    for step in range(len(deaths) + 3 * len(gangs)):
        play.step(deaths[step] if step < len(deaths) else 1 << 20)
        under_way = []
        for number, (size, _) in enumerate(gangs):
            members = [each for each in play.pods.values() if each.membership.name.endswith(f"=g{number}")]
            bound = sum(1 for each in members if each.node)
            under_way += [number] * (0 < bound < size)
            if bound == size:
                done.add(number)
                play.end(f"g{number}")
        assert len(under_way) <= 1
        assert all(cores <= 10 + 1e-9 for cores in play.used().values())
    assert done == set(range(len(gangs)))


@settings(max_examples=8, deadline=None)
@given(st.integers(6, 10), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=5, max_size=20))
def test_the_head_goes_as_soon_as_those_before_it_have_ended_however_many_come_after_it(
    head: int, stream: list[tuple[int, int]]
) -> None:
    """Those that go before the head never end here: if the head goes all the same, none of them can have delayed it."""
    play = Play(FIVE)
    play.put(*gang("elder", 5, cpu="6", age_s=50))
    assert play.step() == "elder"
    play.put(*gang("head", head, cpu="5", age_s=40))
    for number, (size, cpu) in enumerate(stream):
        play.put(*gang(f"s{number}", size, cpu=str(cpu), age_s=-play.at_s))
        assert play.step() != "head"
    play.end("elder")
    assert play.step() == "head"


@pytest.mark.parametrize("place", [0, 1])
def test_what_a_daemon_holds_is_not_there_for_the_head_and_what_is_free_beside_it_is_for_others(place: int) -> None:
    """The head needs a node whole: the one of the job, once that has ended."""
    daemon = pod("d", on=f"n{place}", cpu="6", age_s=99, owner=("DaemonSet", "d"))
    job = pod("r", on=f"n{1 - place}", cpu="10", age_s=99, owner=("Job", "r"))
    decision = decided([daemon, job, *gang("head", 1, cpu="10", age_s=9), *gang("small", 1, cpu="4")], nodes(2))
    assert said(decision)["small"].endswith("does not delay team/head")


def test_what_was_reserved_too_long_ago_for_the_rest_of_a_gang_holds_nobody() -> None:
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, on="n0")]
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    backed_off = {rest.membership.name: "refused"}
    decision = decided([*begun, rest, *gang("large", 4, cpu="10")], FIVE, 1e5, backed_off=backed_off)
    assert str(decision.admit) == "team/large"


def test_a_pod_that_waited_long_at_the_gate_holds_its_seat_from_when_it_was_let_in() -> None:
    loose = [past_the_gate(pod(f"l{n}", cpu="10", age_s=9999.0), 0.0, reserved_node=f"n{n}") for n in range(3)]
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 10.0).admit is None
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 400.0).admit is not None


def test_a_gang_whose_pods_disagree_on_its_size_is_not_let_in() -> None:
    decision = decided([pod("g-0", gang="g", size=2), pod("g-1", gang="g", size=3)], FIVE)
    assert decision.admit is None
    assert said(decision)["g"].startswith("GangInvalid: ")
