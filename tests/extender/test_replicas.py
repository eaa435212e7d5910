"""Several extenders over one cluster: one takes over from another, or both place pods at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.settings import Settings
from tests.worlds.placement import NO_MEMORY, Json, World, class_json, node_json, pod_json

LARGE = class_json("large", [1.0] * 24, [3.0] * 24)
"""Two of them fit on a node of 8 GiB, whatever they request."""


def worlds(nodes: int, *objects: Json, settings: Settings | None = None) -> tuple[World, World]:
    known = (LARGE, *(node_json(f"n{number}", memory="8Gi") for number in range(nodes)), *objects)
    return World(settings, *known), World(settings, *known)


def large(number: int, node: str = "", scheduler: str = "phasewise") -> Json:
    return pod_json(f"p{number}", workload="large", memory="512Mi", node=node, scheduler=scheduler)


@given(
    st.lists(st.tuples(st.sampled_from(["500m", "1", "2"]), st.sampled_from(["", "large"]), st.booleans()), max_size=12)
)
def test_a_replica_that_takes_over_decides_as_the_former_one_would(pods: list[tuple[str, str, bool]]) -> None:
    """All that matters is in the cluster: advice only stands in for pods that are not bound yet, and ends with the
    scheduler that asked for it."""
    former, next_one = worlds(4)
    for number, (cpu, workload, lost) in enumerate(pods):
        asked = pod_json(f"p{number}", cpu=cpu, workload=workload, memory="512Mi")
        node = former.place(asked)
        if not node or lost:  # the scheduler ended before it bound the pod
            former.state.withdraw(asked["metadata"]["uid"])
            continue
        for world in (former, next_one):
            world.put(pod_json(f"p{number}", cpu=cpu, workload=workload, memory="512Mi", node=node))
    waiting = pod_json("next", workload="large", memory="512Mi")
    assert next_one.filter(waiting) == former.filter(waiting)
    assert next_one.prioritize(waiting) == former.prioritize(waiting)


def test_profiles_that_share_an_extender_never_overload_a_node_together() -> None:
    both = Settings(schedulers=frozenset({"first", "second"}))
    world, _ = worlds(2, settings=both)
    placed = [world.place(large(number, scheduler=("first", "second")[number % 2])) for number in range(6)]
    assert sorted(placed) == ["", "", "n0", "n0", "n1", "n1"]


def test_pods_of_a_profile_that_the_extender_was_not_told_of_are_scored_but_refused_no_node() -> None:
    world, _ = worlds(1)
    world.put(large(0, "n0"), large(1, "n0"))
    assert world.filter(large(2)) == {"n0": NO_MEMORY}
    assert world.filter(large(3, scheduler="untold")) == {}


def test_extenders_that_place_at_the_same_time_know_of_each_others_pods_once_they_are_bound() -> None:
    """So each has nodes of its own (docs/how-to/coexist.md), or pods in flight may exceed a node together."""
    first, second = worlds(1)
    assert [first.place(large(0)), first.place(large(1)), first.place(large(2))] == ["n0", "n0", ""]
    assert [second.place(large(3)), second.place(large(4))] == ["n0", "n0"], "it has not seen those of the first bound"
    for world in (first, second):
        world.put(*(large(number, "n0") for number in (0, 1, 3, 4)))
        assert world.filter(large(5)) == {"n0": NO_MEMORY}
