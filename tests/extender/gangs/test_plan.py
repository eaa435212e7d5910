"""Seats for a whole gang: packed, spread, and never more than fits."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.plan import guess, plan
from extender.gangs.room import Land, Room
from tests.extender.gangs.herds import gang, node, nodes, pod


def test_packed_six_times_four_cores_take_three_nodes_of_ten() -> None:
    seats = plan(gang("g", 6, cpu="4"), Room(Land(nodes(5))))
    assert seats is not None
    assert sorted(Counter(seats.values()).values()) == [2, 2, 2]


def test_packed_a_gang_goes_to_the_tightest_node_that_takes_it_whole() -> None:
    room = Room(Land([node("a", "20"), node("b", "9"), node("c", "10")]))
    seats = plan(gang("g", 4, cpu="2"), room)
    assert seats is not None
    assert len(set(seats.values())) == 1
    room.take("b", (("cpu", 1.0),))
    tight = plan(gang("g", 4, cpu="2"), room)
    assert tight is not None
    assert set(tight.values()) == {"b"}


def test_spread_three_pods_take_three_nodes() -> None:
    seats = plan(gang("g", 3, annotations={"phasewise.dev/placement": "spread"}), Room(Land(nodes(5))))
    assert seats is not None
    assert len(set(seats.values())) == 3


def test_spread_goes_beside_itself_where_it_must() -> None:
    seats = plan(gang("g", 5, cpu="5", annotations={"phasewise.dev/placement": "spread"}), Room(Land(nodes(3))))
    assert seats is not None
    assert sorted(Counter(seats.values()).values()) == [1, 2, 2]


def test_the_rest_of_a_packed_gang_goes_where_the_others_are() -> None:
    assert plan(gang("g", 1), Room(Land(nodes(3))), there=["n2"]) == {"uid-g-0": "n2"}


def test_a_driver_and_its_workers_of_another_size_fit_exactly() -> None:
    members = [pod("driver", gang="g", size=4, cpu="10"), *(pod(f"w{n}", gang="g", size=4, cpu="5") for n in range(3))]
    room = Room(Land([node("a", "10"), node("b", "10"), node("c", "5")]))
    seats = plan(members, room)
    assert seats is not None
    assert Counter(seats.values()) == {"a": 1, "b": 2, "c": 1} or Counter(seats.values()) == {"b": 1, "a": 2, "c": 1}


def test_a_gpu_that_no_node_has_fits_nowhere_and_those_there_are_are_counted() -> None:
    members = gang("g", 3, requests={"nvidia.com/gpu": "1"})
    assert plan(members, Room(Land(nodes(5)))) is None
    two = node("gpu", more={"nvidia.com/gpu": "2"})
    room = Room(Land([*nodes(5), two]))
    assert plan(members, room) is None
    assert len(guess(members, room)) == 2


def test_the_number_of_pods_of_a_node_is_a_limit_too() -> None:
    small = node("small", more={"pods": "2"})
    assert plan(gang("g", 3, cpu="100m"), Room(Land([small]))) is None


CPUS = st.sampled_from(["500m", "1", "1500m", "3", "7"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["2", "4", "8", "10"]), min_size=1, max_size=6),
    st.lists(CPUS, min_size=1, max_size=12),
    st.booleans(),
)
def test_all_or_none_and_never_more_than_fits(sizes: list[str], cpus: list[str], spread: bool) -> None:
    land = Land([node(f"n{number}", cpu) for number, cpu in enumerate(sizes)])
    words = {"phasewise.dev/placement": "spread"} if spread else {}
    members = [pod(f"p{n}", gang="g", size=len(cpus), cpu=cpu, annotations=words) for n, cpu in enumerate(cpus)]
    room = Room(land)
    seats = plan(members, room)
    assert (room.free == land.allocatable).all()
    if seats is None:
        assert len(guess(members, room)) < len(members)
        return
    assert set(seats) == {member.uid for member in members}
    for member in members:
        room.take(seats[member.uid], member.ask.needs)
    assert (room.free >= -1e-6).all()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 20), st.booleans())
def test_alike_members_fit_exactly_when_there_is_room(cores: list[int], cpu: int, size: int, spread: bool) -> None:
    land = Land([node(f"n{number}", str(each)) for number, each in enumerate(cores)])
    words = {"phasewise.dev/placement": "spread"} if spread else {}
    seats = plan(gang("g", size, cpu=str(cpu), annotations=words), Room(land))
    assert (seats is not None) == (sum(each // cpu for each in cores) >= size)
