"""Pods that wait rather than overload a node: examples calculated by hand, a reference implementation, the patience."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.protocol.wire import PreemptionArgs
from extender.scoring.filter import added_overload, refused
from extender.settings import Limits, Settings
from tests.reference import extender as reference
from tests.worlds.placement import NO_CPU, NO_MEMORY, NOON_S, RESTLESS, World, class_json, node_json, pod_json

LIMITS = Limits(cpu_overload=0.01)


def world_with_restless_pod(limits: Limits = LIMITS, nodes: int = 1) -> World:
    """Nodes of 5 cores, the first with a restless pod."""
    world = World(Settings(limits=limits), class_json("restless", RESTLESS, [1.0] * 120))
    world.put(*(node_json(name, cpu="5") for name in "abc"[:nodes]))
    return world.put(pod_json("there", node="a", workload="restless"))


def added_to_nodes(world: World, pod: object) -> list[float]:
    """The overload that a pod would add to each node, as a share of its demand."""
    overload = refused(world.request(pod), Limits(cpu_overload=1e-9)).added_overload  # type: ignore[arg-type]
    assert overload is not None
    return overload.tolist()


def test_the_overload_added_next_to_a_restless_pod_is_as_calculated_by_hand() -> None:
    """2 ± 3 of 5 cores are used: no overload. With one core more, (3 - 5 + 3)^2 / 12 = 1/12 of a core is expected, with
    two 4/12. Two restless pods use 4 ± r, where r is the root of 18: (4 - 5 + r)^2 / 4r."""
    world, r = world_with_restless_pod(nodes=2), math.sqrt(18)
    assert added_to_nodes(world, pod_json("one", cpu="1")) == pytest.approx([1 / 12 / 1, 0.0], abs=1e-6)
    assert added_to_nodes(world, pod_json("two", cpu="2")) == pytest.approx([4 / 12 / 2, 0.0], abs=1e-6)
    another = (4 - 5 + r) ** 2 / (4 * r) / 2
    assert added_to_nodes(world, pod_json("another", workload="restless")) == pytest.approx([another, 0.0], abs=1e-6)


def test_a_node_is_refused_only_if_the_pod_would_add_more_than_the_limit() -> None:
    pod = pod_json("another", workload="restless")
    assert world_with_restless_pod(nodes=2).filter(pod) == {"a": NO_CPU}
    assert world_with_restless_pod(Limits(cpu_overload=0.5), nodes=2).filter(pod) == {}
    assert world_with_restless_pod(Limits(), nodes=2).filter(pod) == {}


def test_steady_pods_may_fill_a_node() -> None:
    world = world_with_restless_pod(nodes=2).put(pod_json("steady", cpu="4", node="b"))
    assert world.filter(pod_json("last", cpu="1")) == {"a": NO_CPU}
    assert world.filter(pod_json("more", cpu="2")) == {"a": NO_CPU, "b": NO_CPU}


def test_overload_that_every_empty_node_would_have_does_not_count() -> None:
    """With 6 of 5 cores, a sixth of the demand is overload even on an empty node, until there is a node of 6 cores."""
    world = world_with_restless_pod(nodes=3)
    assert world.filter(pod_json("large", cpu="6")) == {"a": NO_CPU}
    world.put(node_json("larger", cpu="6"))
    assert world.filter(pod_json("large", cpu="6")) == dict.fromkeys("abc", NO_CPU)


def test_more_is_tolerated_the_longer_a_pod_waits_and_everything_after_the_patience() -> None:
    """The pod adds 1/12 of its demand, see above; 0.01 ** (1 - t / 7200 s) reaches that after 3,315 s."""
    world, pod = world_with_restless_pod(), pod_json("one", cpu="1")
    world.put(pod)
    for waited_s, refusals in ((0.0, 1), (1000.0, 1), (3300.0, 1), (3330.0, 0)):
        world.clock.now_s = 1_800_000_000.0 + waited_s
        assert len(world.filter(pod)) == refusals, waited_s
    worst = pod_json("worst", workload="restless")
    world.put(pod_json("too", node="a", workload="restless"), worst)
    began_s = world.clock.now_s
    for waited_s, refusals in ((0.0, 1), (5000.0, 1), (7200.0, 0), (70_000.0, 0)):
        world.clock.now_s = began_s + waited_s
        assert len(world.filter(worst)) == refusals, waited_s


def test_waiting_starts_when_all_nodes_are_refused_and_ends_when_the_pod_is_bound() -> None:
    world, pod = world_with_restless_pod(nodes=2), pod_json("one", cpu="1")
    world.put(pod)
    uid, waiting = "uid-one", world.state.waiting
    assert world.filter(pod) == {"a": NO_CPU}
    world.clock.now_s += 60.0
    assert waiting.waited_s(uid) == 0.0, "node b was not refused"
    world.filter(pod, ["a"])
    world.clock.now_s += 60.0
    world.filter(pod, ["a"])
    assert waiting.waited_s(uid) == 60.0
    world.put(pod_json("one", cpu="1", node="b"))
    assert waiting.waited_s(uid) == 0.0
    world.filter(pod_json("never-seen", cpu="1"), ["a"])
    world.clock.now_s += 60.0
    assert waiting.waited_s("uid-never-seen") == 0.0, "its deletion would go unnoticed"


def test_a_pod_refused_before_a_restart_has_waited_since_then() -> None:
    """Known from the pod's condition, if the extender was the cause; what this process has seen takes precedence."""
    conditions = [{"type": "PodScheduled", "status": "False", "lastTransitionTime": "2027-01-15T07:00:00Z"}]
    since_s, message = NOON_S - 3600.0, f"0/2 nodes are available: 1 Insufficient cpu, 1 {NO_CPU}."
    refused_before, another = pod_json("one", cpu="1"), pod_json("another", cpu="1")
    refused_before["status"]["conditions"] = [{**conditions[0], "message": message}]
    another["status"]["conditions"] = [{**conditions[0], "message": "0/2 nodes are available: 2 Insufficient cpu."}]
    world = world_with_restless_pod().put(refused_before, another)
    assert world.read_pod(refused_before).refused_since_s == since_s
    waiting = world.state.waiting
    assert (waiting.waited_s("uid-one"), waiting.waited_s("uid-another")) == (3600.0, 0.0)
    assert world.filter(refused_before) == {}, "it adds 1/12, and by now 1/10 is tolerated"
    assert world.filter(another) == {"a": NO_CPU}
    world.clock.now_s += 60.0
    another["status"]["conditions"][0]["message"] = message
    world.put(another)
    assert waiting.waited_s("uid-another") == 60.0, "its earlier refusal was not by the extender"
    refused_before["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T20:00:00Z"
    world.state.drop_pod("uid-one")
    assert world.put(refused_before).state.waiting.waited_s("uid-one") == 0.0, "the clock was set back"


def test_memory_is_checked_before_cpu_and_guessed_use_refuses_nothing() -> None:
    world = world_with_restless_pod()
    assert world.filter(pod_json("both", cpu="2", memory="32Gi")) == {"a": NO_MEMORY}
    assert world.filter(pod_json("silent", cpu=None, memory=None)) == {}
    world.put(
        node_json("b", cpu="5"), pod_json("gpus", cpu=None, memory=None, node="b", limits={"nvidia.com/gpu": "2"})
    )
    assert world.request(pod_json("x")).snapshot.load[0].max() > 5.0, "the T-shirt size of the GPU pod"
    assert world.filter(pod_json("one", cpu="1"), ["b"]) == {}


def test_unknown_nodes_nodes_without_a_size_and_pods_that_use_nothing_are_not_refused() -> None:
    world = world_with_restless_pod().put(node_json("sizeless", "0", "0"))
    assert world.filter(pod_json("one", cpu="1"), ["never-heard-of", "sizeless"]) == {}
    assert world.filter(pod_json("idle", cpu="0"), ["a"]) == {}


def test_no_pod_is_evicted_from_a_node_that_would_still_be_refused() -> None:
    world = world_with_restless_pod().put(pod_json("small", cpu="100m", node="a"))
    raw = pod_json("another", workload="restless")
    assert world.placer.preempt(PreemptionArgs(raw, {"a": ("uid-small",)}, {"a": 0})) == {}
    assert list(world.placer.preempt(PreemptionArgs(raw, {"a": ("uid-nobody",)}, {"a": 0}))) == ["a"]


def test_a_pod_of_steady_use_is_not_evicted_from_a_node_where_the_others_are_restless() -> None:
    """Without it, 2 ± 3 of 5 cores are used as before, and one core more adds a twelfth of a core of overload."""
    world = world_with_restless_pod().put(pod_json("steady", cpu="2", node="a"))
    args = PreemptionArgs(pod_json("one", cpu="1"), {"a": ("uid-steady",)}, {"a": 0})
    assert world.placer.preempt(args) == {}


def test_the_decision_shows_the_added_overload_and_what_is_tolerated() -> None:
    world, pod = world_with_restless_pod(), pod_json("one", cpu="1")
    world.put(pod)
    world.filter(pod)
    world.clock.now_s += 2400.0
    world.filter(pod)
    decision = world.decisions.find("team", "one")
    assert decision is not None
    overload = decision.as_json()["cpuOverload"]
    assert overload == {"tolerated": 0.0464, "least": 0.0833, "most": 0.0833, "nodes": {"a": 0.0833}}


def test_the_variance_follows_pods_that_come_and_go() -> None:
    """It equals that of a world that never had the pods that went."""
    rng, world = np.random.default_rng(1), world_with_restless_pod(nodes=3)
    world.put(class_json("other", [1.0, 3.0, 0.5], [1.0] * 3))
    for number in range(12):
        workload = "restless" if number % 2 else "other"
        world.put(pod_json(f"p{number}", node="abc"[rng.integers(3)], workload=workload))
        world.clock.now_s += 100.0
    for number in range(10):
        world.state.drop_pod(f"uid-p{number}")
    world.state.drop_node("b")
    fresh = world_with_restless_pod(nodes=3)
    fresh.clock.now_s = world.clock.now_s
    fresh.state.drop_node("b")
    for uid, entry in world.state._placed.entries.items():
        if entry.node != "b" and uid != "uid-there":
            fresh.put(class_json("other", [1.0, 3.0, 0.5], [1.0] * 3))
            fresh.state._enter(entry)
    actual, expected = world.state.snapshot(), fresh.state.snapshot()
    for name in ("a", "c"):
        variance = actual.variance[:, actual.table.index[name]]
        assert variance == pytest.approx(expected.variance[:, expected.table.index[name]], abs=1e-6)
    assert actual.variance.shape == (4, 2), "ten minutes ahead"
    assert world_with_restless_pod(Limits()).state.snapshot().variance.shape == (0, 1), "not kept without a limit"


USE = st.floats(0.0, 10.0, width=32)
DEMAND = st.just(0.0) | st.floats(0.5, 10.0, width=32)


@given(st.data())
def test_the_added_overload_is_that_of_the_reference_implementation(draw: st.DataObject) -> None:
    cells, nodes = draw.draw(st.integers(1, 3)), draw.draw(st.integers(1, 3))
    of_nodes = st.lists(USE, min_size=cells * nodes, max_size=cells * nodes)
    load, variance = (np.array(draw.draw(of_nodes), np.float32).reshape(cells, nodes) for _ in range(2))
    of_pod = st.lists(DEMAND, min_size=cells, max_size=cells)
    demand, own_variance = np.array(draw.draw(of_pod), np.float32), np.array(draw.draw(of_pod), np.float32)
    sizes = draw.draw(st.lists(st.sampled_from([0.0, 2.0, 4.0, 16.0]), min_size=nodes, max_size=nodes))
    per_unit = np.array([1.0 / size if size else 0.0 for size in sizes], np.float32)
    shares = added_overload(load, variance, demand, own_variance, per_unit)
    expected = reference.added_overload(load.tolist(), variance.tolist(), demand.tolist(), own_variance.tolist(), sizes)
    assert shares == pytest.approx(expected, abs=1e-3)
