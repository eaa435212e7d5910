"""Free capacity is kept for a gang that has waited for long: worked examples, then simulations of random streams."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.gangs.member import Member
from extender.gangs.turns import Turns, Window
from tests.extender.gangs.herds import NOON_S, SimulatedCluster, decided, gang, messages, nodes, pod, reserved

FOUR = nodes(4, cpu="16")
KEY = ("team", "phasewise.dev/gang=large")
LARGE = gang("large", 4, cpu="13", age_s=700)
STREAM = [pod(f"s{n}", on=f"n{n % 4}", cpu="4") for n in range(12)]
"""Three pods of four cores on each node of sixteen, all younger than the large gang."""


def test_after_ten_minutes_the_nodes_of_the_first_gang_are_kept_until_it_fits() -> None:
    early = decided([*STREAM, *LARGE], FOUR, -101.0)
    assert (early.kept, messages(early)) == (None, {"large": "GangWaiting: 0 of 4 pods fit"})
    decision = decided([*STREAM, *LARGE], FOUR)
    assert decision.kept is not None
    assert sorted(decision.kept.nodes.values()) == ["n0", "n1", "n2", "n3"]
    assert messages(decision) == {"large": "GangWaiting: 0 of 4 pods fit; free capacity is kept for it on 4 nodes"}
    waiting = [reserved(member, decision.kept.nodes[member.uid]) for member in LARGE]
    refilled = [pod(f"p{n}", cpu="4") for n in range(8)]  # pods that the extender refuses now
    admitted = decided([*refilled, *waiting], FOUR, 10.0, turns=decision.turns)
    assert (str(admitted.admit), admitted.reserved_nodes) == ("team/large", decision.kept.nodes)
    assert not admitted.turns.windows


def test_nothing_is_kept_at_once_because_the_clock_of_the_api_server_is_ahead() -> None:
    assert decided([*STREAM, *gang("large", 4, cpu="13", age_s=-2.0)], FOUR).kept is None


def test_capacity_is_kept_on_the_emptiest_nodes_that_suffice() -> None:
    two = gang("two", 2, cpu="13", age_s=700)
    decision = decided([*(each for each in STREAM if each.key.name not in ("s2", "s3", "s7")), *two], FOUR)
    assert decision.kept is not None
    assert sorted(decision.kept.nodes.values()) == ["n2", "n3"]


def test_kept_nodes_stay_the_same_while_the_gang_can_go_there_at_all() -> None:
    two = [reserved(member, f"n{n}") for n, member in enumerate(gang("two", 2, cpu="13", age_s=700))]
    decision = decided([*STREAM[:10], *two], FOUR)
    assert decision.kept is not None
    assert decision.kept.nodes == {"uid-two-0": "n0", "uid-two-1": "n1"}
    endless = pod("web", on="n0", cpu="4", owner=("ReplicaSet", "web"))
    decision = decided([endless, *STREAM[:10], *two], FOUR)
    assert decision.kept is not None
    assert sorted(decision.kept.nodes.values()) == ["n2", "n3"]


@pytest.mark.parametrize(("cores", "waits"), [("3", False), ("3500m", True)])
def test_a_gang_that_makes_the_first_no_later_goes_before_it(cores: str, waits: bool) -> None:
    """Beside 13 of 16 cores there is room for three: all pods of four have to end before the first gang starts, with or
    without those of the small one."""
    small = gang("small", 2, cpu=cores)
    decision = decided([*STREAM, *LARGE, *small], FOUR)
    assert (decision.admit is None) == waits
    small_pods = [pod(f"tiny{n}", on=f"n{n}", cpu="1", age_s=1.0) for n in range(4)]  # which may stay, beside 13
    decision = decided([*STREAM, *small_pods, *LARGE, *gang("small", 2, cpu="3")], FOUR)
    assert decision.admit is None


def test_before_that_a_gang_behind_one_that_younger_pods_keep_out_is_not_held_up() -> None:
    decision = decided([*STREAM, *gang("large", 4, cpu="13", age_s=60), *gang("small", 2, cpu="500m")], FOUR)
    assert messages(decision)["small"].endswith("does not delay team/large")


def test_capacity_that_is_kept_in_vain_is_released_and_the_gang_queues_anew_for_twice_as_long() -> None:
    first = decided([*STREAM, *LARGE], FOUR)
    assert first.turns.windows == {KEY: Window(NOON_S, NOON_S + 3600.0)}
    waiting = [reserved(each, "n0", 3600.0) for each in LARGE]
    other = gang("other", 1, cpu="16", age_s=-1800.0)
    over = decided([*STREAM, *waiting, *other], FOUR, 3600.0, turns=first.turns)
    assert over.kept is not None
    assert (str(over.kept.gang), set(over.stale)) == ("team/other", set(waiting))
    assert messages(over)["large"] == "GangWaiting: waits behind team/other"
    assert decided([*STREAM, *LARGE], FOUR, 7199.0, turns=over.turns).kept is None, "for as long, others have it"
    again = decided([*STREAM, *LARGE], FOUR, 7200.0, turns=over.turns)
    assert again.turns.windows == {KEY: Window(NOON_S + 7200.0, NOON_S + 7200.0 + 7200.0)}


@pytest.mark.parametrize("set_to_s", [-100_000.0, 100_000.0])
def test_a_step_of_the_clock_does_not_keep_a_gang_waiting_for_longer(set_to_s: float) -> None:
    first = decided([*STREAM, *LARGE], FOUR)
    stepped = decided([*STREAM, *LARGE], FOUR, set_to_s, turns=first.turns)
    later = decided([*STREAM, *LARGE], FOUR, set_to_s + 3601.0, turns=stepped.turns)
    assert later.kept is not None


def test_nothing_is_kept_from_a_pod_or_a_gang_of_higher_priority() -> None:
    waiting = [reserved(each, f"n{n}") for n, each in enumerate(LARGE)]
    turns = Turns(windows={KEY: Window(NOON_S, NOON_S + 3600.0)})
    urgent = gang("urgent", 4, cpu="8", priority=7)
    assert str(decided([*waiting, *urgent], FOUR, 1.0, turns=turns).admit) == "team/urgent"
    pending = [pod(f"p{n}", cpu="8", priority=7) for n in range(4)]
    assert decided([*waiting, *pending], FOUR, 1.0, turns=turns).admit is None


class Stream:
    """Pods that come and go at random beside gangs: on average more than the nodes can hold."""

    def __init__(self, rng: random.Random, longest_s: float) -> None:
        self._rng, self._longest_s, self._count = rng, longest_s, 0
        self._ends_s: dict[str, float] = {}

    def arrivals(self, cluster: SimulatedCluster) -> Iterator[Member]:
        pending = sum(1 for each in cluster.pods.values() if not each.node)
        for _ in range(self._rng.randint(0, 3) if pending < 10 else 0):
            self._count += 1
            yield pod(f"s{self._count}", cpu=str(self._rng.choice((1, 2, 4, 8))), age_s=-cluster.at_s)

    def ended(self, cluster: SimulatedCluster, bound: list[str]) -> list[str]:
        now_s, rng = cluster.at_s, self._rng
        self._ends_s |= {f"uid-{name}": now_s + rng.uniform(0.2, 1.0) * self._longest_s for name in bound}
        return [uid for uid, end_s in self._ends_s.items() if end_s <= now_s and uid in cluster.pods]


def waits_s(seed: int, size: int, cores: int, longest_s: float, step_s: float = 60.0) -> dict[str, float]:
    """How long a gang waits that comes ten minutes after a stream of pods, and a small one ten minutes later; both run
    for as long as the longest of the pods."""
    cluster, stream, created_s = SimulatedCluster(FOUR), Stream(random.Random(seed), longest_s), {}  # noqa: S311
    comes = {600.0: gang("large", size, cpu=str(cores), age_s=-600.0)}
    comes[1200.0] = gang("small", 2, cpu="500m", namespace="other", age_s=-1200.0)
    waited = dict[str, float]()
    while len(waited) < 2 and cluster.at_s < 60_000.0:
        cluster.put(*stream.arrivals(cluster), *comes.get(cluster.at_s, ()))
        created_s |= {each.membership.name.rpartition("=")[2]: cluster.at_s for each in comes.get(cluster.at_s, ())}
        if name := cluster.step(step_s=step_s):
            waited[name] = cluster.at_s - created_s[name]
        for name, after_s in waited.items():
            if cluster.at_s >= created_s[name] + after_s + longest_s:
                cluster.end(name)
        for uid in stream.ended(cluster, cluster.bind()):
            del cluster.pods[uid]
    return waited


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(9, 16), st.sampled_from([600.0, 1800.0, 3000.0]))
def test_no_gang_waits_longer_than_ten_minutes_and_the_longest_pod_of_a_stream(
    seed: int, size: int, cores: int, longest_s: float
) -> None:
    """For pods that end within an hour: so long capacity is kept at first. The small gang may have to wait until the
    large one has ended."""
    waited = waits_s(seed, size, cores, longest_s)
    kept_and_drained_s = 600.0 + longest_s + 3 * 60.0
    assert waited["large"] <= kept_and_drained_s
    assert waited["small"] <= 2 * kept_and_drained_s + longest_s


def test_a_gang_beside_a_stream_of_long_pods_is_admitted_once_capacity_is_kept_for_longer_than_they_take() -> None:
    """Pods of up to three hours: an hour and two hours are in vain, four hours are not."""
    waited = waits_s(1, size=4, cores=16, longest_s=3 * 3600.0)
    assert 3600.0 < waited["large"] <= 600.0 + (1 + 1 + 2 + 2 + 3) * 3600.0 + 600.0
