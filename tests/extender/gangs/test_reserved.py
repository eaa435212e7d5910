"""Nodes reserved for gangs, as the extender takes them: by hand first, then whom they never hold back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.pods.reservations import Reservation, Reservations, read_reservations, reservations_data
from extender.protocol.wire import PreemptionArgs
from extender.reasons import RESERVED_ELSEWHERE, RESERVED_FOR_GANG
from extender.settings import Limits, Settings
from placement_bench.worlds import NO_MEMORY, NOON_S, Clock, World, class_json, node_json, pod_json
from recommender.cluster.errors import BadObject

RESERVED = Reservation("team", "phasewise.dev/gang=g", NOON_S, 300.0, {"uid-m": "b"})


def world(*reservations: Reservation) -> World:
    made = World(Settings(), *(node_json(name, cpu="8") for name in "abc"))
    made.state.reservations.put(reservations or [RESERVED])
    return made


def member(name: str = "m", cpu: str = "6", **more: Any) -> dict[str, Any]:
    return pod_json(name, cpu=cpu, labels={"phasewise.dev/gang": "g"}, **more)


LARGE = pod_json("large", cpu="3")
"""Fits on a node of eight cores, but not beside a member."""


def test_a_member_is_let_to_its_own_node_alone() -> None:
    here = world().put(member())
    assert here.filter(member()) == {"a": RESERVED_ELSEWHERE, "c": RESERVED_ELSEWHERE}
    assert here.place(member()) == "b"


def test_what_is_free_beside_a_reservation_may_be_used_and_no_more() -> None:
    here = world().put(member())
    assert here.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert here.filter(pod_json("small", cpu="2")) == {}


def test_gpus_are_reserved_like_cpu_and_memory() -> None:
    """Two of four GPUs are free beside the member, whether it was advised already or not; percentages are nothing that
    the node offers."""
    gpu = "nvidia.com/gpu"
    here = World(Settings(), *(node_json(name, extended={gpu: "4"}) for name in "ab"))
    here.state.reservations.put([RESERVED])
    two = member(cpu="1", extended={gpu: "2", "nvidia.com/gpucores": "50"})
    here.put(two)
    for _ in range(2):
        assert here.filter(pod_json("three", extended={gpu: "3"})) == {"b": RESERVED_FOR_GANG}
        assert here.filter(pod_json("two", extended={gpu: "2", "nvidia.com/gpucores": "50"})) == {}
        assert here.place(two) == "b"


def test_a_seat_is_held_for_a_pod_that_is_not_made_yet() -> None:
    """Of the pod that is moved nothing may be left: the reservation itself says how much its next pod needs."""
    gpu = "nvidia.com/gpu"
    here = World(Settings(), *(node_json(name, cpu="8", extended={gpu: "4"}) for name in "ab"))
    seat = Reservation(
        "team", "batch.kubernetes.io/job-name=j", NOON_S, 300.0, {"uid-old": "b"}, {"cpu": 6.0, gpu: 2.0}
    )
    here.state.reservations.put(read_reservations({"metadata": {"name": "r"}, "data": reservations_data([seat])}))
    assert here.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert here.filter(pod_json("three", extended={gpu: "3"})) == {"b": RESERVED_FOR_GANG}
    assert here.filter(pod_json("small", cpu="2", extended={gpu: "2"})) == {}
    assert here.filter(pod_json("urgent", cpu="3", priority=1)) == {}


def test_a_member_that_asks_is_counted_once_and_gives_its_node_up_to_nobody() -> None:
    here = world().put(member())
    here.place(member())
    assert here.filter(LARGE) == {"b": RESERVED_FOR_GANG}
    assert here.filter(pod_json("small", cpu="2")) == {}


def test_what_is_bound_is_for_the_scheduler_to_count_and_what_is_gone_for_nobody() -> None:
    assert world().put(member(), member(node="b")).filter(LARGE) == {}
    gone = world().put(member())
    gone.state.drop_pod("uid-m")
    assert gone.filter(LARGE) == {}


def test_a_reservation_that_is_taken_back_or_over_holds_nothing() -> None:
    here = world().put(member())
    here.state.reservations.put([])
    assert here.filter(LARGE) == {}
    here = world().put(member())
    here.clock.now_s += 301.0
    assert here.filter(LARGE) == {}


def test_no_forecast_keeps_a_member_from_its_node() -> None:
    """A tight node is better than half a gang."""
    here = world().put(class_json("hungry", [1.0], [31.0]), pod_json("t", workload="hungry", node="b"))
    late = member(workload="hungry")
    assert here.filter(pod_json("o", workload="hungry"), ["b"]) == {"b": NO_MEMORY}
    assert here.put(late).filter(late, ["b"]) == {}


def test_a_member_whose_node_the_scheduler_has_ruled_out_is_judged_like_any_pod() -> None:
    assert world().put(member()).filter(member(), ["a", "c"]) == {}


# -- whom nothing is taken from ----------------------------------------------------------------------------------------


def test_what_a_pod_says_of_itself_reserves_nothing() -> None:
    """Four pods that no node can hold would else stop the scheduler."""
    here = World(Settings(), *(node_json(name, cpu="8") for name in "abcd"))
    for name in "abcd":
        words = {"phasewise.dev/gang-node": name, "phasewise.dev/gang-admitted": "2027-01-15T08:00:00+00:00"}
        here.put(pod_json(f"attacker-{name}", cpu="99", annotations=words))
    assert here.filter(LARGE) == {}
    assert here.filter(pod_json("urgent", cpu="3", priority=100_000)) == {}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_json("x", cpu="3", priority=6), id="of a higher priority"),
        pytest.param(pod_json("x", cpu="3", scheduler="other"), id="of another scheduler"),
        pytest.param(
            pod_json("x", cpu="3", scheduler="other", labels={"phasewise.dev/workload": "w"}),
            id="of another scheduler, but known to us",
        ),
    ],
)
def test_a_pod_is_refused_nothing_for_a_gang_that(pod: Mapping[str, Any]) -> None:
    here = world().put(member(priority=5))
    assert here.filter(dict(pod)) == {}
    assert here.filter(pod_json("equal", cpu="3", priority=5)) == {"b": RESERVED_FOR_GANG}


def test_a_pod_of_kube_system_is_refused_nothing_for_a_gang() -> None:
    pod = pod_json("dns", cpu="3")
    pod["metadata"]["namespace"] = "kube-system"
    assert world().put(member()).filter(pod) == {}


def test_a_higher_priority_is_not_kept_out_by_a_member_that_was_just_advised_either() -> None:
    here = world().put(member())
    here.place(member())
    assert here.filter(pod_json("urgent", cpu="3", priority=1)) == {}


def test_nobody_is_refused_for_ever_though_gang_follows_upon_gang() -> None:
    here = World(Settings(limits=Limits(patience_s=900.0)), node_json("b", cpu="8"))
    here.put(LARGE)
    for number in range(4):
        here.put(member(f"m{number}"))
        began_s = here.clock.now_s
        here.state.reservations.put([replace(RESERVED, since_s=began_s, nodes={f"uid-m{number}": "b"})])
        assert here.filter(LARGE) == ({"b": RESERVED_FOR_GANG} if number < 3 else {})
        here.clock.now_s += 300.0


def test_a_gang_is_held_no_more_than_its_pods_ask_for_whatever_is_written() -> None:
    """UIDs of nobody, and of a pod that was made anew under the name of a member."""
    nodes = {"uid-m": "b", "uid-invented": "a", "uid-m-before": "c", "": "a"}
    here = world(replace(RESERVED, nodes=nodes)).put(member(cpu="1"))
    assert here.filter(pod_json("x", cpu="7")) == {}
    assert here.filter(pod_json("y", cpu="7500m")) == {"b": RESERVED_FOR_GANG}


def test_nobody_is_evicted_for_room_that_is_reserved() -> None:
    here = world().put(member(), pod_json("low", cpu="2", node="b"))

    def candidates(cpu: str, **more: Any) -> list[str]:
        victims = PreemptionArgs(pod_json("high", cpu=cpu, **more), {"b": ("uid-low",)}, {"b": 0})
        return list(here.placer.preempt(victims))

    assert candidates("2") == ["b"]
    assert candidates("3") == [], "what the filter would refuse all the same"
    assert candidates("3", priority=1) == ["b"], "for it nothing is reserved"


def test_nobody_is_evicted_for_gpus_that_are_reserved() -> None:
    """Of four GPUs two are a member's, the others in use by what may go; `filter` refuses as long as it is there."""
    gpu = "nvidia.com/gpu"
    here = World(Settings(), node_json("b", extended={gpu: "4"}))
    here.state.reservations.put([RESERVED])
    here.put(member(cpu="1", extended={gpu: "2"}), pod_json("low", extended={gpu: "2"}, node="b"))
    for gpus, nodes in (("2", ["b"]), ("3", [])):
        high = pod_json("high", extended={gpu: gpus})
        assert here.filter(high) == {"b": RESERVED_FOR_GANG}
        assert list(here.placer.preempt(PreemptionArgs(high, {"b": ("uid-low",)}, {"b": 0}))) == nodes


# -- clocks ------------------------------------------------------------------------------------------------------------


@example(0.0, [(200.0, -200.0), (200.0, -200.0)])
@given(st.floats(-1e6, 1e6), st.lists(st.tuples(st.floats(0, 400), st.floats(-1e6, 1e6)), max_size=6))
def test_no_clock_that_jumps_makes_a_reservation_last_longer_than_it_was_made_for(
    ahead_s: float, jumps: list[tuple[float, float]]
) -> None:
    wall, monotonic = Clock(NOON_S + ahead_s), Clock(0.0)
    kept = Reservations(wall, monotonic)
    kept.put([RESERVED])
    for passed_s, jump_s in jumps:
        monotonic.now_s += passed_s
        wall.now_s += passed_s + jump_s
        kept.put([RESERVED])  # the watch lists it again
    assert (kept.node_of("uid-m") == "") or monotonic.now_s < 300.0


def test_a_restart_does_not_begin_the_time_anew_and_a_clock_put_back_does_not_end_it() -> None:
    wall, monotonic = Clock(NOON_S + 200.0), Clock(0.0)
    restarted = Reservations(wall, monotonic)
    restarted.put([RESERVED])
    monotonic.now_s = 99.0
    wall.now_s -= 5000.0
    assert restarted.node_of("uid-m") == "b"
    monotonic.now_s = 101.0
    assert restarted.node_of("uid-m") == ""


# -- as it is written --------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, NAMES, max_size=8), NAMES, st.integers(0, 10**12))
def test_what_is_written_is_read_again(nodes: dict[str, str], gang: str, since_ms: int) -> None:
    made = Reservation("team", f"phasewise.dev/gang={gang}", since_ms / 1000, 300.0, nodes)
    assert read_reservations({"metadata": {"name": "r"}, "data": reservations_data([made, RESERVED])}) == (
        made,
        RESERVED,
    )


def test_an_empty_map_reserves_nothing_and_ten_thousand_pods_find_room_in_one() -> None:
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
def test_what_has_another_form_is_named(text: str, problem: str) -> None:
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
def test_one_reservation_that_cannot_be_read_is_named_and_all_others_count(
    entry: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    (good,) = reservations_data([RESERVED]).values()
    told = {"metadata": {"name": "r"}, "data": {"gangs.json": f"[{entry},{good[1:]}"}}
    assert read_reservations(told) == (RESERVED,)
    assert re.search(problem, caplog.text)


def test_one_gpu_is_reserved_like_several() -> None:
    gpu = "nvidia.com/gpu"
    here = World(Settings(), node_json("b", extended={gpu: "2"}))
    here.state.reservations.put([RESERVED])
    here.put(member(cpu="1", extended={gpu: "1"}))
    assert here.filter(pod_json("two", extended={gpu: "2"})) == {"b": RESERVED_FOR_GANG}
    assert here.filter(pod_json("one", extended={gpu: "1"})) == {}


def test_a_reserved_node_that_is_not_asked_about_is_not_spoken_of() -> None:
    here = world().put(member())
    assert here.filter(LARGE, ["a"]) == {}
    assert here.filter(LARGE, ["a", "b"]) == {"b": RESERVED_FOR_GANG}


def test_a_pod_is_held_back_only_for_what_it_asks_for_and_the_gang_does_too() -> None:
    """Of eight cores 6 are reserved, and 1.5 or 6 in use; the GPU of the node is in use, and nobody reserved it."""
    gpu = "nvidia.com/gpu"
    for used, one_core in (("1500m", {"b": RESERVED_FOR_GANG}), ("6", {"b": RESERVED_FOR_GANG}), ("1", {})):
        here = World(Settings(), node_json("b", cpu="8", extended={gpu: "1"}))
        here.state.reservations.put([RESERVED])
        here.put(member(), pod_json("there", cpu=used, node="b", extended={gpu: "1"}))
        assert here.filter(pod_json("one", cpu="1")) == one_core
        assert here.filter(pod_json("none", cpu="0", extended={gpu: "1"})) == {}
