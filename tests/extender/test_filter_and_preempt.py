"""Refusals for memory: never for what was guessed, and no eviction that would not help."""

from __future__ import annotations

import pytest

from extender.protocol.wire import AskedVictims
from extender.reasons import MEMORY_REASON
from extender.settings import Limits, Settings
from tests.extender.worlds import World, class_json, node_json, pod_json

LATER = [4.0] * 2 + [30.0] * 22
"""GiB: little for five minutes, then much."""


def world_with_a_late_eater(settings: Settings | None = None) -> World:
    """`full` has 32 GiB, of which what runs there will soon use 30; `free` has nothing on it."""
    world = World(settings, node_json("full"), node_json("free"), class_json("eater", [1.0] * 24, LATER))
    return world.put(pod_json("a", node="full", memory="4Gi", workload="eater"))


def test_a_node_whose_memory_will_not_do_is_refused_though_requests_would_fit() -> None:
    world = world_with_a_late_eater()
    assert world.filter(pod_json("new", memory="8Gi")) == {"full": MEMORY_REASON}
    assert world.filter(pod_json("small", memory="1Gi")) == {}


def test_only_the_coming_cycle_counts() -> None:
    soon = world_with_a_late_eater(Settings(limits=Limits(cycle_s=300.0)))
    assert soon.filter(pod_json("new", memory="8Gi")) == {}
    soon.clock.now_s += 150.0
    assert soon.filter(pod_json("new", memory="8Gi")) == {"full": MEMORY_REASON}


def test_a_pod_that_fits_exactly_fits() -> None:
    world = World(None, node_json("a"))
    for number in range(31):
        world.put(pod_json(f"p{number}", cpu="100m", node="a"))
    assert world.filter(pod_json("new")) == {}
    assert world.filter(pod_json("more", memory="2Gi")) == {"a": MEMORY_REASON}


def test_what_is_guessed_refuses_nothing() -> None:
    gpu = {"nvidia.com/gpu": "2"}
    world = World(None, node_json("a"))
    silent = pod_json(
        "silent", cpu=None, memory=None, limits=gpu, nodeSelector={"nvidia.com/gpu.product": "Tesla-V100"}
    )
    assert world.filter(silent) == {}, "48 GiB by FfDL's table, on a node of 32"
    world.put({**silent, "spec": {**silent["spec"], "nodeName": "a"}, "status": {"phase": "Running"}})
    assert world.filter(pod_json("new", memory="8Gi")) == {}
    assert world.question(pod_json("new")).snapshot.load[0].max() == 42.0 + 1.0, "but it is expected there"


def test_a_history_that_no_node_could_bear_is_not_believed() -> None:
    world = World(None, node_json("a"), class_json("absurd", [1e9], [1e9]))
    assert world.filter(pod_json("new", workload="absurd")) == {}
    assert world.question(pod_json("new", workload="absurd")).footprint.source == "requests"


def test_pods_of_others_unknown_nodes_and_nodes_without_a_size_are_let_through() -> None:
    world = world_with_a_late_eater().put(node_json("sizeless", "0", "0"))
    assert world.filter(pod_json("theirs", memory="31Gi", scheduler="default-scheduler")) == {}
    assert world.filter(pod_json("ours", memory="31Gi"), ["never-heard-of", "sizeless"]) == {}


def test_a_refusal_says_the_same_at_every_attempt() -> None:
    world = world_with_a_late_eater()
    said = set()
    for _ in range(3):
        world.clock.now_s += 7.0
        said.add(tuple(world.filter(pod_json("new", memory="8Gi")).items()))
    assert len(said) == 1


def test_no_pod_is_evicted_where_the_forecast_would_refuse_the_node_all_the_same() -> None:
    world = world_with_a_late_eater().put(pod_json("small", memory="1Gi", node="full"))
    raw = pod_json("new", memory="8Gi")
    in_vain = AskedVictims(raw, {"full": ("uid-small",), "free": ()}, {"full": 0, "free": 0})
    assert world.placer.preempt(in_vain) == []
    helps = AskedVictims(raw, {"full": ("uid-a",)}, {"full": 0})
    assert world.placer.preempt(helps) == ["full"]


@pytest.mark.parametrize("victims", [("uid-nobody",), ("uid-a", "uid-nobody")])
def test_victims_that_are_not_known_are_left_to_the_scheduler(victims: tuple[str, ...]) -> None:
    world = world_with_a_late_eater()
    asked = AskedVictims(pod_json("new", memory="8Gi"), {"full": victims, "strange": ("x",)}, {"full": 0, "strange": 0})
    assert world.placer.preempt(asked) == ["full", "strange"]
    theirs = AskedVictims(pod_json("new", scheduler="x"), {"full": victims, "free": ()}, {"full": 0, "free": 0})
    assert world.placer.preempt(theirs) == ["full"]
