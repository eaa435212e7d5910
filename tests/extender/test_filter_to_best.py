"""With `--filter-to-best` the filter passes only the node of the highest score, if nothing could outvote it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.protocol.wire import ExtenderArgs
from extender.settings import Settings
from tests.worlds.placement import World, class_json, node_json, pod_json

BEST = Settings(filter_to_best=True)
CLASSES = (class_json("early", [6.0, 1.0], [1.0] * 2), class_json("late", [1.0, 6.0], [1.0] * 2))
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"podAffinityTerm": {"topologyKey": "zone"}, "weight": 1}


def passed(world: World, pod: dict[str, Any]) -> list[str]:
    return list(world.placer.filter(ExtenderArgs(pod, world.names, None)).passed)


def test_the_second_early_job_goes_to_another_node_in_one_call_per_pod() -> None:
    world = World(BEST, node_json("a"), node_json("b"), *CLASSES)
    assert passed(world, pod_json("first", workload="early")) == ["a"]
    assert passed(world, pod_json("second", workload="early")) == ["b"], "the first counts on a, though not bound yet"
    decision = world.decisions.of("uid-second")
    assert decision is not None
    described = decision.as_json()
    assert (described["advised"], described["nodesAsked"], described["attempts"]) == ("b", 2, 1)
    assert [each["node"] for each in described["nodes"]] == ["b", "a"], "with the scores of all"


clusters = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["early", "late", ""]), st.integers(1, 6)), max_size=12
)


@given(clusters, clusters)
def test_it_is_the_node_that_would_get_the_highest_score(
    present: list[tuple[str, str, int]], pending: list[tuple[str, str, int]]
) -> None:
    objects = [node_json(name, memory="16Gi") for name in "abcd"] + list(CLASSES)
    for number, (node, workload, gib) in enumerate(present):
        objects.append(pod_json(f"there-{number}", node=node, workload=workload, memory=f"{gib}Gi"))
    one_call, two_calls = World(BEST, *objects), World(Settings(), *objects)
    for number, (_, workload, gib) in enumerate(pending):
        pod = pod_json(f"p{number}", workload=workload, memory=f"{gib}Gi")
        best = two_calls.place(pod)
        assert passed(one_call, pod) == ([best] if best else [])


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}},
        {"affinity": {"podAffinity": {PREFERRED: [TERM]}}},
        {"affinity": {"podAntiAffinity": {PREFERRED: [TERM]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "topologyKey": "zone"}]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_the_scheduler_decides_with_us_about_a_pod_that_prefers_nodes(spec: dict[str, Any]) -> None:
    world = World(BEST, node_json("a"), node_json("b"))
    assert passed(world, pod_json("p", **spec)) == ["a", "b"]
    assert world.prioritize(pod_json("p", **spec)) == {"a": 10, "b": 9}


@pytest.mark.parametrize(("kind", "nodes"), [("ReplicaSet", 2), ("StatefulSet", 2), ("Job", 1)])
def test_pods_that_a_scheduler_spreads_by_default_are_left_to_it(kind: str, nodes: int) -> None:
    pod = pod_json("p")
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": "owner", "uid": "u", "controller": True}]
    assert len(passed(World(BEST, node_json("a"), node_json("b")), pod)) == nodes


@pytest.mark.parametrize(
    "spec",
    [
        {
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
            }
        },
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "topologyKey": "zone"}]},
    ],
)
def test_hard_constraints_need_no_scores(spec: dict[str, Any]) -> None:
    """The scheduler has left out the nodes that violate them."""
    assert passed(World(BEST, node_json("a"), node_json("b")), pod_json("p", **spec)) == ["a"]


def test_a_best_node_that_pods_should_avoid_is_left_to_the_scheduler() -> None:
    tainted = node_json("a")
    tainted["spec"] = {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]}
    world = World(BEST, tainted, node_json("b"), node_json("c"))
    assert passed(world, pod_json("p")) == ["a", "b", "c"]
    world.put(pod_json("p", node="a"))
    assert passed(world, pod_json("q")) == ["b"]


def test_pods_of_others_and_nodes_not_seen_yet_pass_as_without_it() -> None:
    world = World(BEST, node_json("a"), node_json("b"))
    assert passed(world, pod_json("theirs", scheduler="default-scheduler")) == ["a", "b"]
    unknown = world.placer.filter(ExtenderArgs(pod_json("p"), ["new", "newer"], None))
    assert list(unknown.passed) == ["new", "newer"]
