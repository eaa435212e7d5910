"""How the extender applies nodes reserved for gangs: which pods it refuses, clocks that jump, and the stored form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.pods.pod import RESERVED_ELSEWHERE, RESERVED_FOR_GANG
from extender.pods.reservations import Reservation, Reservations, read_reservations, reservations_data
from extender.protocol.wire import PreemptionArgs
from extender.settings import Limits, Settings
from recommender.cluster.errors import BadObject
from tests.worlds.placement import NO_MEMORY, NOON_S, Clock, World, class_json, node_json, pod_json

RESERVED = Reservation("team", "phasewise.dev/gang=g", NOON_S, 300.0, {"uid-m": "b"})


def world_with(*reservations: Reservation) -> World:
    world = World(Settings(), *(node_json(name, cpu="8") for name in "abc"))
    world.state.reservations.put(reservations or [RESERVED])
    return world


def member(name: str = "m", cpu: str = "6", **fields: Any) -> dict[str, Any]:
    return pod_json(name, cpu=cpu, labels={"phasewise.dev/gang": "g"}, **fields)


LARGE = pod_json("large", cpu="3")
"""Fits on a node of eight cores, but not together with a member."""


def test_a_member_fits_only_on_its_reserved_node() -> None:
    world = world_with().put(member())
    assert world.filter(member()) == {"a": RESERVED_ELSEWHERE, "c": RESERVED_ELSEWHERE}
    assert world.place(member()) == "b"


def test_other_pods_may_use_only_what_a_reservation_leaves_free() -> None:
    world = world_with().put(member())
    assert world.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert world.filter(pod_json("small", cpu="2")) == {}


def test_gpus_are_reserved_like_cpu_and_memory() -> None:
    """Two of four GPUs stay free, before and after the member is placed; nodes list no percentages as resources."""
    gpu = "nvidia.com/gpu"
    world = World(Settings(), *(node_json(name, extended={gpu: "4"}) for name in "ab"))
    world.state.reservations.put([RESERVED])
    two = member(cpu="1", extended={gpu: "2", "nvidia.com/gpucores": "50"})
    world.put(two)
    for _ in range(2):
        assert world.filter(pod_json("three", extended={gpu: "3"})) == {"b": RESERVED_FOR_GANG}
        assert world.filter(pod_json("two", extended={gpu: "2", "nvidia.com/gpucores": "50"})) == {}
        assert world.place(two) == "b"


def test_a_single_gpu_is_reserved_like_several() -> None:
    gpu = "nvidia.com/gpu"
    world = World(Settings(), node_json("b", extended={gpu: "2"}))
    world.state.reservations.put([RESERVED])
    world.put(member(cpu="1", extended={gpu: "1"}))
    assert world.filter(pod_json("two", extended={gpu: "2"})) == {"b": RESERVED_FOR_GANG}
    assert world.filter(pod_json("one", extended={gpu: "1"})) == {}


def test_a_pod_is_refused_only_for_resources_that_both_it_and_the_gang_request() -> None:
    """Six of eight cores are reserved, and 1.5 or 1 in use. The only GPU is in use, and not reserved."""
    gpu = "nvidia.com/gpu"
    refused = {"b": RESERVED_FOR_GANG}
    for used, one_core in (("1500m", refused), ("1", {})):
        world = World(Settings(), node_json("b", cpu="8", extended={gpu: "1"}))
        world.state.reservations.put([RESERVED])
        world.put(member(), pod_json("there", cpu=used, node="b", extended={gpu: "1"}))
        assert world.filter(pod_json("one", cpu="1")) == one_core
        assert world.filter(pod_json("none", cpu="0", extended={gpu: "1"})) == {}


def test_a_reservation_holds_against_pods_of_each_profile_that_is_ours_and_of_no_other_scheduler() -> None:
    """Two profiles of one scheduler, or two schedulers, call the same extender; so does the default one."""
    world = World(Settings(schedulers=frozenset({"phasewise", "batch"})), node_json("b", cpu="8"))
    world.state.reservations.put([RESERVED])
    world.put(member(scheduler="batch"))
    for scheduler, refused in (("phasewise", True), ("batch", True), ("default-scheduler", False)):
        labels = {"phasewise.dev/workload": "k"}
        found = world.filter(pod_json("p", cpu="3", scheduler=scheduler, labels=labels))
        assert found == ({"b": RESERVED_FOR_GANG} if refused else {})


@pytest.mark.parametrize(
    ("there", "cores", "refused"),
    [
        (("3",), "2", False),  # the three have to end, with or without the two
        (("3",), "2500m", True),
        (("1", "4"), "1", False),  # the one may stay, beside six and another
        (("1", "4"), "1500m", True),
        (("1", "1"), "1", True),  # the member fits now
        (("2", "2"), "1", True),  # either of them has to end, and then the other may not
    ],
)
def test_a_pod_that_delays_the_member_no_more_than_those_that_have_to_end_first_is_let_through(
    there: tuple[str, ...], cores: str, refused: bool
) -> None:
    """Six of eight cores are kept for a gang that does not fit yet."""
    world = world_with().put(member(), *(pod_json(f"t{n}", cpu=cpu, node="b") for n, cpu in enumerate(there)))
    assert world.filter(pod_json("p", cpu=cores)) == ({"b": RESERVED_FOR_GANG} if refused else {})


def test_a_node_is_reserved_for_a_replacement_that_does_not_exist_yet() -> None:
    """The moved pod may be gone: the reservation itself says how much its replacement needs."""
    gpu = "nvidia.com/gpu"
    world = World(Settings(), *(node_json(name, cpu="8", extended={gpu: "4"}) for name in "ab"))
    made = Reservation(
        "team",
        "batch.kubernetes.io/job-name=j",
        NOON_S,
        300.0,
        {"uid-old": "b"},
        {"cpu": 6.0, gpu: 2.0},
        extended={gpu: 2.0},
    )
    world.state.reservations.put(read_reservations({"metadata": {"name": "r"}, "data": reservations_data([made])}))
    assert world.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert world.filter(pod_json("three", extended={gpu: "3"})) == {"b": RESERVED_FOR_GANG}
    assert world.filter(pod_json("small", cpu="2", extended={gpu: "2"})) == {}
    assert world.filter(pod_json("urgent", cpu="3", priority=1)) == {}


def test_a_member_just_placed_is_counted_once_and_keeps_its_node() -> None:
    world = world_with().put(member())
    world.place(member())
    assert world.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert world.filter(pod_json("small", cpu="2")) == {}


def test_bound_and_deleted_members_reserve_nothing() -> None:
    assert world_with().put(member(), member(node="b")).filter(LARGE) == {}
    gone = world_with().put(member())
    gone.state.drop_pod("uid-m")
    assert gone.filter(LARGE) == {}


def test_a_released_or_expired_reservation_holds_nothing() -> None:
    world = world_with().put(member())
    world.state.reservations.put([])
    assert world.filter(LARGE) == {}
    world = world_with().put(member())
    world.clock.now_s += 301.0
    assert world.filter(LARGE) == {}


def test_no_forecast_keeps_a_member_from_its_node() -> None:
    """A tight node is better than half a gang."""
    world = world_with().put(class_json("hungry", [1.0], [31.0]), pod_json("t", workload="hungry", node="b"))
    late = member(workload="hungry")
    assert world.filter(pod_json("o", workload="hungry"), ["b"]) == {"b": NO_MEMORY}
    assert world.put(late).filter(late, ["b"]) == {}


def test_a_member_whose_node_the_scheduler_ruled_out_is_filtered_like_any_pod() -> None:
    assert world_with().put(member()).filter(member(), ["a", "c"]) == {}


def test_only_candidate_nodes_are_refused_for_a_reservation() -> None:
    world = world_with().put(member())
    assert world.filter(LARGE, ["a"]) == {}
    assert world.filter(LARGE, ["a", "b"]) == {"b": RESERVED_FOR_GANG}


# -- pods that are not refused -----------------------------------------------------------------------------------------


def test_annotations_of_a_pod_reserve_nothing() -> None:
    """Otherwise four pods that fit on no node would block the scheduler."""
    world = World(Settings(), *(node_json(name, cpu="8") for name in "abcd"))
    for name in "abcd":
        annotations = {"phasewise.dev/gang-node": name, "phasewise.dev/gang-admitted": "2027-01-15T08:00:00+00:00"}
        world.put(pod_json(f"attacker-{name}", cpu="99", annotations=annotations))
    assert world.filter(LARGE) == {}
    assert world.filter(pod_json("urgent", cpu="3", priority=100_000)) == {}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_json("x", cpu="3", priority=6), id="higher priority"),
        pytest.param(pod_json("x", cpu="3", scheduler="other"), id="another scheduler"),
        pytest.param(
            pod_json("x", cpu="3", scheduler="other", labels={"phasewise.dev/workload": "w"}),
            id="another scheduler, known class",
        ),
    ],
)
def test_a_pod_of_higher_priority_or_another_scheduler_is_not_refused_for_a_gang(pod: Mapping[str, Any]) -> None:
    world = world_with().put(member(priority=5))
    assert world.filter(dict(pod)) == {}
    assert world.filter(pod_json("equal", cpu="3", priority=5)) == {"b": RESERVED_FOR_GANG}


def test_a_pod_of_kube_system_is_not_refused_for_a_gang() -> None:
    pod = pod_json("dns", cpu="3")
    pod["metadata"]["namespace"] = "kube-system"
    assert world_with().put(member()).filter(pod) == {}


def test_a_pod_of_higher_priority_is_not_refused_for_a_member_just_placed() -> None:
    world = world_with().put(member())
    world.place(member())
    assert world.filter(pod_json("urgent", cpu="3", priority=1)) == {}


def test_one_gang_after_another_does_not_refuse_a_pod_for_ever() -> None:
    world = World(Settings(limits=Limits(patience_s=900.0)), node_json("b", cpu="8"))
    world.put(LARGE)
    for number in range(4):
        world.put(member(f"m{number}"))
        began_s = world.clock.now_s
        world.state.reservations.put([replace(RESERVED, since_s=began_s, nodes={f"uid-m{number}": "b"})])
        assert world.filter(LARGE) == ({"b": RESERVED_FOR_GANG} if number < 3 else {})
        world.clock.now_s += 300.0


def test_a_reservation_holds_only_what_existing_members_request() -> None:
    """The other UIDs are of pods that do not exist, such as one that was recreated under its name."""
    nodes = {"uid-m": "b", "uid-invented": "a", "uid-m-before": "c", "": "a"}
    world = world_with(replace(RESERVED, nodes=nodes)).put(member(cpu="1"))
    assert world.filter(pod_json("x", cpu="7")) == {}
    assert world.filter(pod_json("y", cpu="7500m")) == {"b": RESERVED_FOR_GANG}


def test_no_pod_is_preempted_for_capacity_that_is_reserved() -> None:
    world = world_with().put(member(), pod_json("low", cpu="2", node="b"))

    def candidates(cpu: str, **fields: Any) -> list[str]:
        victims = PreemptionArgs(pod_json("high", cpu=cpu, **fields), {"b": ("uid-low",)}, {"b": 0})
        return list(world.placer.preempt(victims))

    assert candidates("2") == ["b"]
    assert candidates("3") == [], "the filter would refuse it anyway"
    assert candidates("3", priority=1) == ["b"], "reservations do not bind higher priorities"


def test_a_member_preempts_on_its_node_whatever_the_forecast_says() -> None:
    """`low` leaves too few cores. Without it, the filter would admit the member, and beside the others."""
    world = world_with().put(class_json("hungry", [1.0], [31.0]), member(workload="hungry", priority=5))
    world.put(*(pod_json(name, cpu="1", workload="hungry", node="b") for name in ("one", "two")))
    world.put(pod_json("low", cpu="3", node="b"), pod_json("elsewhere", cpu="6", node="a"))
    victims = {"a": ("uid-elsewhere",), "b": ("uid-low",)}
    args = PreemptionArgs(member(workload="hungry", priority=5), victims, dict.fromkeys(victims, 0))
    assert world.placer.preempt(args) == {"b": ("uid-low",)}


def test_no_pod_is_preempted_for_gpus_that_are_reserved() -> None:
    """Two of four GPUs are reserved, and a pod that may be preempted uses the others until then."""
    gpu = "nvidia.com/gpu"
    world = World(Settings(), node_json("b", extended={gpu: "4"}))
    world.state.reservations.put([RESERVED])
    world.put(member(cpu="1", extended={gpu: "2"}), pod_json("low", extended={gpu: "2"}, node="b"))
    for gpus, nodes in (("2", ["b"]), ("3", [])):
        high = pod_json("high", extended={gpu: gpus})
        assert world.filter(high) == {"b": RESERVED_FOR_GANG}
        assert list(world.placer.preempt(PreemptionArgs(high, {"b": ("uid-low",)}, {"b": 0}))) == nodes


# -- clocks ------------------------------------------------------------------------------------------------------------


@example(0.0, [(200.0, -200.0), (200.0, -200.0)])
@given(st.floats(-1e6, 1e6), st.lists(st.tuples(st.floats(0, 400), st.floats(-1e6, 1e6)), max_size=6))
def test_a_clock_that_jumps_never_extends_a_reservation(ahead_s: float, jumps: list[tuple[float, float]]) -> None:
    wall, monotonic = Clock(NOON_S + ahead_s), Clock(0.0)
    reservations = Reservations(wall, monotonic)
    reservations.put([RESERVED])
    for passed_s, jump_s in jumps:
        monotonic.now_s += passed_s
        wall.now_s += passed_s + jump_s
        reservations.put([RESERVED])  # the watch lists it again
    assert (reservations.node_of("uid-m") == "") or monotonic.now_s < 300.0


def test_neither_a_restart_nor_a_clock_set_back_changes_when_a_reservation_ends() -> None:
    wall, monotonic = Clock(NOON_S + 200.0), Clock(0.0)
    restarted = Reservations(wall, monotonic)
    restarted.put([RESERVED])
    monotonic.now_s = 99.0
    wall.now_s -= 5000.0
    assert restarted.node_of("uid-m") == "b"
    monotonic.now_s = 101.0
    assert restarted.node_of("uid-m") == ""


# -- stored form -------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, NAMES, max_size=8), NAMES, st.integers(0, 10**12))
def test_reservations_are_read_as_they_were_written(nodes: dict[str, str], gang: str, since_ms: int) -> None:
    made = Reservation("team", f"phasewise.dev/gang={gang}", since_ms / 1000, 300.0, nodes)
    assert read_reservations({"metadata": {"name": "r"}, "data": reservations_data([made, RESERVED])}) == (
        made,
        RESERVED,
    )


def test_an_empty_config_map_reserves_nothing_and_one_holds_two_gangs_of_ten_thousand_pods() -> None:
    assert read_reservations({"metadata": {"name": "r"}}) == ()
    nodes = {f"{number:036d}": f"a-node-with-quite-a-name-{number % 800}.example.internal" for number in range(10_000)}
    assert sum(map(len, reservations_data([replace(RESERVED, nodes=nodes)] * 2).values())) < 1 << 20


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a list"),
    ],
)
def test_data_of_another_form_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(BadObject, match=problem):
        read_reservations({"metadata": {"name": "r"}, "data": {"gangs.json": text}})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("7", r"\[0\] is not a JSON object"),
        ('{"namespace":"t","gang":"g"}', "does not say since when"),
        ('{"namespace":"t","gang":"g","since":"2027-01-15T08:00:00Z","holdSeconds":-1}', "for how long"),
        ('{"namespace":"t","gang":"g","since":"2027-01-15T08:00:00Z","holdSeconds":9,"nodes":{"a":7}}', "not a list"),
        ('{"namespace":"t","gang":"","since":"2027-01-15T08:00:00Z","holdSeconds":9}', "gang is missing"),
    ],
)
def test_an_invalid_reservation_is_logged_and_the_others_count(
    entry: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    (good,) = reservations_data([RESERVED]).values()
    config_map = {"metadata": {"name": "r"}, "data": {"gangs.json": f"[{entry},{good[1:]}"}}
    assert read_reservations(config_map) == (RESERVED,)
    assert re.search(problem, caplog.text)
