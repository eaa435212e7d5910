"""Seats of gangs in the extender: held from the annotation on, for the member alone, over a restart."""

from __future__ import annotations

from extender.reasons import ELSEWHERE, HELD, MEMORY_REASON
from extender.settings import Settings
from tests.extender.worlds import World, class_json, node_json, pod_json

SEAT = {"phasewise.dev/gang-node": "b"}


def world() -> World:
    return World(Settings(), *(node_json(name, cpu="8") for name in "abc"))


def member(name: str = "m", cpu: str = "6", **more: object) -> dict[str, object]:
    return pod_json(name, cpu=cpu, labels={"phasewise.dev/gang": "g"}, annotations=SEAT, **more)  # type: ignore[arg-type]


def test_a_member_is_let_to_its_own_seat_alone() -> None:
    here = world().put(member())
    assert here.filter(member()) == {"a": ELSEWHERE, "c": ELSEWHERE}
    assert here.place(member()) == "b"


def test_what_is_free_beside_a_seat_may_be_used_and_no_more() -> None:
    here = world().put(member())
    assert here.filter(pod_json("large", cpu="3")) == {"b": HELD}
    assert here.filter(pod_json("small", cpu="2")) == {}
    assert here.filter(pod_json("stranger", cpu="3", scheduler="other")) == {"b": HELD}


def test_a_member_that_asks_gives_its_seat_up_to_nobody() -> None:
    here = world().put(member())
    here.filter(member())
    assert here.filter(pod_json("large", cpu="3")) == {"b": HELD}


def test_the_seat_is_held_once_it_is_bound_by_its_requests_alone() -> None:
    here = world().put(member()).put(member(node="b"))
    assert here.state.seated == frozenset()
    assert here.filter(pod_json("large", cpu="3")) == {}  # what is bound is for the scheduler to count


def test_a_seat_that_is_taken_back_or_too_old_is_free() -> None:
    here = world().put(member())
    here.put(pod_json("m", cpu="6", labels={"phasewise.dev/gang": "g"}))
    assert here.filter(pod_json("large", cpu="3")) == {}
    here = world().put(member())
    here.clock.now_s += 301.0
    here.state.snapshot()
    assert here.filter(pod_json("large", cpu="3")) == {}
    here = world().put(member())
    here.state.drop_pod("uid-m")
    assert here.filter(pod_json("large", cpu="3")) == {}


def test_no_forecast_keeps_a_member_from_its_seat() -> None:
    """A tight node is better than half a gang."""
    here = world().put(class_json("hungry", [1.0], [31.0]), pod_json("t", workload="hungry", node="b"))
    late = member(workload="hungry")
    assert here.filter(pod_json("o", workload="hungry"), ["b"]) == {"b": MEMORY_REASON}
    assert here.put(late).filter(late, ["b"]) == {}


def test_a_member_whose_seat_the_scheduler_has_ruled_out_is_judged_like_any_pod() -> None:
    here = world().put(member())
    assert here.filter(member(), ["a", "c"]) == {}
