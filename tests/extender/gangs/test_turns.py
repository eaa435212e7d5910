"""Whose turn it is: by priority, then by how long each gang has waited for its turn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.gang import gangs_of
from extender.gangs.member import Member
from extender.gangs.turns import Turn, Turns
from tests.extender.gangs.herds import NOON_S, SimulatedCluster, gang, nodes


def in_order(pods: list[Member], turns: Turns, now_s: float = NOON_S) -> list[str]:
    return [gang.short_name for gang in turns.in_order(gangs_of(pods, lambda _: None), now_s)]


def test_gangs_are_ordered_by_priority_then_by_age() -> None:
    pods = [*gang("young", 1, age_s=1), *gang("old", 1, age_s=9), *gang("urgent", 1, priority=5)]
    assert in_order(pods, Turns()) == ["urgent", "old", "young"]


def test_after_an_admission_the_younger_gangs_of_its_namespace_wait_for_their_turn_anew() -> None:
    mine = [*gang("older", 1, age_s=99), *gang("younger", 1, age_s=80)]
    others = gang("other", 1, age_s=9, namespace="others")
    turns = Turns({"team": Turn(NOON_S - 5.0, NOON_S - 90.0)})
    assert in_order([*mine, *others], turns) == ["older", "other", "younger"]
    assert in_order([*mine, *others], turns, NOON_S - 10.0) == ["older", "younger", "other"], "a clock set back"


def test_of_twenty_older_gangs_of_one_namespace_one_goes_before_that_of_another() -> None:
    cluster = SimulatedCluster(nodes(1))
    for number in range(20):
        cluster.put(*gang(f"many{number:02}", 1, cpu="10m", age_s=99))
    cluster.step()
    cluster.put(*gang("four", 4, namespace="other", age_s=-cluster.at_s))
    assert [cluster.step() for _ in range(3)] == ["many01", "four", "many02"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=20))
def test_before_a_gang_go_at_most_those_of_its_own_namespace_and_one_of_each_other(made: list[tuple[int, int]]) -> None:
    """All fit, and one is admitted a second; new gangs of other namespaces come all the time."""
    cluster, goes_after = SimulatedCluster(nodes(5, cpu="1000")), dict[str, int]()
    for number, (namespace, age_s) in enumerate(made):
        cluster.put(*gang(f"g{number}", 1, namespace=f"of{namespace}", age_s=age_s))
    for step in range(4 * len(made)):
        cluster.put(*gang(f"late{step}", 1, namespace=f"of{step % 3}", age_s=-cluster.at_s))
        goes_after[cluster.step()] = step
    for namespace in {namespace for namespace, _ in made}:
        own = sorted((goes_after[f"g{n}"] for n, (of, _) in enumerate(made) if of == namespace))
        for before, step in enumerate(own):
            assert step <= (before + 1) * 4


def test_turns_of_namespaces_without_waiting_gangs_are_forgotten() -> None:
    (admitted,) = gangs_of(gang("g", 1), lambda _: None)
    assert Turns().after([admitted], admitted, None, NOON_S).of_namespace == {}
    (left,) = gangs_of(gang("h", 1), lambda _: None)
    turns = Turns().after([admitted, left], admitted, None, NOON_S)
    assert turns.of_namespace == {"team": Turn(NOON_S, NOON_S)}
    assert turns.after([replace(left, namespace="other")], None, None, NOON_S).of_namespace == {}
