"""Which gang is admitted, in what order, and what events report of the others: worked examples, then simulations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.decide import WITHOUT_GATE
from extender.gangs.member import GATE, Member, read_member
from extender.pods.pod import RESERVED_FOR_GANG
from tests.extender.gangs.herds import (
    NOON_S,
    SimulatedCluster,
    decided,
    gang,
    messages,
    node,
    nodes,
    pod,
    pod_json,
    reserved,
)

FIVE = nodes(5)
"""Fifty cores; two gangs of six times five need 60 % each."""


def past_the_gate(member: Member, at_s: float, reserved_node: str = "", on: str = "") -> Member:
    return replace(member, gates=(), reserved_since_s=NOON_S + at_s, reserved_node=reserved_node or on, node=on)


def test_the_second_of_two_gangs_of_60_percent_each_is_admitted_once_the_first_has_ended() -> None:
    cluster = SimulatedCluster(FIVE)
    cluster.put(*gang("one", 6, cpu="5", age_s=2), *gang("two", 6, cpu="5", age_s=1))
    assert [cluster.step(), cluster.step()] == ["one", ""]
    decision = decided(list(cluster.pods.values()), FIVE, cluster.at_s)
    assert messages(decision) == {"two": "GangWaiting: 4 of 6 pods fit"}
    cluster.end("one")
    assert cluster.step() == "two"


def test_an_incomplete_gang_waits_and_is_reported_after_a_while() -> None:
    some = gang("g", 3)[:2]
    assert messages(decided(some, FIVE, 1.0)) == {}
    decision = decided(some, FIVE, 60.0)
    assert decision.admit is None
    assert messages(decision) == {"g": "GangIncomplete: 2 of 3 pods exist"}


def test_a_gang_that_never_fits_is_reported_and_does_not_hold_up_others() -> None:
    decision = decided([*gang("huge", 2, cpu="11", age_s=9), *gang("small", 2)], FIVE)
    assert str(decision.admit) == "team/small"
    assert messages(decision) == {
        "huge": "GangNeverFits: even when all jobs have ended, 0 of 2 pods fit",
        "small": "GangAdmitted: 2 pods admitted together on 1 node: all pods fit",
    }


def test_a_gang_whose_pods_disagree_on_its_size_is_invalid_and_not_admitted() -> None:
    decision = decided([pod("g-0", gang="g", size=2), pod("g-1", gang="g", size=3)], FIVE)
    assert decision.admit is None
    assert messages(decision)["g"].startswith("GangInvalid: ")


@pytest.mark.parametrize("requests", [{"cpu": "1e17"}, {"cpu": "1", "memory": "1e19"}])
def test_a_pod_that_the_scheduler_binds_because_its_requests_overflow_does_not_keep_gangs_out(
    requests: dict[str, str],
) -> None:
    absurd = [pod(f"absurd-{n}", on=f"n{n}", owner=("DaemonSet", "d"), requests=requests) for n in range(5)]
    assert decided([*absurd, *gang("g", 2)], FIVE).admit is not None


def test_pods_of_daemonsets_are_not_expected_to_end() -> None:
    daemons = [pod(f"d{n}", on=f"n{n}", cpu="6", owner=("DaemonSet", "d")) for n in range(5)]
    assert "even when" in messages(decided([*daemons, *gang("g", 6, cpu="5")], FIVE))["g"]
    jobs = [pod(f"d{n}", on=f"n{n}", cpu="6", owner=("Job", "d")) for n in range(5)]
    assert messages(decided([*jobs, *gang("g", 6, cpu="5")], FIVE)) == {"g": "GangWaiting: 0 of 6 pods fit"}


def test_unscheduled_pods_without_a_gate_come_before_gangs() -> None:
    """The scheduler has them already; the capacity that they will take is not free for a gang."""
    loose = [pod(f"l{n}", cpu="10") for n in range(3)]
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE).admit is None
    too_large = [pod(f"l{n}", cpu="99") for n in range(3)]
    assert decided([*too_large, *gang("g", 6, cpu="5")], FIVE).admit is not None


def test_of_unscheduled_pods_that_do_not_all_fit_those_of_high_priority_hold_capacity() -> None:
    loose = [pod("low", cpu="6"), pod("high", cpu="10", priority=5)]
    assert decided([*loose, *gang("g", 1, priority=3)], nodes(1)).admit is None


CLAIMS = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.mark.parametrize(
    "loose",
    [
        [pod(f"l{n}", cpu="10", volumes=CLAIMS) for n in range(3)],
        [pod(f"l{n}", cpu="10", schedulerName="nobody", owner=("ReplicaSet", "web")) for n in range(3)],
        [past_the_gate(pod(f"l{n}", cpu="10", age_s=9999.0), 0.0, reserved_node=f"n{n}") for n in range(3)],
    ],
    ids=["stuck", "of an unknown scheduler", "from the removal of its gate"],
)
def test_a_pod_that_is_never_bound_holds_capacity_for_a_while(loose: list) -> None:
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 10.0).admit is None
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 400.0).admit is not None


def test_unscheduled_pods_hold_no_capacity_against_a_gang_of_higher_priority() -> None:
    """The gang of priority 7 is admitted before them; one of their own priority waits, and its event says why."""
    loose = [pod(f"l{n}", cpu="10", priority=-10) for n in range(3)]
    assert decided([*loose, *gang("urgent", 6, cpu="5", priority=7)], FIVE).admit is not None
    detail = "capacity is set aside for 3 pods not scheduled yet"
    equal = decided([*loose, *gang("equal", 6, cpu="5", priority=-10)], FIVE)
    assert messages(equal) == {"equal": f"GangWaiting: 4 of 6 pods fit; {detail}"}
    behind = decided([*loose, *gang("huge", 9, cpu="10"), *gang("equal", 6, cpu="5", priority=-10)], FIVE)
    assert messages(behind)["equal"] == f"GangWaiting: 4 of 6 pods fit; {detail}"


def test_pods_of_lower_priority_on_nodes_keep_their_room_from_a_gang() -> None:
    """Gated pods preempt nobody: placeholders that hold nodes for an autoscaler have to be deleted first."""
    placeholders = [pod(f"p{n}", cpu="10", on=f"n{n}", priority=-10) for n in range(5)]
    urgent = gang("urgent", 6, cpu="5", priority=7)
    assert decided([*placeholders, *urgent], FIVE).admit is None
    assert decided([*placeholders[:2], *urgent], FIVE).admit is not None


def test_a_gang_in_back_off_releases_its_reservations_and_does_not_hold_up_others() -> None:
    stuck, younger = (
        [reserved(member, "n0") for member in gang("stuck", 2, cpu="5", age_s=9)],
        gang("next", 5, cpu="10"),
    )
    decision = decided([*stuck, *younger], FIVE, backed_off={stuck[0].membership.name: "refused"})
    assert (str(decision.admit), decision.stale) == ("team/next", stuck)
    assert messages(decision)["stuck"] == "GangWaiting: refused"


def test_a_partly_admitted_gang_in_back_off_keeps_its_reservations() -> None:
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, on="n0")]
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    large, small = gang("large", 4, cpu="10"), gang("small", 3, cpu="10")
    backed_off = {rest.membership.name: "refused"}
    assert decided([*begun, rest, *large], FIVE, 5.0, backed_off=backed_off).admit is None
    decision = decided([*begun, rest, *small], FIVE, 5.0, backed_off=backed_off)
    assert (str(decision.admit), decision.stale) == ("team/small", [])


def test_expired_reservations_of_a_partly_admitted_gang_do_not_hold_up_others() -> None:
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, on="n0")]
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    backed_off = {rest.membership.name: "refused"}
    decision = decided([*begun, rest, *gang("large", 4, cpu="10")], FIVE, 1e5, backed_off=backed_off)
    assert str(decision.admit) == "team/large"


PACKED_FOURS = [
    past_the_gate(member, 0.0, reserved_node=f"n{n // 2}") for n, member in enumerate(gang("first", 5, cpu="4"))
]
"""Let in and not bound: a scheduler that knows no reservations may put them on all five nodes."""


def test_a_gang_waits_while_another_is_being_bound_that_could_take_its_nodes_unless_that_takes_too_long() -> None:
    whole_nodes = gang("second", 2, cpu="10")
    decision = decided([*PACKED_FOURS, *whole_nodes], FIVE, 10.0)
    assert messages(decision) == {"second": "GangWaiting: waits behind team/first, which is being placed"}
    later = decided([*PACKED_FOURS, *whole_nodes], FIVE, 301.0)
    assert later.admit is not None
    assert (
        messages(later)["first"]
        == "GangNotBound: 5 of 5 pods were not bound in time; other gangs no longer wait for it"
    )


def test_a_gang_does_not_wait_for_one_being_bound_that_cannot_take_its_nodes() -> None:
    """There is room for all of them in any order, or they may not run on the same nodes."""
    assert str(decided([*PACKED_FOURS, *gang("small", 2)], FIVE, 10.0).admit) == "team/small"
    other_nodes = [node(f"gpu{n}", labels={"pool": "gpu"}) for n in range(2)]
    elsewhere = gang("elsewhere", 2, cpu="10", nodeSelector={"pool": "gpu"})
    on_cpu_nodes = [replace(each, requirements=ON_CPU_NODES) for each in PACKED_FOURS]
    assert decided([*PACKED_FOURS, *elsewhere], [*FIVE, *other_nodes], 10.0).admit is None
    assert decided([*on_cpu_nodes, *elsewhere], [*FIVE, *other_nodes], 10.0).admit is not None


NOT_IN_POOL = {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}
NOT_ON_GPU_NODES = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NOT_IN_POOL]}}
}
ON_CPU_NODES = pod("x", cpu="4", affinity=NOT_ON_GPU_NODES).requirements


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        ("0/5 nodes are available: 5 node(s) didn't match pod affinity rules.", False),
        ('running PreBind plugin "VolumeBinding": binding volumes: timed out', False),
        ("0/5 nodes are available: 5 Insufficient cpu.", True),
        (f"0/5 nodes are available: 5 {RESERVED_FOR_GANG}.", True),
        ("", True),
    ],
)
def test_a_gang_no_longer_waits_for_pods_that_the_scheduler_can_place_nowhere(message: str, waits: bool) -> None:
    """But for those that lack capacity it does: they might take its nodes as soon as there is some."""
    status = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    }
    first = [
        past_the_gate(
            read_member({**pod_json(f"first-{n}", gang="first", cpu="4", gates=[]), "status": status}),
            0.0,
            reserved_node=f"n{n // 2}",
        )
        for n in range(5)
    ]
    decision = decided([*first, *gang("second", 2, cpu="10")], FIVE, 10.0)
    assert (decision.admit is None) == waits
    assert not decision.stale, "the scheduler may still place them, beside the others of their gang"


def test_no_room_is_kept_for_a_pod_that_the_scheduler_can_place_nowhere() -> None:
    loose = [pod(f"l{n}", cpu="10") for n in range(3)]
    hopeless = [replace(each, unplaceable=True) for each in loose]
    assert decided([*loose, *gang("g", 6, cpu="5")], FIVE, 10.0).admit is None
    assert decided([*hopeless, *gang("g", 6, cpu="5")], FIVE, 10.0).admit is not None


def test_a_higher_priority_gang_neither_waits_for_one_being_bound_nor_takes_its_nodes() -> None:
    urgent = gang("urgent", 2, cpu="10", priority=7)
    decision = decided([*PACKED_FOURS, *urgent, *gang("equal", 2, cpu="10")], FIVE, 10.0)
    assert str(decision.admit) == "team/urgent"
    assert sorted(decision.reserved_nodes.values()) == ["n3", "n4"]


def test_if_a_controller_died_between_two_gates_the_other_members_keep_their_nodes() -> None:
    members = [reserved(member, f"n{n}") for n, member in enumerate(gang("g", 3, cpu="5"))]
    cut = [replace(members[0], gates=()), *members[1:]]
    decision = decided([*gang("elder", 1, age_s=99), *cut], FIVE, 5.0)
    assert str(decision.admit) == "team/g"
    assert dict(decision.reserved_nodes) == {"uid-g-1": "n1", "uid-g-2": "n2"}
    assert not decision.stale


def test_reservations_from_before_the_first_gate_are_released_if_the_gang_does_not_fit() -> None:
    large = [reserved(member, "n4") for member in gang("large", 6, cpu="10")]
    decision = decided(large, FIVE)
    assert decision.admit is None
    assert set(decision.stale) == set(large)


def test_reservations_that_a_dead_controller_wrote_hold_against_later_pods_until_they_expire() -> None:
    def with_reservation(at_s: float) -> list[Member]:
        return [reserved(member, f"n{n % 3}", at_s) for n, member in enumerate(gang("g", 6, cpu="5"))]

    burst = [pod(f"b{n}", cpu="5") for n in range(10)]
    decision = decided([*burst, *with_reservation(0.0)], FIVE, 5.0)
    assert decision.reserved_nodes["uid-g-4"] == "n1"
    burst = [pod(f"b{n}", cpu="5", age_s=-300.0) for n in range(10)]
    too_old = decided([*burst, *with_reservation(0.0)], FIVE, 301.0)
    assert too_old.admit is None
    assert len(too_old.stale) == 6
    taken = decided([pod("t", on="n1", cpu="1"), *with_reservation(0.0)], FIVE, 5.0)
    assert "uid-g-4" in taken.reserved_nodes  # planned again, as no gate was removed


def test_if_its_node_was_taken_the_rest_of_a_gang_goes_elsewhere_or_holds_up_others() -> None:
    rest = reserved(pod("g-1", gang="g", size=2, cpu="5"), "n1")
    begun = [past_the_gate(pod("g-0", gang="g", size=2, cpu="5"), 0.0, reserved_node="n0", on="n0"), rest]
    taken = pod("t", on="n1", cpu="8", owner=("Job", "t"))
    assert dict(decided([*begun, taken], FIVE).reserved_nodes) == {"uid-g-1": "n0"}
    full = [pod(f"f{n}", on=f"n{n}", cpu="8" if n else "4") for n in range(5)]
    behind = gang("behind", 1, cpu="1")
    assert messages(decided([*begun, *full, *behind], FIVE, 10.0)) == {
        "g": "GangWaiting: 0 of 1 pods fit; its other pods are past the gate",
        "behind": "GangWaiting: waits behind team/g, which is being placed",
    }
    assert decided([*begun, *full, *behind], FIVE, 400.0).admit is not None


def test_a_pod_without_the_gate_neither_advances_its_gang_nor_holds_up_others() -> None:
    """Anybody who may create pods can set the label, and the annotation of an admitted pod."""
    annotations = {"phasewise.dev/gang-node": "n0"}
    running = pod("g-0", gang="g", size=2, cpu="100m", gates=[], on="n0", age_s=999, annotations=annotations)
    stuck = pod("g-0", gang="g", size=2, cpu="99", gates=[], age_s=999, annotations=annotations)
    elder = gang("elder", 2, age_s=9)
    for ungated in (running, stuck):
        for cpu in ("1", "99"):
            decision = decided([ungated, pod("g-1", gang="g", size=2, cpu=cpu), *elder], FIVE, 10.0)
            assert str(decision.admit) == "team/elder"


def test_pods_added_to_a_gang_that_is_never_bound_do_not_hold_up_others_for_longer() -> None:
    """One is added every four minutes; the timeout does not start again."""
    added_pods = [pod(f"first-{n}", gang="first", size=5, cpu="4", age_s=-240.0 * n) for n in (1, 2)]
    behind = gang("behind", 2, cpu="10", age_s=9)
    assert str(decided([*PACKED_FOURS, added_pods[0], *behind], FIVE, 250.0).admit) != "team/behind"
    assert str(decided([*PACKED_FOURS, *added_pods, *behind], FIVE, 490.0).admit) == "team/behind"


def test_a_clock_set_back_does_not_hold_up_others_for_longer() -> None:
    waiting = [past_the_gate(member, 3600.0, reserved_node="n0") for member in gang("first", 2)]
    decision = decided([*waiting, *gang("second", 1)], FIVE, 0.0)
    assert str(decision.admit) == "team/second"
    assert messages(decision)["first"].startswith("GangNotBound: 2 of 2 pods were not bound in time")


def test_a_gang_pod_created_without_the_gate_is_reported_for_a_while() -> None:
    expected = {"g": f"GangNotGated: {WITHOUT_GATE}"}
    ungated, running = pod("g-0", gang="g", gates=[]), pod("g-0", gang="g", on="n0")
    for each in (ungated, running):
        assert messages(decided([each, *gang("other", 1)], FIVE, 5.0)).items() >= expected.items()
        assert messages(decided([each], FIVE, 5.0)) == expected
        assert messages(decided([each], FIVE, 700.0)) == {}
    admitted = pod("g-0", gang="g", on="n0", annotations={"phasewise.dev/gang-node": "n0"})
    native_group = pod("g-0", gang="g", gates=[], schedulingGroup={"podGroupName": "native"})
    of_job = pod("j", gates=[], labels={"batch.kubernetes.io/job-name": "j"})
    assert messages(decided([admitted, native_group, of_job, reserved(ungated, "n0")], FIVE, 5.0)) == {}


def test_a_small_gang_is_backfilled_only_if_it_does_not_delay_the_head() -> None:
    """n0 to n2 are full. The head needs all five nodes, or four of them."""
    running = [pod(f"r{n}", on=f"n{n}", cpu="10", age_s=99, owner=("Job", "r")) for n in range(3)]
    small = gang("small", 2, cpu="5")
    needs_all = decided([*running, *gang("head", 5, cpu="10", age_s=9), *small], FIVE)
    assert messages(needs_all) == {
        "head": "GangWaiting: 2 of 5 pods fit",
        "small": "GangWaiting: waits behind team/head",
    }
    needs_four = decided([*running, *gang("head", 4, cpu="10", age_s=9), *small], FIVE)
    assert messages(needs_four)["small"].endswith("does not delay team/head")
    admitted = [past_the_gate(member, 1.0, on="n4") for member in small]
    third = decided([*running, *admitted, *gang("head", 4, cpu="10", age_s=9), *gang("more", 1, cpu="5")], FIVE, 2.0)
    assert messages(third)["more"] == "GangWaiting: waits behind team/head"


@pytest.mark.parametrize("place", [0, 1])
def test_a_gang_is_backfilled_beside_a_daemonset_pod_where_the_head_never_fits(place: int) -> None:
    """The head needs a whole node, which it gets once the job on the other node has ended."""
    daemon = pod("d", on=f"n{place}", cpu="6", age_s=99, owner=("DaemonSet", "d"))
    job = pod("r", on=f"n{1 - place}", cpu="10", age_s=99, owner=("Job", "r"))
    decision = decided([daemon, job, *gang("head", 1, cpu="10", age_s=9), *gang("small", 1, cpu="4")], nodes(2))
    assert messages(decision)["small"].endswith("does not delay team/head")


def test_the_gang_of_higher_priority_is_admitted_first() -> None:
    pods = [*gang("old", 6, cpu="5", age_s=99), *gang("urgent", 6, cpu="5", priority=7)]
    assert str(decided(pods, FIVE).admit) == "team/urgent"


def test_other_gates_are_waited_for_and_native_pod_groups_let_through() -> None:
    kueue = gang("k", 2, gates=[GATE, "kueue.x-k8s.io/admission"])
    native_group = pod("native", gates=[GATE], schedulingGroup={"podGroupName": "g"})
    decision = decided([*kueue, native_group], FIVE)
    assert messages(decision) == {"k": "GangWaiting: held by other scheduling gates: kueue.x-k8s.io/admission"}
    assert decision.native == [native_group]


def test_a_gang_that_kueue_holds_keeps_no_capacity_and_holds_up_nobody() -> None:
    """However old it is, and until Kueue has opened its gate on every pod."""
    gates = [GATE, "kueue.x-k8s.io/admission"]
    held = [*gang("k", 3, cpu="10", age_s=9999, gates=gates)[:2], pod("k-2", gang="k", size=3, cpu="10", age_s=9999)]
    running = [pod(f"r{n}", on=f"n{n}", cpu="6") for n in range(3)]
    decision = decided([*held, *running, *gang("g", 2, cpu="10")], FIVE)
    assert (str(decision.admit), decision.kept) == ("team/g", None)
    opened = [replace(each, gates=(GATE,)) for each in held]
    decision = decided([*opened, *running, *gang("g", 2, cpu="10")], FIVE)
    assert decision.kept is not None
    assert (decision.admit, str(decision.kept.gang)) == (None, "team/k")


def test_an_elastic_gang_starts_with_all_pods_that_exist_and_further_ones_are_admitted_as_they_come() -> None:
    """Its size is the smallest with which it may start."""
    assert decided(gang("e", 2, cpu="10"), FIVE).admit is not None
    three = [pod(f"e-{n}", gang="e", size=2, cpu="10") for n in range(3)]
    assert decided(three, nodes(2)).admit is None
    started = [past_the_gate(each, 0.0, on=f"n{n}") for n, each in enumerate(three[:2])]
    added = pod("e-2", gang="e", size=2, cpu="10")
    assert decided([*started, added], FIVE).admit is not None
    assert decided([started[0], added], FIVE).admit is not None, "one was removed, and another takes its place"
    declared = [replace(each, membership=replace(each.membership, declared_size="3")) for each in (started[0], added)]
    assert messages(decided(declared, FIVE, 60.0)) == {"e": "GangIncomplete: 2 of 3 pods exist"}


def test_a_gang_is_admitted_beside_a_thousand_pods_that_are_being_bound() -> None:
    hundred = [node(f"n{number:02}") for number in range(100)]
    in_flight = [
        past_the_gate(each, 0.0, reserved_node=f"n{number % 100:02}")
        for number in range(250)
        for each in gang(f"f{number}", 4, cpu="500m")
    ]
    assert str(decided([*in_flight, *gang("g", 4)], hundred, 5.0).admit) == "team/g"
    whole_nodes = decided([*in_flight, *gang("g", 4, cpu="9500m")], hundred, 5.0)
    assert messages(whole_nodes) == {"g": "GangWaiting: 0 of 4 pods fit"}


def test_no_more_pods_are_admitted_at_a_time_than_the_reservations_have_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.gangs.decide.MAX_RESERVED", 8)
    assert decided([*PACKED_FOURS, *gang("g", 3, cpu="100m")], FIVE, 5.0).admit is not None
    decision = decided([*PACKED_FOURS, *gang("g", 4, cpu="100m")], FIVE, 5.0)
    assert messages(decision) == {"g": "GangWaiting: waits behind team/first, which is being placed"}
    assert decided(gang("alone", 10, cpu="100m"), FIVE).admit is not None
    large = [pod("r", on="n4", cpu="10"), *gang("large", 5, cpu="10", age_s=9999)]
    assert decided([*PACKED_FOURS[:3], *large], FIVE, 5.0).kept is not None
    assert decided([*PACKED_FOURS, *large], FIVE, 5.0).kept is None


def test_constraints_left_to_the_scheduler_are_reported() -> None:
    assert "left to the scheduler: volumes" in messages(decided(gang("g", 2, volumes=CLAIMS), FIVE))["g"]


def test_nodes_that_are_ruled_out_are_counted() -> None:
    all_nodes = [*nodes(3), node("closed", unschedulable=True)]
    assert messages(decided([*gang("g", 4, cpu="10")], all_nodes))["g"] == (
        "GangNeverFits: even when all jobs have ended, 3 of 4 pods fit; 1 of 4 nodes are ruled out"
    )


def test_a_resource_that_no_node_offers_is_named() -> None:
    """A device of DRA, or a typing error."""
    all_nodes = [*nodes(3), node("without", resources={"example.com/fpga": "0"})]
    assert messages(decided(gang("g", 2, requests={"example.com/fpga": "1"}), all_nodes))["g"] == (
        "GangNeverFits: even when all jobs have ended, 0 of 2 pods fit; no node offers example.com/fpga"
    )


@pytest.mark.parametrize("spread", [False, True])
def test_an_admitted_gang_is_placed_in_what_running_pods_leave_free(spread: bool) -> None:
    annotations = {"phasewise.dev/placement": "spread"} if spread else {}
    running = [pod(f"r{n}", on=f"n{n}", cpu="6") for n in range(5)]
    decision = decided([*running, *gang("g", 5, cpu="4", annotations=annotations)], FIVE)
    assert sorted(decision.reserved_nodes.values()) == ["n0", "n1", "n2", "n3", "n4"]


GANGS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 10), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=10
)
"""(size, cores per pod, priority, step at which it is created)"""


@settings(max_examples=12, deadline=None)
@given(GANGS, st.randoms(use_true_random=False))
def test_gangs_start_whole_never_exceed_the_capacity_and_each_gets_its_turn(
    gangs: list[tuple[int, int, int, int]], rng: object
) -> None:
    """Gangs are created, run for random times, and end. In the end all that can fit have run."""
    cluster = SimulatedCluster(FIVE)
    can_run = {f"g{n}" for n, (size, cpu, _, _) in enumerate(gangs) if size <= 5 * (10 // cpu)}
    for step in range(8 + 2 * len(gangs)):
        for number, (size, cpu, priority, at) in enumerate(gangs):
            if at == step:
                cluster.put(*gang(f"g{number}", size, cpu=str(cpu), priority=priority, age_s=-cluster.at_s))
        cluster.step()
        assert all(cores <= 10 + 1e-9 for cores in cluster.used().values())
        for number, (size, _, _, _) in enumerate(gangs):
            bound = sum(
                1 for each in cluster.pods.values() if each.membership.name.endswith(f"=g{number}") and each.node
            )
            assert bound in (0, size)
        running = [name for name in cluster.admitted if f"uid-{name}-0" in cluster.pods]
        if running and (step >= 6 or rng.random() < 0.4):  # type: ignore[attr-defined]
            cluster.end(rng.choice(running))  # type: ignore[attr-defined]
    assert set(cluster.admitted) == can_run


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=4), st.lists(st.integers(0, 16)))
def test_however_often_the_controller_dies_all_gangs_are_admitted_one_at_a_time(
    gangs: list[tuple[int, int]], deaths: list[int]
) -> None:
    cluster = SimulatedCluster(FIVE)
    for number, (size, cpu) in enumerate(gangs):
        cluster.put(*gang(f"g{number}", size, cpu=str(cpu), age_s=-number))
    done = set()
    for step in range(len(deaths) + 3 * len(gangs)):
        cluster.step(deaths[step] if step < len(deaths) else 1 << 20)
        partly_bound = []
        for number, (size, _) in enumerate(gangs):
            members = [each for each in cluster.pods.values() if each.membership.name.endswith(f"=g{number}")]
            bound = sum(1 for each in members if each.node)
            partly_bound += [number] * (0 < bound < size)
            if bound == size:
                done.add(number)
                cluster.end(f"g{number}")
        assert len(partly_bound) <= 1
        assert all(cores <= 10 + 1e-9 for cores in cluster.used().values())
    assert done == set(range(len(gangs)))


@settings(max_examples=8, deadline=None)
@given(st.integers(6, 10), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=5, max_size=20))
def test_the_head_is_admitted_once_older_gangs_have_ended_however_many_come_later(
    head: int, stream: list[tuple[int, int]]
) -> None:
    """Backfilled gangs never end here: if the head is admitted anyway, none of them has delayed it."""
    cluster = SimulatedCluster(FIVE)
    cluster.put(*gang("elder", 5, cpu="6", age_s=50))
    assert cluster.step() == "elder"
    cluster.put(*gang("head", head, cpu="5", age_s=40))
    for number, (size, cpu) in enumerate(stream):
        cluster.put(*gang(f"s{number}", size, cpu=str(cpu), age_s=-cluster.at_s))
        assert cluster.step() != "head"
    cluster.end("elder")
    assert cluster.step() == "head"
