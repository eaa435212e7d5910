"""The state of the cluster: incremental sums that equal those from scratch, and advice that counts each pod once."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from extender.pods.curves import LATER, MAX_CELLS, Grid, constant, resampled, total
from extender.pods.pod import Pod
from extender.settings import Limits, Settings
from extender.view.node_table import HORIZONS_KEPT, Entry, NodeTable
from extender.view.snapshot import Snapshot
from tests.reference import extender as reference
from tests.worlds.placement import GIB, NOON_S, World, class_json, node_json, pod_json, profile_json


def cpu_on(world: World, node: str) -> list[float]:
    snapshot = world.state.snapshot()
    cores: list[float] = snapshot.load[0, :, snapshot.table.index[node]].tolist()
    return cores


def test_the_expected_use_of_a_pod_depends_on_the_time_since_its_start() -> None:
    world = World(None, node_json("a"), class_json("ramp", [1.0, 2.0, 3.0], [1.0] * 3))
    world.put(pod_json("p", node="a", workload="ramp", started="2027-01-15T07:57:30Z"))
    assert cpu_on(world, "a")[:4] == [2.0, 3.0, 0.0, 0.0], "started a cell ago, and expected to end as earlier runs"
    world.clock.now_s += 150.0
    assert cpu_on(world, "a")[:2] == [3.0, 0.0]


def test_a_pod_that_outlives_all_earlier_runs_continues_to_count() -> None:
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
def test_recounting_a_pod_does_not_change_its_age_at_any_cell_length(step_s: float) -> None:
    world = World(Settings(grid=Grid(step_s)), node_json("a"), class_json("k", [1.0, 2.0, 3.0, 4.0], [1.0] * 4, step_s))
    world.put(pod_json("p", node="a", workload="k"))
    for runs in range(5):
        profile = class_json("k", [1.0, 2.0, 3.0, 4.0], [1.0] * 4, step_s)
        profile["status"]["containers"][0]["demand"]["runs"] = runs
        world.put(profile)
    assert cpu_on(world, "a")[:5] == [1.0, 2.0, 3.0, 4.0, 0.0]


def test_expected_memory_ends_later_than_cpu_and_a_constant_curve_never() -> None:
    curve = resampled(150.0, [1.0, 2.0, 1.0, 1.0], [5.0, 6.0, 7.0, 8.0], Grid())
    assert curve is not None
    assert curve.expected(2, 6).tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [7.0, 8.0, 8.0, 8.0, 0.0, 0.0]]
    assert curve.expected(-1, 2).tolist() == [[1.0, 1.0], [5.0, 5.0]]
    assert curve.over(3, 3).tolist() == [[1.0] * 3, [8.0] * 3]
    assert constant(1.0, 2.0).expected(5, 2).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    both = total([curve, constant(1.0, 0.0)]).capped(2.0, 7.0)
    assert both.expected(3, 4).tolist() == [[2.0, 0.0, 0.0, 0.0], [7.0, 7.0, 7.0, 0.0]], "they end together"


def test_a_curve_cut_at_the_maximum_length_does_not_end() -> None:
    curve = resampled(600.0, [1.0] * 2000, [1.0] * 2000, Grid())
    assert curve is not None
    assert curve.length == MAX_CELLS
    assert curve.expected(MAX_CELLS, 1).tolist() == [[1.0], [1.0]]


def test_advice_counts_at_once_and_not_twice_when_the_pod_is_seen() -> None:
    world = World(None, node_json("a"), node_json("b"))
    first = world.place(pod_json("p", cpu="2"))
    assert cpu_on(world, first)[0] == 2.0
    world.put(pod_json("p", cpu="2", node=first))
    assert cpu_on(world, first)[0] == 2.0
    assert world.state.advised == 0


def test_five_pods_in_a_burst_are_advised_to_five_nodes() -> None:
    world = World(None, *(node_json(f"n{number}") for number in range(5)))
    chosen = [world.place(pod_json(f"p{number}", cpu="4")) for number in range(5)]
    assert sorted(chosen) == ["n0", "n1", "n2", "n3", "n4"]


def test_pods_scored_at_the_same_moment_are_not_advised_to_the_same_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schedulers: the second call works on a view that includes the advice of the first."""
    world = World(None, *(node_json(f"n{number}") for number in range(2)))
    view_of, barrier = world.state.view_of, threading.Barrier(2)

    def view_of_then_wait(pod: Pod) -> Any:
        view = view_of(pod)
        with contextlib.suppress(threading.BrokenBarrierError):  # the other never comes, as it has to wait
            barrier.wait(0.1)
        return view

    monkeypatch.setattr(world.state, "view_of", view_of_then_wait)
    pods = [pod_json(f"p{number}", cpu="6") for number in range(2)]
    threads = [threading.Thread(target=world.prioritize, args=(pod, ["n0", "n1"])) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decisions = [world.decisions.of(pod["metadata"]["uid"]) for pod in pods]
    assert {decision.favourite for decision in decisions if decision is not None} == {"n0", "n1"}


def test_a_pod_counts_where_it_was_bound_and_advice_for_one_never_seen_expires() -> None:
    world = World(None, node_json("a"), node_json("b"))
    advised = world.place(pod_json("p"))
    other = "b" if advised == "a" else "a"
    world.put(pod_json("p", node=other))
    assert (cpu_on(world, advised)[0], cpu_on(world, other)[0]) == (0.0, 1.0)
    assert world.decisions.of("uid-p").outcome == "outvoted by the scheduler's own scores"  # type: ignore[union-attr]
    late = world.place(pod_json("q"))
    before = cpu_on(world, late)[0]
    world.clock.now_s += world.settings.hold_s + 1.0
    assert cpu_on(world, late)[0] == before - 1.0, "its deletion would go unnoticed"


def pending_pod(name: str, version: str, refusal: str = "", node: str = "") -> dict[str, Any]:
    """A version of a pod that requests 3 of a node's 8 cores."""
    pod = pod_json(name, cpu="3", node=node)
    pod["metadata"]["resourceVersion"] = version
    if refusal:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": refusal}]
    return pod


def test_advice_counts_as_long_as_the_pod_waits_for_its_volume() -> None:
    """Binding has taken ten minutes, and the next pod still goes elsewhere."""
    world = World(None, node_json("a"), node_json("b")).put(pending_pod("p", "5"))
    advised = world.place(pending_pod("p", "5"))
    world.clock.now_s += 600.0
    assert cpu_on(world, advised)[0] == 3.0
    assert world.place(pod_json("q", cpu="3")) != advised
    world.put(pending_pod("p", "6", node=advised))
    assert (cpu_on(world, advised)[0], world.state.advised) == (3.0, 1)


@pytest.mark.parametrize("seen_first", [True, False])
def test_advice_ends_when_the_pod_is_refused_after_it_or_deleted(seen_first: bool) -> None:
    """Refused by a plugin that runs after us, in a later version than that which the scheduler asked about."""
    world = World(None, node_json("a"), node_json("b"))
    if seen_first:
        world.put(pending_pod("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    advised = world.place(pending_pod("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    world.put(pending_pod("p", "5", "0/2 nodes are available: 2 Insufficient cpu."))
    world.put(pending_pod("p", "4", "0/2 nodes are available: 2 other things."))
    world.clock.now_s += 600.0
    assert cpu_on(world, advised)[0] == 3.0, "the refusal is older than the advice"
    world.put(pending_pod("p", "6", "running Reserve plugin: the volume is elsewhere"))
    assert cpu_on(world, advised)[0] == 0.0
    again = world.place(pending_pod("p", "6", "running Reserve plugin: the volume is elsewhere"))
    world.state.drop_pod("uid-p")
    assert cpu_on(world, again)[0] == 0.0


def test_advice_ends_when_the_scheduler_asks_about_the_pod_again() -> None:
    world = World(None, node_json("a"), node_json("b"))
    advised = world.place(pod_json("p"))
    world.filter(pod_json("p"))
    assert cpu_on(world, advised)[0] == 0.0
    for _ in range(5):
        world.place(pod_json("p"))
    assert cpu_on(world, "a")[0] + cpu_on(world, "b")[0] == 1.0
    world.state.drop_pod("uid-p")
    assert cpu_on(world, "a")[0] + cpu_on(world, "b")[0] == 0.0


def test_a_late_call_about_a_bound_pod_does_not_move_it() -> None:
    world = World(None, node_json("a"), node_json("b")).put(pod_json("p", node="a"))
    world.place(pod_json("p"))
    assert (cpu_on(world, "a")[0], cpu_on(world, "b")[0]) == (1.0, 0.0)


def test_a_finished_pod_does_not_count_and_a_node_that_comes_back_has_its_pods() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"), pod_json("q", node="a"))
    world.put(pod_json("p", node="a", phase="Succeeded"))
    assert cpu_on(world, "a")[0] == 1.0
    world.state.drop_node("a")
    assert world.names == []
    world.put(node_json("a"))
    assert cpu_on(world, "a")[0] == 1.0


def test_pods_seen_before_their_node_count_when_it_appears() -> None:
    world = World(None, node_json("other")).put(pod_json("p", node="late"))
    assert cpu_on(world.put(node_json("late")), "late")[0] == 1.0


def test_a_profile_takes_effect_when_it_is_added_changed_or_removed() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a", workload="k"))
    assert cpu_on(world, "a")[0] == 1.0
    profile = class_json("k", [3.0], [1.0])
    assert cpu_on(world.put(profile), "a")[0] == 3.0
    assert cpu_on(world.put(class_json("k", [5.0], [1.0])), "a")[0] == 5.0
    world.put(profile_json("vpa", {"uid-p": "converged"}))
    snapshot = world.state.snapshot()
    assert snapshot.categories[:, snapshot.table.index["a"]].tolist() == [0, 0, 1]
    own = profile_json("vpa", {"uid-p": "converged"})
    own["status"]["containers"] = class_json("k", [7.0], [1.0])["status"]["containers"]
    assert cpu_on(world.put(own), "a")[0] == 7.0, "its own demand comes before that of its class"
    world.put(profile_json("vpa", {}))
    assert cpu_on(world, "a")[0] == 5.0
    assert world.state.snapshot().categories[0].sum() == 1, "it is named no longer"
    world.state.drop_profile(world.read_profile(profile_json("vpa", {})))
    world.state.drop_profile(world.read_profile(profile))
    assert cpu_on(world, "a")[0] == 1.0


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_two_profiles_that_name_a_pod_the_first_by_name_counts(order: str) -> None:
    """Two VPAs select it. Whatever the order of the events, the next one counts once that profile is gone."""
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    categories = {"a": "converged", "b": "watching"}
    world.put(*(profile_json(name, {"uid-p": categories[name]}) for name in order))
    assert world.state.snapshot().categories[:, 0].tolist() == [0, 0, 1]
    world.state.drop_profile(world.read_profile(profile_json("a", {})))
    assert world.state.snapshot().categories[:, 0].tolist() == [0, 1, 0]


def test_pods_are_judged_anew_when_the_largest_node_comes_or_goes() -> None:
    """Their class is said to need 40 GiB, which is implausible where no node has more than 32."""
    world = World(None, node_json("a"), class_json("k", [1.0], [40.0])).put(pod_json("p", node="a", workload="k"))

    def memory_gib() -> float:
        snapshot = world.state.snapshot()
        return float(snapshot.load[1, 0, snapshot.table.index["a"]]) / GIB

    assert memory_gib() == 1.0
    world.put(node_json("b", memory="64Gi"))
    assert memory_gib() == 40.0
    world.state.drop_node("b")
    assert memory_gib() == 1.0


@pytest.mark.parametrize("step", [1e9, -1e9, 3600.0, -150.0])
def test_clock_steps_neither_lose_nor_double_a_pod(step: float) -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    world.clock.now_s += step
    assert set(cpu_on(world, "a")) == {1.0}


@pytest.mark.parametrize("step", [900.0, 1e6])
def test_a_pod_that_was_overdue_only_by_a_wrong_clock_is_expected_to_end_again(step: float) -> None:
    world = World(None, node_json("a"), class_json("ramp", [1.0, 2.0, 3.0], [1.0] * 3))
    world.put(pod_json("p", node="a", workload="ramp"))
    world.clock.now_s += step
    assert set(cpu_on(world, "a")) == {3.0}
    world.clock.now_s -= step
    assert cpu_on(world, "a")[:4] == [1.0, 2.0, 3.0, 0.0]


def test_a_snapshot_never_changes() -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    before = world.state.snapshot()
    assert world.state.snapshot() is before
    world.put(pod_json("q", node="a"), node_json("b"))
    assert before.load[0, 0, before.table.index["a"]] == 1.0
    assert "b" not in before.table.index
    assert world.state.snapshot() is not before


def test_snapshots_share_the_devices_until_a_pod_or_a_node_with_devices_changes() -> None:
    gpus = {"nvidia.com/gpu": "2"}

    def used(world: World) -> list[float]:
        devices = world.state.snapshot().devices
        return [devices.extended["nvidia.com/gpu"].requested.sum(), devices.gpu_free.sum()]

    world = World(None, node_json("a", extended=gpus))
    empty = world.state.snapshot().devices
    world.put(pod_json("p", node="a"))
    assert world.state.snapshot().devices is empty
    world.put(pod_json("q", node="a", extended={"nvidia.com/gpu": "1"}))
    assert used(world) == [1.0, 1000.0]
    world.put(node_json("b", extended=gpus))
    assert used(world) == [1.0, 3000.0]
    world.state.drop_pod("uid-q")
    assert used(world) == [0.0, 4000.0]
    world.state.drop_node("a")
    assert used(world) == [0.0, 2000.0]


def test_sums_after_a_thousand_changes_equal_those_from_scratch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world, grid = World(), Grid()
    curves = {f"k{kind}": (rng.uniform(0, 4, 40).tolist(), rng.uniform(0, 8, 40).tolist()) for kind in range(3)}
    world.put(*(class_json(kind, *curve) for kind, curve in curves.items()))
    residents: dict[str, reference.Resident] = {}
    for number in range(1000):
        action, node = rng.integers(10), f"n{rng.integers(100)}"
        if action < 2:
            world.put(node_json(node))
        elif action < 3:
            world.state.drop_node(node)
        elif action < 8:
            kind = f"k{rng.integers(3)}"
            name = f"p{number}"
            world.put(pod_json(name, node=node, workload=kind))
            cpu, memory = curves[kind]
            start = grid.cell(world.clock.now_s)
            residents[f"uid-{name}"] = reference.Resident(
                node, cpu, [gib * GIB for gib in memory], start, never_ends=False
            )
        elif action < 9 and residents:
            uid = list(residents)[int(rng.integers(len(residents)))]
            world.state.drop_pod(uid)
            del residents[uid]
        else:
            world.clock.now_s += float(rng.uniform(0, HORIZONS_KEPT * 400))
        if not number % 7:
            world.state.snapshot()  # the next one is built from this one and the changes
    snapshot = world.state.snapshot()
    assert len(snapshot.table.index) > 64, "the arrays have grown"
    for node, place in snapshot.table.index.items():
        expected = reference.load_of(node, list(residents.values()), snapshot.first_cell, grid.cells)
        assert np.allclose(snapshot.load[:, :, place].T, expected, rtol=1e-5, atol=1e-3), node
        assert np.allclose(snapshot.later[:, place], later(node, residents.values(), snapshot), rtol=1e-5, atol=1e3), (
            node
        )


def later(node: str, residents: Iterable[reference.Resident], snapshot: Snapshot) -> list[float]:
    """The largest memory of each pod of a node in each horizon after the present one, in sum."""
    cells, first = snapshot.grid.cells, snapshot.first_cell
    begin, sums = cells - first % cells, np.zeros(LATER)
    for pod in residents:
        memory = np.array(reference.load_of(node, [pod], first, begin + LATER * cells))[begin:, 1]
        sums += memory.reshape(LATER, cells).max(axis=1)
    return sums.tolist()


@pytest.mark.parametrize("nodes", [1, 4, 5, 10])
def test_a_snapshot_holds_every_node_that_changed_since_the_last_whether_few_or_all(nodes: int) -> None:
    world = World(Settings(limits=Limits(cpu_overload=0.01)), *(node_json(f"n{number}") for number in range(10)))
    world.put(*(pod_json(f"p{number}", node=f"n{number}", workload="k") for number in range(nodes)))
    world.state.snapshot()
    world.put(class_json("k", [3.0] * 119 + [5.0], [1.0] * 120))
    snapshot = world.state.snapshot()
    assert snapshot.load[0, 0].tolist() == [3.0] * nodes + [0.0] * (10 - nodes)
    assert snapshot.variance[0].tolist() == [3.0] * nodes + [0.0] * (10 - nodes), "half of 3 (5 - 3)"


def test_of_many_nodes_few_are_summed_up_anew_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fifty thousand pods, all of them would hold up calls for half a second."""
    world = World(None, *(node_json(f"n{number}") for number in range(240)))
    renew, renewed = NodeTable.renew, list[str]()

    def count_and_renew(table: NodeTable, name: str, cell: int, entries: Sequence[Entry]) -> None:
        renewed.append(name)
        renew(table, name, cell, entries)

    monkeypatch.setattr(NodeTable, "renew", count_and_renew)
    for _ in range(48):
        before = len(renewed)
        world.clock.now_s += 150.0
        world.state.snapshot()
        assert len(renewed) - before <= 10
    assert len(set(renewed)) == 240


@pytest.mark.parametrize("step_s", [15.0, 150.0, 400.0, 37.5, 149.0])
def test_a_resampled_demand_curve_is_that_of_the_reference_implementation(step_s: float) -> None:
    rng = np.random.default_rng(1)
    cpu, memory = rng.uniform(0, 8, 60).tolist(), rng.uniform(0, 1e10, 60).tolist()
    curve = resampled(step_s, cpu, memory, Grid())
    assert curve is not None
    assert np.allclose(curve.values.T, reference.resampled(step_s, cpu, memory, 150.0))


@pytest.mark.parametrize("curve", [(0.0, [1.0], [1.0]), (math.nan, [1.0], [1.0]), (15.0, [], []), (15.0, [-1.0], [1.0]),
                                 (15.0, [math.inf], [1.0]), (15.0, [1.0], [math.nan])])  # fmt: skip
def test_an_invalid_demand_curve_is_ignored(curve: tuple[float, list[float], list[float]]) -> None:
    assert resampled(*curve, Grid()) is None


def test_a_pod_bound_as_advised_keeps_the_snapshot_and_other_changes_do_not() -> None:
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
    assert world.state.snapshot() is not before, "pending pods may be judged differently now"


def test_a_removed_node_leaves_no_gap_and_the_others_keep_their_pods() -> None:
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


def test_nodes_are_found_by_name_and_all_together_are_everywhere() -> None:
    snapshot = World(None, node_json("a"), node_json("b"), node_json("c")).state.snapshot()
    places, unknown = snapshot.table.find(["c", "new", "a"])
    assert ({snapshot.table.names[place] for place in places}, len(places), unknown) == ({"c", "a"}, 2, ["new"])
    assert snapshot.table.find(["c", "a", "b"])[0] is snapshot.table.everywhere
    assert snapshot.table.find([])[0].size == 0


def test_an_unchanged_or_resized_node_leaves_the_table_of_names_as_it_is() -> None:
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
