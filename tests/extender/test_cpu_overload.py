"""Pods that wait rather than overload a node: worked examples by hand, the slow twin, and the end of all waiting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.protocol.wire import PreemptionArgs
from extender.scoring.filter import added_overload, refused
from extender.settings import Limits, Settings
from placement_bench.worlds import NO_CPU, NO_MEMORY, NOON_S, RESTLESS, World, class_json, node_json, pod_json
from tests.reference import extender as twins

LIMITS = Limits(cpu_overload=0.01)


def world(limits: Limits = LIMITS, nodes: int = 1) -> World:
    """Nodes of 5 cores; on the first a restless pod."""
    made = World(Settings(limits=limits), class_json("restless", RESTLESS, [1.0] * 120))
    made.put(*(node_json(name, cpu="5") for name in "abc"[:nodes]))
    return made.put(pod_json("there", node="a", workload="restless"))


def added(made: World, pod: object) -> list[float]:
    """What a pod would add to the nodes by their names, as shares of its demand."""
    found = refused(made.request(pod), Limits(cpu_overload=1e-9)).added_overload  # type: ignore[arg-type]
    assert found is not None
    return found.tolist()


def test_what_a_pod_adds_beside_a_restless_one_is_what_was_worked_out_by_hand() -> None:
    """2 of 5 cores are used, give or take 3: none above. With one core more (3 - 5 + 3)^2 / 12 = 1/12 of a core is
    expected to be, with two 4/12. Two restless pods use 4 give or take the root of 18, r: (4 - 5 + r)^2 / 4r."""
    made, reach = world(nodes=2), math.sqrt(18)
    assert added(made, pod_json("one", cpu="1")) == pytest.approx([1 / 12 / 1, 0.0], abs=1e-6)
    assert added(made, pod_json("two", cpu="2")) == pytest.approx([4 / 12 / 2, 0.0], abs=1e-6)
    another = (4 - 5 + reach) ** 2 / (4 * reach) / 2
    assert added(made, pod_json("another", workload="restless")) == pytest.approx([another, 0.0], abs=1e-6)


def test_a_pod_is_refused_where_it_would_add_too_much_and_only_when_that_was_asked_for() -> None:
    pod = pod_json("another", workload="restless")
    assert world(nodes=2).filter(pod) == {"a": NO_CPU}
    assert world(Limits(cpu_overload=0.5), nodes=2).filter(pod) == {}
    assert world(Limits(), nodes=2).filter(pod) == {}


def test_a_steady_pod_beside_steady_ones_may_fill_a_node() -> None:
    made = world(nodes=2).put(pod_json("steady", cpu="4", node="b"))
    assert made.filter(pod_json("last", cpu="1")) == {"a": NO_CPU}
    assert made.filter(pod_json("more", cpu="2")) == {"a": NO_CPU, "b": NO_CPU}


def test_what_no_node_could_spare_a_pod_is_not_held_against_it() -> None:
    """6 of 5 cores: a sixth of it is above on any node that is empty; until there is one of 6."""
    made = world(nodes=3)
    assert made.filter(pod_json("large", cpu="6")) == {"a": NO_CPU}
    made.put(node_json("larger", cpu="6"))
    assert made.filter(pod_json("large", cpu="6")) == dict.fromkeys("abc", NO_CPU)


def test_the_longer_a_pod_waits_the_more_is_tolerated_and_no_pod_waits_longer_than_it_was_said() -> None:
    """A twelfth of its demand, see above: 0.01 to the power of 1 - t / 7200 s is that after 3,315 s."""
    made, pod = world(), pod_json("one", cpu="1")
    made.put(pod)
    for waited_s, refusals in ((0.0, 1), (1000.0, 1), (3300.0, 1), (3330.0, 0)):
        made.clock.now_s = 1_800_000_000.0 + waited_s
        assert len(made.filter(pod)) == refusals, waited_s
    worst = pod_json("worst", workload="restless")
    made.put(pod_json("too", node="a", workload="restless"), worst)
    began_s = made.clock.now_s
    for waited_s, refusals in ((0.0, 1), (5000.0, 1), (7200.0, 0), (70_000.0, 0)):
        made.clock.now_s = began_s + waited_s
        assert len(made.filter(worst)) == refusals, waited_s


def test_waiting_counts_from_the_first_refusal_of_all_nodes_and_ends_with_the_pod() -> None:
    made, pod = world(nodes=2), pod_json("one", cpu="1")
    made.put(pod)
    uid, waiting = "uid-one", made.state.waiting
    assert made.filter(pod) == {"a": NO_CPU}
    made.clock.now_s += 60.0
    assert waiting.waited_s(uid) == 0.0, "it had a node to go to"
    made.filter(pod, ["a"])
    made.clock.now_s += 60.0
    made.filter(pod, ["a"])
    assert waiting.waited_s(uid) == 60.0
    made.put(pod_json("one", cpu="1", node="b"))
    assert waiting.waited_s(uid) == 0.0
    made.filter(pod_json("never-seen", cpu="1"), ["a"])
    made.clock.now_s += 60.0
    assert waiting.waited_s("uid-never-seen") == 0.0, "nobody would ever say that it is gone"


def test_who_was_refused_before_a_restart_has_waited_since_then() -> None:
    """By the pod's own condition, if it was us who refused the last nodes; what is seen here counts more."""
    conditions = [{"type": "PodScheduled", "status": "False", "lastTransitionTime": "2027-01-15T07:00:00Z"}]
    since_s, said = NOON_S - 3600.0, f"0/2 nodes are available: 1 Insufficient cpu, 1 {NO_CPU}."
    refused_before, another = pod_json("one", cpu="1"), pod_json("another", cpu="1")
    refused_before["status"]["conditions"] = [{**conditions[0], "message": said}]
    another["status"]["conditions"] = [{**conditions[0], "message": "0/2 nodes are available: 2 Insufficient cpu."}]
    made = world().put(refused_before, another)
    assert made.read_pod(refused_before).refused_since_s == since_s
    waiting = made.state.waiting
    assert (waiting.waited_s("uid-one"), waiting.waited_s("uid-another")) == (3600.0, 0.0)
    assert made.filter(refused_before) == {}, "a twelfth, of a tenth that is tolerated by now"
    assert made.filter(another) == {"a": NO_CPU}
    made.clock.now_s += 60.0
    another["status"]["conditions"][0]["message"] = said
    made.put(another)
    assert waiting.waited_s("uid-another") == 60.0, "what it was refused for before was not ours"
    refused_before["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T20:00:00Z"
    made.state.drop_pod("uid-one")
    assert made.put(refused_before).state.waiting.waited_s("uid-one") == 0.0, "a clock was set back"


def test_memory_goes_first_and_what_was_guessed_refuses_nothing() -> None:
    made = world()
    assert made.filter(pod_json("both", cpu="2", memory="32Gi")) == {"a": NO_MEMORY}
    assert made.filter(pod_json("silent", cpu=None, memory=None)) == {}
    made.put(node_json("b", cpu="5"), pod_json("gpus", cpu=None, memory=None, node="b", limits={"nvidia.com/gpu": "2"}))
    assert made.request(pod_json("x")).snapshot.load[0].max() > 5.0, "by its T-shirt size"
    assert made.filter(pod_json("one", cpu="1"), ["b"]) == {}


def test_unknown_nodes_nodes_without_a_size_and_pods_that_use_nothing_are_let_through() -> None:
    made = world().put(node_json("sizeless", "0", "0"))
    assert made.filter(pod_json("one", cpu="1"), ["never-heard-of", "sizeless"]) == {}
    assert made.filter(pod_json("idle", cpu="0"), ["a"]) == {}


def test_no_pod_is_evicted_where_the_pod_would_be_refused_all_the_same() -> None:
    made = world().put(pod_json("small", cpu="100m", node="a"))
    raw = pod_json("another", workload="restless")
    assert made.placer.preempt(PreemptionArgs(raw, {"a": ("uid-small",)}, {"a": 0})) == {}
    assert list(made.placer.preempt(PreemptionArgs(raw, {"a": ("uid-nobody",)}, {"a": 0}))) == ["a"]


def test_the_decision_says_how_much_it_would_have_been_and_what_is_tolerated() -> None:
    made, pod = world(), pod_json("one", cpu="1")
    made.put(pod)
    made.filter(pod)
    made.clock.now_s += 2400.0
    made.filter(pod)
    decision = made.decisions.find("team", "one")
    assert decision is not None
    overload = decision.as_json()["cpuOverload"]
    assert overload == {"tolerated": 0.0464, "least": 0.0833, "most": 0.0833, "nodes": {"a": 0.0833}}


def test_how_uncertain_load_is_goes_with_the_pods_as_the_load_does() -> None:
    """Whatever came and went: the same as in a world that never knew those who went."""
    chance, made = np.random.default_rng(1), world(nodes=3)
    made.put(class_json("other", [1.0, 3.0, 0.5], [1.0] * 3))
    for number in range(12):
        workload = "restless" if number % 2 else "other"
        made.put(pod_json(f"p{number}", node="abc"[chance.integers(3)], workload=workload))
        made.clock.now_s += 100.0
    for number in range(10):
        made.state.drop_pod(f"uid-p{number}")
    made.state.drop_node("b")
    plain = world(nodes=3)
    plain.clock.now_s = made.clock.now_s
    plain.state.drop_node("b")
    for uid, entry in made.state._placed.entries.items():
        if entry.node != "b" and uid != "uid-there":
            plain.put(class_json("other", [1.0, 3.0, 0.5], [1.0] * 3))
            plain.state._enter(entry)
    found, wanted = made.state.snapshot(), plain.state.snapshot()
    for name in ("a", "c"):
        held = found.variance[:, found.table.index[name]]
        assert held == pytest.approx(wanted.variance[:, wanted.table.index[name]], abs=1e-6)
    assert found.variance.shape == (4, 2), "ten minutes ahead"
    assert world(Limits()).state.snapshot().variance.shape == (0, 1), "it is nobody's business"


USE = st.floats(0.0, 10.0, width=32)
DEMAND = st.just(0.0) | st.floats(0.5, 10.0, width=32)


@given(st.data())
def test_the_overload_added_is_that_of_the_slow_twin(draw: st.DataObject) -> None:
    cells, nodes = draw.draw(st.integers(1, 3)), draw.draw(st.integers(1, 3))
    some = st.lists(USE, min_size=cells * nodes, max_size=cells * nodes)
    load, variance = (np.array(draw.draw(some), np.float32).reshape(cells, nodes) for _ in range(2))
    own = st.lists(DEMAND, min_size=cells, max_size=cells)
    demand, doubt = np.array(draw.draw(own), np.float32), np.array(draw.draw(own), np.float32)
    sizes = draw.draw(st.lists(st.sampled_from([0.0, 2.0, 4.0, 16.0]), min_size=nodes, max_size=nodes))
    per_unit = np.array([1.0 / size if size else 0.0 for size in sizes], np.float32)
    shares = added_overload(load, variance, demand, doubt, per_unit)
    wanted = twins.added_overload(load.tolist(), variance.tolist(), demand.tolist(), doubt.tolist(), sizes)
    assert shares == pytest.approx(wanted, abs=1e-3)
