"""The state: sums that agree with adding up anew, and an overlay that counts each placement once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from extender.curves import resampled
from extender.grid import Grid
from extender.node_table import SPAN
from extender.settings import Settings
from tests.extender.worlds import GIB, NOON_S, World, class_json, node_json, pod_json, profile_json
from tests.reference import extender as reference


def cpu_on(world: World, node: str) -> list[float]:
    snapshot = world.state.snapshot()
    cores: list[float] = snapshot.load[0, :, snapshot.index[node]].tolist()
    return cores


def test_a_pod_counts_by_the_time_since_it_started() -> None:
    world = World(None, node_json("a"), class_json("ramp", [1.0, 2.0, 3.0], [1.0] * 3))
    world.put(pod_json("p", node="a", workload="ramp", started="2027-01-15T07:57:30Z"))
    assert cpu_on(world, "a")[:3] == [2.0, 3.0, 3.0], "it started a cell ago; after its last cell that holds"
    world.clock.now_s += 150.0
    assert cpu_on(world, "a")[:2] == [3.0, 3.0]


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
    assert cpu_on(world, late)[0] == before - 1.0


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
    assert world.state.snapshot().pods.sum() == 1


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
    assert snapshot.categories[:, snapshot.index["a"]].tolist() == [0, 0, 1]
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
    assert before.load[0, 0, before.index["a"]] == 1.0
    assert "b" not in before.index
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
            residents[f"uid-{name}"] = reference.Resident(node, cpu, [gib * GIB for gib in memory], start)
        elif what < 9 and residents:
            uid = list(residents)[int(rng.integers(len(residents)))]
            world.state.drop_pod(uid)
            del residents[uid]
        else:
            world.clock.now_s += float(rng.uniform(0, SPAN * 400))
    snapshot = world.state.snapshot()
    assert len(snapshot.index) > 64, "the arrays have grown"
    for node, place in snapshot.index.items():
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


def test_the_default_hold_outlasts_a_burst() -> None:
    assert Settings().hold_s >= 5.0
    assert Grid().cell(NOON_S) * 150.0 == NOON_S
