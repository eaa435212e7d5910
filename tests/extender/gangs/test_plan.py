"""The nodes chosen for a whole gang, packed or spread, never exceed the free capacity."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.member import Member
from extender.gangs.plan import FreeCapacity, NodeArrays, best_fit, fit_in_any_order, plan
from tests.extender.gangs.herds import gang, node, nodes, pod

SPREAD = {"phasewise.dev/placement": "spread"}


def pods_per_node(members: list[Member], capacity: FreeCapacity) -> dict[str, int]:
    reserved_nodes = plan(members, capacity)
    assert reserved_nodes is not None
    return Counter(reserved_nodes.values())


def test_six_packed_pods_of_four_cores_take_three_nodes_of_ten() -> None:
    packed = pods_per_node(gang("g", 6, cpu="4"), FreeCapacity(NodeArrays(nodes(5))))
    assert sorted(packed.values()) == [2, 2, 2]


def test_a_packed_gang_goes_to_the_fullest_node_that_fits_all_of_it() -> None:
    capacity = FreeCapacity(NodeArrays([node("a", "20"), node("b", "9"), node("c", "10")]))
    for name in "bc":
        capacity.take(name, (("cpu", 1.0),))
    assert pods_per_node(gang("g", 4, cpu="2"), capacity) == {"b": 4}
    capacity.take("b", (("cpu", 1.0),))
    assert pods_per_node(gang("g", 4, cpu="2"), capacity) == {"c": 4}


@pytest.mark.parametrize(("size", "spread"), [(3, {"a": 1, "b": 1, "c": 1}), (5, {"a": 3, "b": 1, "c": 1})])
def test_a_spread_gang_shares_nodes_only_if_there_are_too_few(size: int, spread: dict[str, int]) -> None:
    """One node is much larger and emptier than the others, each of which has room for one pod."""
    capacity = FreeCapacity(NodeArrays([node("a", "100"), node("b", "6"), node("c", "6")]))
    for name in "bc":
        capacity.take(name, (("cpu", 1.0),))
    assert pods_per_node(gang("g", size, cpu="5", annotations=SPREAD), capacity) == spread


def test_the_rest_of_a_packed_gang_goes_to_the_node_of_the_others() -> None:
    assert plan(gang("g", 1), FreeCapacity(NodeArrays(nodes(3))), existing_nodes=["n2"]) == {"uid-g-0": "n2"}


def test_a_gang_of_one_goes_to_the_emptiest_node_unless_packed_or_requesting_gpus() -> None:
    """Jobs of one pod wait at the gate too: packed, they would crowd one node while others are idle."""
    candidates = [node(name, "10", resources={"nvidia.com/gpu": "8"}) for name in ("busy", "idle")]

    def chosen_node(**fields: Any) -> str:
        capacity = FreeCapacity(NodeArrays(candidates))
        capacity.take("busy", (("cpu", 6.0),))
        (found,) = (plan(gang("g", 1, **fields), capacity) or {}).values()
        return str(found)

    assert chosen_node() == "idle"
    assert chosen_node(annotations={"phasewise.dev/placement": "pack"}) == "busy"
    assert chosen_node(annotations=SPREAD) == "idle"
    assert chosen_node(requests={"nvidia.com/gpu": "1"}) == "busy", "whole nodes of GPUs stay free"


def test_a_driver_and_smaller_workers_fit_exactly() -> None:
    members = [pod("driver", gang="g", size=4, cpu="10"), *(pod(f"w{n}", gang="g", size=4, cpu="5") for n in range(3))]
    capacity = FreeCapacity(NodeArrays([node("a", "10"), node("b", "10"), node("c", "5")]))
    assert pods_per_node(members, capacity) in ({"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 1, "c": 1})


def test_a_gang_that_requests_more_gpus_than_there_are_does_not_fit() -> None:
    members = gang("g", 3, requests={"nvidia.com/gpu": "1"})
    assert plan(members, FreeCapacity(NodeArrays(nodes(5)))) is None
    two_gpus = node("gpu", resources={"nvidia.com/gpu": "2"})
    capacity = FreeCapacity(NodeArrays([*nodes(5), two_gpus]))
    assert plan(members, capacity) is None
    assert len(best_fit(members, capacity)) == 2


def test_members_fit_on_gpus_by_the_percentages_they_request() -> None:
    """Two GPUs that HAMi offers ten times each. That nodes list no percentages as resources does not matter."""
    devices = {"hami.io/node-nvidia-register": "GPU-1,10,16384,100,T4:GPU-2,10,16384,100,T4:"}
    capacity = FreeCapacity(NodeArrays([node("gpu", resources={"nvidia.com/gpu": "20"}, annotations=devices)]))
    for percent, fitting in (("60", 2), ("30", 6), ("100", 2)):
        shares = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": percent, "nvidia.com/gpumem": "4000"}
        assert plan(gang("g", fitting, cpu="1", requests=shares), capacity) is not None
        assert len(best_fit(gang("g", fitting + 1, cpu="1", requests=shares), capacity)) == fitting


def test_the_pod_limit_of_a_node_is_respected() -> None:
    small = node("small", resources={"pods": "2"})
    assert plan(gang("g", 3, cpu="100m"), FreeCapacity(NodeArrays([small]))) is None


CPUS = st.sampled_from(["500m", "1", "1500m", "3", "7"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["2", "4", "8", "10"]), min_size=1, max_size=6),
    st.lists(CPUS, min_size=1, max_size=12),
    st.booleans(),
)
def test_all_or_no_members_get_a_node_and_none_is_overfilled(sizes: list[str], cpus: list[str], spread: bool) -> None:
    node_arrays = NodeArrays([node(f"n{number}", cpu) for number, cpu in enumerate(sizes)])
    annotations = SPREAD if spread else {}
    members = [pod(f"p{n}", gang="g", size=len(cpus), cpu=cpu, annotations=annotations) for n, cpu in enumerate(cpus)]
    capacity = FreeCapacity(node_arrays)
    reserved_nodes = plan(members, capacity)
    assert (capacity.free == node_arrays.allocatable).all()
    if reserved_nodes is None:
        assert len(best_fit(members, capacity)) < len(members)
        return
    assert set(reserved_nodes) == {member.uid for member in members}
    for member in members:
        capacity.take(reserved_nodes[member.uid], member.requirements.needs)
    assert (capacity.free >= -1e-6).all()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 20), st.booleans())
def test_identical_members_fit_exactly_when_there_is_room(cores: list[int], cpu: int, size: int, spread: bool) -> None:
    node_arrays = NodeArrays([node(f"n{number}", str(each)) for number, each in enumerate(cores)])
    annotations = SPREAD if spread else {}
    reserved_nodes = plan(gang("g", size, cpu=str(cpu), annotations=annotations), FreeCapacity(node_arrays))
    assert (reserved_nodes is not None) == (sum(each // cpu for each in cores) >= size)


def test_pods_fit_in_any_order_if_the_others_cannot_fill_all_nodes_of_one() -> None:
    """Five pods of four cores may lie on five nodes of ten, which leaves no whole node; four of them may not."""
    five, whole = FreeCapacity(NodeArrays(nodes(5))), gang("whole", 1, cpu="10")
    assert not fit_in_any_order([*gang("fours", 5, cpu="4"), *whole], five)
    assert fit_in_any_order([*gang("fours", 4, cpu="4"), *whole], five)
    assert fit_in_any_order(gang("small", 20, cpu="1"), five)
    assert not fit_in_any_order(gang("too large", 1, cpu="11"), five)


KINDS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(0, 4)), min_size=1, max_size=4)
"""(pods, cores per pod, memory per pod in units of 10 GiB)"""


@given(KINDS, st.integers(1, 6), st.randoms(use_true_random=False))
def test_pods_that_fit_in_any_order_are_all_placed_by_a_scheduler_that_chooses_at_random(
    kinds: list[tuple[int, int, int]], count: int, rng: object
) -> None:
    members = [
        each
        for number, (size, cores, memory) in enumerate(kinds)
        for each in gang(f"g{number}", size, cpu=str(cores), requests={"memory": f"{10 * memory}Gi"})
    ]
    capacity = FreeCapacity(NodeArrays(nodes(count)))
    if not fit_in_any_order(members, capacity):
        return
    rng.shuffle(members)  # type: ignore[attr-defined]
    for each in members:
        fits = capacity.pods_that_fit(each.requirements).nonzero()[0].tolist()
        assert fits
        capacity.take(f"n{rng.choice(fits)}", each.requirements.needs)  # type: ignore[attr-defined]
