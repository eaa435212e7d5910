"""How far pods can be raised in place: free capacity of nodes, less pending increases of other VPAs."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, ContainerRecommendation
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.engine.rails import POD_LIFETIME_THRESHOLD_S
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from recommender.live.writing.node_room import UNTOUCHED_AFTER_S, NodeRoom
from recommender.policies.constraints import Room
from tests.fakes.records import GIB, FakeView, a_container, a_pod, a_vpa, pod_of, recommender, rounds, target_of, use

NOW_S = 1_000_000.0


def pod(
    node: str, cores: float | None, name: str = "p", phase: str = "Running", age_s: float = 60.0, **limits: str
) -> Pod:
    """A pod with one container that requests these cores and 1 GiB."""
    cpu = {} if cores is None else {"cpu": f"{cores * 1000:.0f}m"}
    started = f"1970-01-12T{13 - int(age_s // 3600):02}:46:40Z"
    container = a_container(limits=limits, memory="1Gi", **cpu)
    return pod_of(name, container, phase=phase, status={"startTime": started}, nodeName=node)


def with_pods(*pods: Pod, name: str = "job", mode: str = "InPlaceOrRecreate", **policy: int) -> VpaState:
    state = VpaState(read_vpa(a_vpa(name, updatePolicy={"updateMode": mode} | policy)))
    state.selection = SelectedPods(pods, {})
    state.targets = {"main": None}  # type: ignore[dict-item]  # only the names are read
    return state


def target(cores: float, lower: float | None = None, upper: float | None = None) -> list[ContainerRecommendation]:
    bounds = ((cores if one is None else one, GIB) for one in (lower, upper))
    return [ContainerRecommendation("main", (cores, GIB), *bounds, (cores, GIB))]


def limit(spare: Mapping[str, float], state: VpaState, wanted: list[ContainerRecommendation]) -> float:
    view = FakeView()
    view.left = {node: (cores, math.inf) for node, cores in spare.items()}
    room = NodeRoom(view)
    room.begin([state])
    return room.limit(state, wanted, NOW_S)[CPU]


def test_a_target_is_limited_to_the_request_plus_the_free_capacity_of_the_node() -> None:
    assert limit({"n0": 0.3}, with_pods(pod("n0", 0.2)), target(1.0)) == pytest.approx(0.5)
    assert limit({"n0": 0.0}, with_pods(pod("n0", 0.2)), target(1.0)) == pytest.approx(0.2)
    assert limit({"n0": -0.1}, with_pods(pod("n0", 0.2)), target(1.0)) == pytest.approx(0.2)
    assert limit({"n0": 0.3}, with_pods(pod("n0", None)), target(1.0)) == pytest.approx(0.3)


UNLIMITED: dict[str, tuple[VpaState, list[ContainerRecommendation]]] = {
    "target equals the request": (with_pods(pod("n0", 1.0)), target(1.0)),
    "request within the bounds": (with_pods(pod("n0", 0.2)), target(1.0, lower=0.1)),
    "unknown node": (with_pods(pod("n9", 0.2)), target(1.0)),
    "no node yet": (with_pods(pod("", 0.2)), target(1.0)),
    "finished pod": (with_pods(pod("n0", 0.2, phase="Succeeded")), target(1.0)),
    "mode Recreate": (with_pods(pod("n0", 0.2), mode="Recreate"), target(1.0)),
    "mode Off": (with_pods(pod("n0", 0.2), mode="Off"), target(1.0)),
    "fewer pods than minReplicas": (with_pods(pod("n0", 0.2), minReplicas=2), target(1.0)),
}


@pytest.mark.parametrize("case", UNLIMITED)
def test_a_target_is_unlimited_where_it_causes_no_resize_in_place(case: str) -> None:
    assert limit({"n0": 0.0}, *UNLIMITED[case]) == math.inf


def test_the_target_of_an_old_pod_is_limited_even_within_its_bounds() -> None:
    old = with_pods(pod("n0", 0.2, age_s=POD_LIFETIME_THRESHOLD_S))
    assert limit({"n0": 0.0}, old, target(1.0, lower=0.1)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("declared", "values", "gib"),
    [(None, "RequestsAndLimits", 1.5), ("1Gi", "RequestsAndLimits", math.inf), ("9Gi", "RequestsOnly", 1.5)],
)
def test_memory_is_limited_unless_its_limit_follows_the_request(declared: str | None, values: str, gib: float) -> None:
    """Too little memory under a limit kills; a deferred resize may still succeed."""
    policies = {"containerPolicies": [{"containerName": "main", "controlledValues": values}]}
    state = with_pods(pod("n0", 1.0, **({} if declared is None else {"memory": declared})))
    state.vpa = read_vpa(a_vpa(resourcePolicy=policies))
    view = FakeView()
    view.left = {"n0": (0.0, 0.5 * GIB)}
    room, wanted = NodeRoom(view), [ContainerRecommendation("main", *[(1.0, 4 * GIB)] * 4)]
    room.begin([state])
    assert room.limit(state, wanted, NOW_S)[MEMORY] == gib * GIB


def test_the_fullest_node_limits_all_pods_but_not_below_their_largest_request() -> None:
    state = with_pods(pod("n0", 0.2, "a"), pod("n1", 0.6, "b"))
    assert limit({"n0": 0.9, "n1": 0.2}, state, target(1.0)) == pytest.approx(0.8)
    assert limit({"n0": 0.1, "n1": 0.2}, state, target(1.0)) == pytest.approx(0.6)


def test_pods_on_one_node_share_its_free_capacity() -> None:
    """Two free cores raise four pods of one core by half a core each; the smallest requests are raised first."""
    assert limit({"n0": 2.0}, with_pods(*(pod("n0", 1.0, name) for name in "abcd")), target(3.0)) == pytest.approx(1.5)
    assert limit({"n0": 2.0}, with_pods(pod("n0", 1.0, "a"), pod("n0", 2.0, "b")), target(3.0)) == pytest.approx(2.5)
    assert limit({"n0": 0.5}, with_pods(pod("n0", 1.0, "a"), pod("n0", 2.0, "b")), target(3.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(("policy", "allowed"), [({}, 0.9), ({"minReplicas": 1}, 0.2)])
def test_a_pending_increase_of_a_pod_that_the_updater_skips_expires(policy: dict[str, int], allowed: float) -> None:
    """Without `minReplicas` it resizes no single pod unless its own flag says so; it gets some rounds to do so."""
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    skipped = with_pods(pod("n0", 0.2, "a"), name="a", **policy)
    other = with_pods(pod("n0", 0.2, "b"), name="b", minReplicas=1)
    room = NodeRoom(view)
    for later_s, expected in ((0.0, 0.2), (UNTOUCHED_AFTER_S, 0.2), (UNTOUCHED_AFTER_S + 1.0, allowed)):
        room.begin([skipped, other])
        assert room.limit(skipped, target(1.2), NOW_S + later_s)[CPU] == pytest.approx(1.2)
        assert min(0.9, room.limit(other, target(0.9), NOW_S + later_s)[CPU]) == pytest.approx(expected)


def test_a_pending_increase_expires_in_time_although_the_clock_is_set_back() -> None:
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    skipped, other = with_pods(pod("n0", 0.2, "a"), name="a"), with_pods(pod("n0", 0.2, "b"), name="b", minReplicas=1)
    room = NodeRoom(view)
    for at_s in (NOW_S + 86400.0, NOW_S, NOW_S + UNTOUCHED_AFTER_S + 1.0):
        room.begin([skipped, other])
        room.limit(skipped, target(1.2), at_s)
    assert room.limit(other, target(0.9), NOW_S + UNTOUCHED_AFTER_S + 1.0)[CPU] >= 0.9


def test_containers_without_a_recommendation_do_not_hide_a_pending_increase() -> None:
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    single = pod("n0", 0.2, "a")
    sidecar = replace(single.containers[0], name="off", requests=(1.0, GIB))
    first = with_pods(replace(single, containers=(*single.containers, sidecar)), name="a")
    first.targets = {"main": None, "off": None}  # type: ignore[dict-item]
    second, room = with_pods(pod("n0", 0.2, "b"), name="b"), NodeRoom(view)
    for _ in range(2):
        room.begin([first, second])
        assert room.limit(first, target(1.2), NOW_S)[CPU] == pytest.approx(1.2)
        assert room.limit(second, target(0.9), NOW_S)[CPU] == pytest.approx(0.2)


def test_a_pending_increase_is_unavailable_to_other_vpas_until_its_vpa_wants_less() -> None:
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    first, second = (with_pods(pod("n0", 0.2, name), name=name) for name in ("a", "b"))
    room = NodeRoom(view)
    for expected in (1.2, 0.9):  # the updater has not acted yet in the second round
        room.begin([first, second])
        assert room.limit(first, target(0.9), NOW_S)[CPU] == pytest.approx(expected)
        assert room.limit(second, target(0.9), NOW_S)[CPU] == pytest.approx(0.5)
    first.selection, view.left = SelectedPods([pod("n0", 0.9, "a")], {}), {"n0": (0.3, math.inf)}
    room.begin([first, second])
    assert room.limit(second, target(0.9), NOW_S)[CPU] == pytest.approx(0.5), "it is applied by now: nothing changes"
    room.begin([first, second])
    assert room.limit(first, target(0.1), NOW_S)[CPU] == math.inf
    first.selection, view.left = SelectedPods([pod("n0", 0.1, "a")], {}), {"n0": (1.1, math.inf)}
    room.begin([first, second])
    assert room.limit(second, target(0.9), NOW_S)[CPU] == pytest.approx(1.3)


def test_nodes_are_read_once_a_round_and_only_if_a_vpa_wants_more() -> None:
    class Counting(FakeView):
        reads = 0

        def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
            self.reads += 1
            return super().spare(nodes, but)

    view = Counting()
    room, states = NodeRoom(view), [with_pods(pod("n0", 0.2, name), name=name) for name in "abc"]
    for cores, reads in ((0.1, 0), (0.9, 1)):
        room.begin(states)
        for state in states:
            room.limit(state, target(cores), NOW_S)
        assert view.reads == reads


VPAS = st.lists(st.tuples(st.integers(10, 1000), st.integers(10, 4000), st.integers(1, 3)), min_size=1, max_size=4)
"""Requests and targets in millicores, and numbers of pods."""


@given(VPAS, st.floats(0.0, 2.0))
def test_all_recommendations_together_fit_the_node(vpas: list[tuple[int, int, int]], spare: float) -> None:
    view = FakeView()
    view.left = {"n0": (spare, math.inf)}
    room = NodeRoom(view)
    states: list[Any] = [
        with_pods(*(pod("n0", has / 1000, f"p{n}-{i}") for i in range(pods)), name=f"p{n}")
        for n, (has, _, pods) in enumerate(vpas)
    ]
    for _ in range(2):
        room.begin(states)
        increase = 0.0
        for state, (has, wants, pods) in zip(states, vpas, strict=True):
            granted = min(wants / 1000, room.limit(state, target(wants / 1000), NOW_S)[CPU])
            increase += pods * max(0.0, granted - has / 1000)
        assert increase <= spare + 1e-9


def test_safe_values_that_several_threads_write_together_fit_the_node() -> None:
    class Meeting(FakeView):
        """Gives threads that look at the room at the same time the time to do so."""

        threads = threading.Barrier(1)

        def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
            with suppress(threading.BrokenBarrierError):
                self.threads.wait(0.3)
            return super().room(vpa, pods)

    view, names = Meeting(), ("a", "b")
    view.left = {"n0": (0.0, 8 * GIB)}
    for name in names:
        old = replace(a_pod(name, cpu="200m"), node="n0", started_s=view.now_s - POD_LIFETIME_THRESHOLD_S)
        view.raw[name], view.pods[name] = a_vpa(name), [old]
    ours = recommender(view, writers=2)
    for _ in range(40):
        view.now_s += 1.0
        for name in names:
            use(view, name, 1.0, 1.0)
        ours.run()
    ours.engine.groups.arrays.published[:] = 0.01, 1.0  # so that each has a safe value to be written
    view.left, view.threads = {"n0": (1.0, 8 * GIB)}, threading.Barrier(2)
    assert not ours.publish_safe_values().problems
    assert view.threads.broken, "two threads divided the same room"
    assert sum(target_of(view, name)[0] - 0.2 for name in names) == pytest.approx(1.0, abs=0.01)


def test_a_target_that_was_cut_to_the_room_of_a_node_rises_once_the_node_has_more() -> None:
    view = FakeView()
    view.left = {"n0": (0.3, 8 * GIB)}
    old = replace(a_pod("job-1", cpu="200m"), node="n0", started_s=view.now_s - POD_LIFETIME_THRESHOLD_S)
    view.raw["job"], view.pods["job"] = a_vpa(), [old]
    ours = recommender(view)
    rounds(ours, view, 40, cpu_cores=1.0)
    assert target_of(view)[0] == 0.5
    view.left = {"n0": (3.0, 8 * GIB)}
    ours.run()
    assert target_of(view)[0] >= 1.0
