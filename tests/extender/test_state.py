"""The state: sums that agree with adding up anew, and an overlay that counts each placement once."""

from __future__ import annotations

import contextlib
import math
import threading
from typing import Any

import numpy as np
import pytest

from extender.pods.curves import MAX_CELLS, Grid, constant, resampled, total
from extender.pods.pod import Pod
from extender.settings import Settings
from extender.view.node_table import HORIZONS_KEPT
from extender.view.state import PodView
from placement_bench.worlds import GIB, NOON_S, World, class_json, node_json, pod_json, profile_json
from tests.reference import extender as reference


def cpu_on(world: World, node: str) -> list[float]:
    snapshot = world.state.snapshot()
    cores: list[float] = snapshot.load[0, :, snapshot.table.index[node]].tolist()
    return cores


def test_a_pod_counts_by_the_time_since_it_started() -> None:
    world = World(None, node_json("a"), class_json("ramp", [1.0, 2.0, 3.0], [1.0] * 3))
    world.put(pod_json("p", node="a", workload="ramp", started="2027-01-15T07:57:30Z"))
    assert cpu_on(world, "a")[:4] == [2.0, 3.0, 0.0, 0.0], "it started a cell ago, and should end as others did"
    world.clock.now_s += 150.0
    assert cpu_on(world, "a")[:2] == [3.0, 0.0]


def test_a_pod_that_outlives_the_runs_it_is_judged_by_goes_on_counting() -> None:
    world = World(None, node_json("a"), class_json("ramp", [1.0, 2.0], [1.0, 4.0]))
    world.put(pod_json("p", node="a", workload="ramp"))
    assert cpu_on(world, "a")[:3] == [1.0, 2.0, 0.0]
    world.clock.now_s += 300.0
    assert set(cpu_on(world, "a")) == {2.0}
    world.clock.now_s += 7200.0
    assert set(cpu_on(world, "a")) == {2.0}
    world.state.drop_pod("uid-p")
    assert set(cpu_on(world, "a")) == {0.0}


@pytest.mark.parametrize("step_s", [5.0 / 3.0, 1.1, 150.0])
def test_a_pod_weighed_again_does_not_grow_older_whatever_the_length_of_a_cell(step_s: float) -> None:
    world = World(Settings(grid=Grid(step_s)), node_json("a"), class_json("k", [1.0, 2.0, 3.0, 4.0], [1.0] * 4, step_s))
    world.put(pod_json("p", node="a", workload="k"))
    for runs in range(5):
        again = class_json("k", [1.0, 2.0, 3.0, 4.0], [1.0] * 4, step_s)
        again["status"]["containers"][0]["demand"]["runs"] = runs
        world.put(again)
    assert cpu_on(world, "a")[:5] == [1.0, 2.0, 3.0, 4.0, 0.0]


def test_memory_is_given_up_later_than_cpu_and_what_is_requested_never() -> None:
    curve = resampled(150.0, [1.0, 2.0, 1.0, 1.0], [5.0, 6.0, 7.0, 8.0], Grid())
    assert curve is not None
    assert curve.expected(2, 6).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [7.0, 8.0, 8.0, 8.0, 0.0, 0.0]]
    assert curve.expected(-1, 2).tolist() == [[1.0, 1.0], [5.0, 5.0]]
    assert curve.over(3, 3).tolist() == [[1.0] * 3, [8.0] * 3]
    assert constant(1.0, 2.0).expected(5, 2).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    both = total([curve, constant(1.0, 0.0)]).capped(2.0, 7.0)
    assert both.expected(3, 4).tolist() == [[2.0, 0.0, 0.0, 0.0], [7.0, 7.0, 7.0, 0.0]], "they end together"


def test_a_curve_longer_than_is_kept_is_not_taken_to_end() -> None:
    curve = resampled(600.0, [1.0] * 2000, [1.0] * 2000, Grid())
    assert curve is not None
    assert curve.length == MAX_CELLS
    assert curve.expected(MAX_CELLS, 1).tolist() == [[1.0], [1.0]]


def test_a_placement_just_advised_counts_at_once_and_only_once_when_it_is_seen() -> None:
    world = World(None, node_json("a"), node_json("b"))
    first = world.place(pod_json("p", cpu="2"))
    assert cpu_on(world, first)[0] == 2.0
    world.put(pod_json("p", cpu="2", node=first))
    assert cpu_on(world, first)[0] == 2.0
    assert world.state.advised == 0


def test_five_pods_asked_about_in_a_burst_are_not_all_sent_to_the_same_node() -> None:
    world = World(None, *(node_json(f"n{number}") for number in range(5)))
    chosen = [world.place(pod_json(f"p{number}", cpu="4")) for number in range(5)]
    assert sorted(chosen) == ["n0", "n1", "n2", "n3", "n4"]


def test_pods_asked_about_at_the_same_moment_are_not_sent_to_the_same_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schedulers: neither judges on what it saw before the other was advised."""
    world = World(None, *(node_json(f"n{number}") for number in range(2)))
    look, both = world.state.view_of, threading.Barrier(2)

    def looks_and_waits_for_the_other(pod: Pod) -> PodView:
        seen = look(pod)
        with contextlib.suppress(threading.BrokenBarrierError):  # it never comes, since it has to wait
            both.wait(0.1)
        return seen

    monkeypatch.setattr(world.state, "view_of", looks_and_waits_for_the_other)
    pods = [pod_json(f"p{number}", cpu="6") for number in range(2)]
    threads = [threading.Thread(target=world.prioritize, args=(pod, ["n0", "n1"])) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decisions = [world.decisions.of(pod["metadata"]["uid"]) for pod in pods]
    assert {decision.favourite for decision in decisions if decision is not None} == {"n0", "n1"}


def test_a_placement_elsewhere_than_advised_moves_and_one_never_seen_is_dropped_in_time() -> None:
    world = World(None, node_json("a"), node_json("b"))
    advised = world.place(pod_json("p"))
    other = "b" if advised == "a" else "a"
    world.put(pod_json("p", node=other))
    assert (cpu_on(world, advised)[0], cpu_on(world, other)[0]) == (0.0, 1.0)
    assert world.decisions.of("uid-p").outcome == "outvoted by the scheduler's own scores"  # type: ignore[union-attr]
    late = world.place(pod_json("q"))
    before = cpu_on(world, late)[0]
    world.clock.now_s += world.settings.hold_s + 1.0
    assert cpu_on(world, late)[0] == before - 1.0, "no watch has shown it, and none would say that it was deleted"


def waiting(name: str, version: str, refusal: str = "", node: str = "") -> dict[str, Any]:
    """A pod of 3 of a node's 8 cores, in one of its versions."""
    pod = pod_json(name, cpu="3", node=node)
    pod["metadata"]["resourceVersion"] = version
    if refusal:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": refusal}]
    return pod


def test_what_was_advised_counts_as_long_as_the_pod_waits_for_its_volume() -> None:
    """Binding takes minutes then: ten of them, and the next pod still goes elsewhere."""
    world = World(None, node_json("a"), node_json("b")).put(waiting("p", "5"))
    advised = world.place(waiting("p", "5"))
    world.clock.now_s += 600.0
    assert cpu_on(world, advised)[0] == 3.0
    assert world.place(pod_json("q", cpu="3")) != advised
    world.put(waiting("p", "6", node=advised))
    assert (cpu_on(world, advised)[0], world.state.advised) == (3.0, 1)


@pytest.mark.parametrize("seen_first", [True, False])
def test_what_was_advised_ends_when_the_pod_is_refused_after_all_or_gone(seen_first: bool) -> None:
    """By a plugin that speaks after us, and in a version later than that which was asked about."""
    world = World(None, node_json("a"), node_json("b"))
    if seen_first:
        world.put(waiting("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    advised = world.place(waiting("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    world.put(waiting("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    world.put(waiting("p", "4", "0/2 nodes are available: 2 other things."))
    world.clock.now_s += 600.0
    assert cpu_on(world, advised)[0] == 3.0, "that was before"
    world.put(waiting("p", "6", "running Reserve plugin: the volume is elsewhere"))
    assert cpu_on(world, advised)[0] == 0.0
    again = world.place(waiting("p", "6", "running Reserve plugin: the volume is elsewhere"))
    world.state.drop_pod("uid-p")
    assert cpu_on(world, again)[0] == 0.0


def test_a_pod_asked_about_again_was_not_placed() -> None:
    world = World(None, node_json("a"), node_json("b"))
    advised = world.place(pod_json("p"))
    world.filter(pod_json("p"))
    assert cpu_on(world, advised)[0] == 0.0
    for _ in range(5):
        world.place(pod_json("p"))
    assert cpu_on(world, "a")[0] + cpu_on(world, "b")[0] == 1.0
    world.state.drop_pod("uid-p")
    assert cpu_on(world, "a")[0] + cpu_on(world, "b")[0] == 0.0


def test_a_scheduler_that_asks_late_about_a_bound_pod_does_not_move_it() -> None:
    world = World(None, node_json("a"), node_json("b")).put(pod_json("p", node="a"))
    world.place(pod_json("p"))
    assert (cpu_on(world, "a")[0], cpu_on(world, "b")[0]) == (1.0, 0.0)


def test_a_finished_pod_needs_nothing_and_a_node_that_comes_back_has_its_pods() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"), pod_json("q", node="a"))
    world.put(pod_json("p", node="a", phase="Succeeded"))
    assert cpu_on(world, "a")[0] == 1.0
    world.state.drop_node("a")
    assert world.names == []
    world.put(node_json("a"))
    assert cpu_on(world, "a")[0] == 1.0


def test_pods_seen_before_their_node_count_when_it_comes() -> None:
    world = World(None, node_json("other")).put(pod_json("p", node="late"))
    assert cpu_on(world.put(node_json("late")), "late")[0] == 1.0


def test_a_profile_that_comes_changes_and_goes_is_followed() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a", workload="k"))
    assert cpu_on(world, "a")[0] == 1.0
    profile = class_json("k", [3.0], [1.0])
    assert cpu_on(world.put(profile), "a")[0] == 3.0
    assert cpu_on(world.put(class_json("k", [5.0], [1.0])), "a")[0] == 5.0
    world.put(profile_json("vpa", {"uid-p": "converged"}))
    snapshot = world.state.snapshot()
    assert snapshot.categories[:, snapshot.table.index["a"]].tolist() == [0, 0, 1]
    world.state.drop_profile(world.read_profile(profile_json("vpa", {})))
    world.state.drop_profile(world.read_profile(profile))
    assert cpu_on(world, "a")[0] == 1.0
    assert world.state.snapshot().categories[0].sum() == 1


@pytest.mark.parametrize("step", [1e9, -1e9, 3600.0, -150.0])
def test_clock_steps_neither_lose_nor_double_a_pod(step: float) -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    world.clock.now_s += step
    assert set(cpu_on(world, "a")) == {1.0}


def test_a_snapshot_does_not_change_once_made() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    before = world.state.snapshot()
    assert world.state.snapshot() is before
    world.put(pod_json("q", node="a"), node_json("b"))
    assert before.load[0, 0, before.table.index["a"]] == 1.0
    assert "b" not in before.table.index
    assert world.state.snapshot() is not before


def test_sums_kept_over_a_thousand_changes_are_those_of_adding_up_anew(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world, grid = World(), Grid()
    curves = {f"k{kind}": (rng.uniform(0, 4, 40).tolist(), rng.uniform(0, 8, 40).tolist()) for kind in range(3)}
    world.put(*(class_json(kind, *told) for kind, told in curves.items()))
    residents: dict[str, reference.Resident] = {}
    for number in range(1000):
        what, node = rng.integers(10), f"n{rng.integers(100)}"
        if what < 2:
            world.put(node_json(node))
        elif what < 3:
            world.state.drop_node(node)
        elif what < 8:
            kind = f"k{rng.integers(3)}"
            name = f"p{number}"
            world.put(pod_json(name, node=node, workload=kind))
            cpu, memory = curves[kind]
            start = grid.cell(world.clock.now_s)
            residents[f"uid-{name}"] = reference.Resident(
                node, cpu, [gib * GIB for gib in memory], start, never_ends=False
            )
        elif what < 9 and residents:
            uid = list(residents)[int(rng.integers(len(residents)))]
            world.state.drop_pod(uid)
            del residents[uid]
        else:
            world.clock.now_s += float(rng.uniform(0, HORIZONS_KEPT * 400))
        if not number % 7:
            world.state.snapshot()  # the next one is made from this one and from what has changed
    snapshot = world.state.snapshot()
    assert len(snapshot.table.index) > 64, "the arrays have grown"
    for node, place in snapshot.table.index.items():
        wanted = reference.load_of(node, list(residents.values()), snapshot.first_cell, grid.cells)
        assert np.allclose(snapshot.load[:, :, place].T, wanted, rtol=1e-5, atol=1e-3), node


@pytest.mark.parametrize("step_s", [15.0, 150.0, 400.0, 37.5, 149.0])
def test_a_demand_curve_on_cells_is_that_of_its_slow_twin(step_s: float) -> None:
    rng = np.random.default_rng(1)
    cpu, memory = rng.uniform(0, 8, 60).tolist(), rng.uniform(0, 1e10, 60).tolist()
    curve = resampled(step_s, cpu, memory, Grid())
    assert curve is not None
    assert np.allclose(curve.values.T, reference.resampled(step_s, cpu, memory, 150.0))


@pytest.mark.parametrize("bad", [(0.0, [1.0], [1.0]), (math.nan, [1.0], [1.0]), (15.0, [], []), (15.0, [-1.0], [1.0]),
                                 (15.0, [math.inf], [1.0]), (15.0, [1.0], [math.nan])])  # fmt: skip
def test_a_demand_curve_that_is_nonsense_is_none(bad: tuple[float, list[float], list[float]]) -> None:
    assert resampled(*bad, Grid()) is None


def test_a_pod_seen_where_it_was_advised_to_go_changes_nothing_and_anything_else_does() -> None:
    world = World(None, node_json("a"), node_json("b"))
    advised = world.place(pod_json("p"))
    before = world.state.snapshot()
    world.put(pod_json("p", node=advised))
    assert world.state.snapshot() is before
    assert world.state.advised == 0
    world.put(pod_json("p", node=advised, cpu="2"))
    assert cpu_on(world, advised)[0] == 2.0
    before = world.state.snapshot()
    world.put(class_json("k", [3.0], [1.0]))
    assert world.state.snapshot() is not before, "pods not placed yet may be judged otherwise now"


def test_a_node_that_goes_leaves_no_gap_and_the_others_keep_what_is_theirs() -> None:
    world = World(None, *(node_json(name, cpu=cpu) for name, cpu in (("a", "1"), ("b", "2"), ("c", "4"))))
    world.put(pod_json("p", node="b", cpu="1"), pod_json("q", node="c", cpu="3"))
    world.state.drop_node("a")
    snapshot = world.state.snapshot()
    assert sorted(snapshot.table.index.values()) == [0, 1]
    assert [snapshot.table.names[place] for place in snapshot.table.index.values()] == list(snapshot.table.index)
    assert {name: snapshot.allocatable[0, place] for name, place in snapshot.table.index.items()} == {
        "b": 2.0,
        "c": 4.0,
    }
    assert (cpu_on(world, "b")[0], cpu_on(world, "c")[0]) == (1.0, 3.0)
    world.put(node_json("a"))
    assert cpu_on(world, "a")[0] == 0.0


def test_the_default_hold_outlasts_a_burst() -> None:
    assert Settings().hold_s >= 5.0
    assert Grid().cell(NOON_S) * 150.0 == NOON_S


def test_nodes_are_found_by_name_and_all_of_them_are_everywhere() -> None:
    snapshot = World(None, node_json("a"), node_json("b"), node_json("c")).state.snapshot()
    places, unknown = snapshot.table.find(["c", "new", "a"])
    assert ({snapshot.table.names[place] for place in places}, len(places), unknown) == ({"c", "a"}, 2, ["new"])
    assert snapshot.table.find(["c", "a", "b"])[0] is snapshot.table.everywhere
    assert snapshot.table.find([])[0].size == 0


def test_a_node_that_says_again_what_it_said_or_changes_its_size_leaves_the_names_as_they_are() -> None:
    world = World(None, node_json("a"), node_json("b"))
    before = world.state.snapshot()
    world.put(node_json("a"))
    assert world.state.snapshot().table.names is before.table.names
    world.put(node_json("a", cpu="4"), node_json("b", cpu="2"))
    after = world.state.snapshot()
    assert after.table.names is before.table.names
    assert after.table.index is before.table.index
    assert after.allocatable[0].tolist() == [4.0, 2.0]
    assert before.allocatable[0].tolist() == [8.0, 8.0]
    world.put(node_json("c"))
    assert world.state.snapshot().table.names is not before.table.names
