"""Room for a pod: its targets are cut to fit a node and the quota, but not below certain minima."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import Amounts, ContainerPolicy, ContainerRecommendation, Limits
from recommender.policies.constraints import Room, fit_room

NAN, MIB = math.nan, 2.0**20


def fit_largest_node(
    pod: Sequence[ContainerRecommendation], others: Amounts, nodes: Sequence[Amounts], minimum: Limits = (None, None)
) -> tuple[ContainerRecommendation, ...]:
    """Limited by nodes alone, for containers without usage."""
    return fit_room(pod, others, Room(tuple(nodes)), lambda name: ContainerPolicy(name, min_allowed=minimum), {})


def recommended(name: str, cpu: float, memory_mib: float) -> ContainerRecommendation:
    amounts = (cpu, memory_mib * MIB)
    return ContainerRecommendation(name, amounts, (cpu / 2, amounts[1] / 2), (cpu * 2, amounts[1] * 2), amounts)


def assert_in_order(pod: Sequence[ContainerRecommendation]) -> None:
    for one in pod:
        assert (np.diff([one.lower, one.target, one.upper], axis=0) >= 0.0).all()


@pytest.mark.parametrize(
    ("nodes", "targets"),
    [
        ([], [(3.0, 3000), (1.0, 1000)]),
        ([(4.0, 4000)], [(3.0, 3000), (1.0, 1000)]),
        ([(2.0, 4000)], [(1.5, 3000), (0.5, 1000)]),
        ([(2.0, 2000)], [(1.5, 1500), (0.5, 500)]),
        ([(1.0, 64000), (3.0, 3000)], [(2.25, 2250), (0.75, 750)]),
        ([(4.0, 1000), (2.0, 8000)], [(1.5, 3000), (0.5, 1000)]),
        ([(1.0, 1000), (64.0, 64000)], [(3.0, 3000), (1.0, 1000)]),
    ],
)
def test_a_pod_is_cut_to_the_node_that_needs_the_smallest_cut(
    nodes: list[tuple[float, float]], targets: list[tuple[float, float]]
) -> None:
    pod = (recommended("a", 3.0, 3000), recommended("b", 1.0, 1000))
    found = fit_largest_node(pod, (0.0, 0.0), [(cpu, memory * MIB) for cpu, memory in nodes])
    assert [one.target for one in found] == [(cpu, memory * MIB) for cpu, memory in targets]
    assert_in_order(found)
    assert [one.uncapped for one in found] == [one.target for one in pod]


def test_a_pod_is_not_raised_beyond_the_room_on_its_node() -> None:
    """Its containers shrink by the same share, but not below minAllowed; memory stays."""
    pod, room = (recommended("a", 3.0, 3000), recommended("b", 1.0, 1000)), Room(where_it_runs=(2.0, math.inf))
    least = {"a": (None, None), "b": (0.8, None)}
    found = fit_room(pod, (9.0, 0.0), room, lambda name: ContainerPolicy(name, min_allowed=least[name]), {})
    assert [one.target for one in found] == [(1.5, 3000 * MIB), (0.8, 1000 * MIB)]
    assert [str(limit) for limit in found[0].limits] == ["Node: cpu 3.00 -> 1.50"]
    assert fit_room(pod, (9.0, 0.0), Room(where_it_runs=(4.0, 4000 * MIB)), ContainerPolicy, {}) == pod


def test_no_container_loses_its_request_to_the_raise_of_another() -> None:
    """Of 2.5 GiB, the container whose target is its present 1 GiB keeps it; the other gets half of its raise."""
    pod = (recommended("a", 0.1, 1024), recommended("b", 0.1, 3072))
    room = Room(where_it_runs=(math.inf, 2560 * MIB), has={"a": (0.1, 1024 * MIB), "b": (0.1, 0.0)})
    found = fit_room(pod, (0.0, 0.0), room, ContainerPolicy, {})
    assert [one.target[1] for one in found] == [1024 * MIB, 1536 * MIB]


def test_other_requests_of_the_pod_take_their_room_first() -> None:
    (found,) = fit_largest_node([recommended("a", 3.0, 3000)], (1.0, 500 * MIB), [(2.0, 2000 * MIB)])
    assert found.target == (1.0, 1500 * MIB)
    assert [str(limit) for limit in found.limits] == [
        "LargestNode: cpu 3.00 -> 1.00",
        "LargestNode: memory 2.93Gi -> 1.46Gi",
    ]


def test_a_node_without_room_for_other_requests_of_the_pod_is_not_fitted() -> None:
    pod = [recommended("a", 3.0, 3000)]
    assert fit_largest_node(pod, (4.0, 0.0), [(4.0, 2000 * MIB)]) == tuple(pod)


def test_a_resource_that_is_not_recommended_is_not_cut() -> None:
    pod = [ContainerRecommendation("a", (NAN, 3000 * MIB), (NAN, 0.0), (NAN, 1e14), (NAN, 3000 * MIB))]
    (found,) = fit_largest_node(pod, (0.5, 0.0), [(1.0, 1000 * MIB)])
    assert math.isnan(found.target[0])
    assert found.target[1] == 1000 * MIB


@given(
    targets=st.lists(st.tuples(st.integers(1, 8000), st.integers(1, 2**34)), min_size=1, max_size=4),
    nodes=st.lists(st.tuples(st.integers(100, 16_000), st.integers(2**28, 2**34)), min_size=1, max_size=4),
    others=st.tuples(st.integers(0, 99), st.integers(0, 2**27)),
)
def test_a_fitted_pod_fits_some_node_and_one_that_fits_is_not_cut(
    targets: list[tuple[int, int]], nodes: list[tuple[int, int]], others: tuple[int, int]
) -> None:
    pod = [recommended(str(number), cpu / 1000, memory / MIB) for number, (cpu, memory) in enumerate(targets)]
    offered = [(cpu / 1000, float(memory)) for cpu, memory in nodes]
    found = fit_largest_node(pod, (others[0] / 1000, float(others[1])), offered)
    total = [others[i] / (1000 if i == 0 else 1) + sum(one.target[i] for one in found) for i in (0, 1)]
    assert any(total[0] <= node[0] + 1e-9 and total[1] <= node[1] for node in offered)
    fitted = [others[i] + sum(target[i] for target in targets) for i in (0, 1)]
    if any(fitted[0] <= node[0] and fitted[1] <= node[1] for node in nodes):
        assert found == tuple(pod)


def fit(
    quota_mib: float = math.inf, node_mib: float = math.inf, minimum_mib: float | None = None, used_mib: float = 0.0
) -> float:
    """The target in MiB of one container that wants 3000."""
    room = Room(((64.0, node_mib * MIB),), (math.inf, quota_mib * MIB))
    policy = ContainerPolicy("a", min_allowed=(None, None if minimum_mib is None else minimum_mib * MIB))
    found = fit_room([recommended("a", 3.0, 3000)], (0.0, 0.0), room, lambda _: policy, {"a": (0.1, used_mib * MIB)})
    assert_in_order(found)
    return found[0].target[1] / MIB


def test_a_node_cuts_neither_below_min_allowed_nor_below_present_usage() -> None:
    assert fit(node_mib=1000) == 1000
    assert fit(node_mib=1000, minimum_mib=2000) == 2000
    assert fit(node_mib=1000, used_mib=1500) == 1500
    assert fit(node_mib=1000, used_mib=9000) == 3000, "never more than the target"


def test_a_quota_cuts_below_present_usage_but_not_below_min_allowed() -> None:
    assert fit(quota_mib=1000, used_mib=1500) == 1000
    assert fit(quota_mib=1000, minimum_mib=2000) == 2000
    assert fit(quota_mib=5000) == 3000


def test_limits_name_whether_a_node_or_the_quota_cut_the_target() -> None:
    room = Room(((64.0, 2000 * MIB),), (math.inf, 1000 * MIB))
    (found,) = fit_room([recommended("a", 3.0, 3000)], (0.0, 0.0), room, ContainerPolicy, {})
    assert [str(limit) for limit in found.limits] == [
        "LargestNode: memory 2.93Gi -> 1.95Gi",
        "Quota: memory 1.95Gi -> 1000Mi",
    ]
