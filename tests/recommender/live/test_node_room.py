"""What pods may be raised to where they run: a worked node, and what others were promised of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.vpa import read_vpa
from recommender.engine.rails import POD_LIFETIME_THRESHOLD_S
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from recommender.live.writing.node_room import UNTOUCHED_AFTER_S, NodeRoom
from recommender.records import CPU, MEMORY, ContainerRecommendation
from tests.fakes.records import GIB, FakeView, a_vpa

NOW_S = 1_000_000.0


def on(
    node: str, cores: float | None, name: str = "p", phase: str = "Running", age_s: float = 60.0, **limits: str
) -> Pod:
    """A pod of one container that requests so many cores, and a GiB."""
    requests = {"memory": "1Gi"} | ({} if cores is None else {"cpu": f"{cores * 1000:.0f}m"})
    started = f"1970-01-12T{13 - int(age_s // 3600):02}:46:40Z"
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": limits}}],
            },
            "status": {"phase": phase, "startTime": started},
        }
    )


def with_pods(*pods: Pod, name: str = "job", mode: str = "InPlaceOrRecreate", **policy: int) -> VpaState:
    state = VpaState(read_vpa(a_vpa(name, updatePolicy={"updateMode": mode} | policy)))
    state.selection = SelectedPods(pods, {})
    state.targets = {"main": None}  # type: ignore[dict-item]  # names are all that is looked at
    return state


def wanting(cores: float, lower: float | None = None, upper: float | None = None) -> list[ContainerRecommendation]:
    bounds = ((cores if one is None else one, GIB) for one in (lower, upper))
    return [ContainerRecommendation("main", (cores, GIB), *bounds, (cores, GIB))]


def most(spare: Mapping[str, float], state: VpaState, wanted: list[ContainerRecommendation]) -> float:
    view = FakeView()
    view.left = {node: (cores, math.inf) for node, cores in spare.items()}
    room = NodeRoom(view)
    room.begin([state])
    return room.limit(state, wanted, NOW_S)[CPU]


def test_a_pod_may_have_what_it_has_and_what_its_node_has_left() -> None:
    assert most({"n0": 0.3}, with_pods(on("n0", 0.2)), wanting(1.0)) == pytest.approx(0.5)
    assert most({"n0": 0.0}, with_pods(on("n0", 0.2)), wanting(1.0)) == pytest.approx(0.2)
    assert most({"n0": -0.1}, with_pods(on("n0", 0.2)), wanting(1.0)) == pytest.approx(0.2)
    assert most({"n0": 0.3}, with_pods(on("n0", None)), wanting(1.0)) == pytest.approx(0.3)


HELD_BACK_BY_NOBODY: dict[str, tuple[VpaState, list[ContainerRecommendation]]] = {
    "it is to have no more": (with_pods(on("n0", 1.0)), wanting(1.0)),
    "within its bounds nobody resizes it": (with_pods(on("n0", 0.2)), wanting(1.0, lower=0.1)),
    "its node is not known": (with_pods(on("n9", 0.2)), wanting(1.0)),
    "it has no node yet": (with_pods(on("", 0.2)), wanting(1.0)),
    "it is done": (with_pods(on("n0", 0.2, phase="Succeeded")), wanting(1.0)),
    "each change makes it anew, on any node": (with_pods(on("n0", 0.2), mode="Recreate"), wanting(1.0)),
    "nobody changes it": (with_pods(on("n0", 0.2), mode="Off"), wanting(1.0)),
    "the updater leaves so few alone": (with_pods(on("n0", 0.2), minReplicas=2), wanting(1.0)),
}


@pytest.mark.parametrize("why", HELD_BACK_BY_NOBODY)
def test_nothing_is_held_back_where_no_resize_would_wait(why: str) -> None:
    assert most({"n0": 0.0}, *HELD_BACK_BY_NOBODY[why]) == math.inf


def test_an_old_pod_is_updated_whatever_its_bounds_say() -> None:
    old = with_pods(on("n0", 0.2, age_s=POD_LIFETIME_THRESHOLD_S))
    assert most({"n0": 0.0}, old, wanting(1.0, lower=0.1)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("limit", "values", "gib"),
    [(None, "RequestsAndLimits", 1.5), ("1Gi", "RequestsAndLimits", math.inf), ("9Gi", "RequestsOnly", 1.5)],
)
def test_memory_is_held_back_as_well_unless_its_limit_moves_along(limit: str | None, values: str, gib: float) -> None:
    """Too little of that kills, where a wait for room may pass."""
    policies = {"containerPolicies": [{"containerName": "main", "controlledValues": values}]}
    state = with_pods(on("n0", 1.0, **({} if limit is None else {"memory": limit})))
    state.vpa = read_vpa(a_vpa(resourcePolicy=policies))
    view = FakeView()
    view.left = {"n0": (0.0, 0.5 * GIB)}
    room, wanted = NodeRoom(view), [ContainerRecommendation("main", *[(1.0, 4 * GIB)] * 4)]
    room.begin([state])
    assert room.limit(state, wanted, NOW_S)[MEMORY] == gib * GIB


def test_of_several_pods_the_fullest_node_counts_but_takes_from_nobody_what_it_has() -> None:
    state = with_pods(on("n0", 0.2, "a"), on("n1", 0.6, "b"))
    assert most({"n0": 0.9, "n1": 0.2}, state, wanting(1.0)) == pytest.approx(0.8)
    assert most({"n0": 0.1, "n1": 0.2}, state, wanting(1.0)) == pytest.approx(0.6)


def test_pods_of_one_node_share_what_it_has_left() -> None:
    """Of two cores, four pods of one core have half a core more each; who has less is raised first."""
    assert most({"n0": 2.0}, with_pods(*(on("n0", 1.0, name) for name in "abcd")), wanting(3.0)) == pytest.approx(1.5)
    assert most({"n0": 2.0}, with_pods(on("n0", 1.0, "a"), on("n0", 2.0, "b")), wanting(3.0)) == pytest.approx(2.5)
    assert most({"n0": 0.5}, with_pods(on("n0", 1.0, "a"), on("n0", 2.0, "b")), wanting(3.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(("least", "given"), [({}, 0.9), ({"minReplicas": 1}, 0.2)])
def test_what_the_updater_leaves_alone_takes_no_room_from_others_for_ever(least: dict[str, int], given: float) -> None:
    """Without `minReplicas` it resizes no single pod, unless its own flag says so: it is given some rounds for that."""
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    left_alone = with_pods(on("n0", 0.2, "a"), name="a", **least)
    other = with_pods(on("n0", 0.2, "b"), name="b", minReplicas=1)
    room = NodeRoom(view)
    for later_s, of_other in ((0.0, 0.2), (UNTOUCHED_AFTER_S, 0.2), (UNTOUCHED_AFTER_S + 1.0, given)):
        room.begin([left_alone, other])
        assert room.limit(left_alone, wanting(1.2), NOW_S + later_s)[CPU] == pytest.approx(1.2)
        assert min(0.9, room.limit(other, wanting(0.9), NOW_S + later_s)[CPU]) == pytest.approx(of_other)


def test_containers_of_which_nothing_is_recommended_hide_no_promise() -> None:
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    with_sidecar = on("n0", 0.2, "a")
    beside = replace(with_sidecar.containers[0], name="off", requests=(1.0, GIB))
    first = with_pods(replace(with_sidecar, containers=(*with_sidecar.containers, beside)), name="a")
    first.targets = {"main": None, "off": None}  # type: ignore[dict-item]
    second, room = with_pods(on("n0", 0.2, "b"), name="b"), NodeRoom(view)
    for _ in range(2):
        room.begin([first, second])
        assert room.limit(first, wanting(1.2), NOW_S)[CPU] == pytest.approx(1.2)
        assert room.limit(second, wanting(0.9), NOW_S)[CPU] == pytest.approx(0.2)


def test_what_one_was_promised_is_not_promised_to_the_next_one_until_it_wants_less() -> None:
    view = FakeView()
    view.left = {"n0": (1.0, math.inf)}
    first, second = (with_pods(on("n0", 0.2, name), name=name) for name in ("a", "b"))
    room = NodeRoom(view)
    for of_first in (1.2, 0.9):  # the updater has done nothing yet in the second round
        room.begin([first, second])
        assert room.limit(first, wanting(0.9), NOW_S)[CPU] == pytest.approx(of_first)
        assert room.limit(second, wanting(0.9), NOW_S)[CPU] == pytest.approx(0.5)
    first.selection, view.left = SelectedPods([on("n0", 0.9, "a")], {}), {"n0": (0.3, math.inf)}
    room.begin([first, second])
    assert room.limit(second, wanting(0.9), NOW_S)[CPU] == pytest.approx(0.5), "it has it by now: nothing is new"
    room.begin([first, second])
    assert room.limit(first, wanting(0.1), NOW_S)[CPU] == math.inf
    first.selection, view.left = SelectedPods([on("n0", 0.1, "a")], {}), {"n0": (1.1, math.inf)}
    room.begin([first, second])
    assert room.limit(second, wanting(0.9), NOW_S)[CPU] == pytest.approx(1.3)


def test_nobody_is_looked_at_while_nobody_wants_more() -> None:
    class Counting(FakeView):
        looked = 0

        def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
            self.looked += 1
            return super().spare(nodes, but)

    view = Counting()
    room, states = NodeRoom(view), [with_pods(on("n0", 0.2, name), name=name) for name in "abc"]
    for cores, looked in ((0.1, 0), (0.9, 1)):
        room.begin(states)
        for state in states:
            room.limit(state, wanting(cores), NOW_S)[CPU]
        assert view.looked == looked


VPAS = st.lists(st.tuples(st.integers(10, 1000), st.integers(10, 4000), st.integers(1, 3)), min_size=1, max_size=4)
"""Millicores that pods have and want, and how many there are."""


@given(VPAS, st.floats(0.0, 2.0))
def test_whatever_is_wanted_of_a_node_all_that_is_recommended_fits_it(
    vpas: list[tuple[int, int, int]], spare: float
) -> None:
    view = FakeView()
    view.left = {"n0": (spare, math.inf)}
    room = NodeRoom(view)
    states: list[Any] = [
        with_pods(*(on("n0", has / 1000, f"p{n}-{pod}") for pod in range(pods)), name=f"p{n}")
        for n, (has, _, pods) in enumerate(vpas)
    ]
    for _ in range(2):
        room.begin(states)
        more = 0.0
        for state, (has, wants, pods) in zip(states, vpas, strict=True):
            given = min(wants / 1000, room.limit(state, wanting(wants / 1000), NOW_S)[CPU])
            more += pods * max(0.0, given - has / 1000)
        assert more <= spare + 1e-9
