"""What there is of one container name: the largest demand among its containers, and whether it is to be trusted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from recommender.live.fleet.member import CLASS, FORECAST, Decision, Member
from recommender.live.view.present import NOTHING, Present, Used, look_through
from recommender.records import UNKNOWN_PHASE

HAS = (2.0, 4e9)


def decided(cpu_cores: float, memory_bytes: float, policy: str = FORECAST, run_s: float = 60.0) -> Decision:
    return Decision(0.0, (cpu_cores, memory_bytes), policy, lambda: "by hand", run_s)


def member(decision: Decision | None, **more: Any) -> Member:
    nobody: Any = None
    parts = dict.fromkeys(("instance", "facts", "proactive", "history", "runs"), nobody)
    return Member(**parts, slot=0, first_cell=0, decision=decision, **({"phase": 1} | more))


def seen(*members: Member, expected: tuple[Decision, ...] = ()) -> Present:
    return look_through(members, expected, Used(2e9, pinned=True), HAS, 0.0)


def test_each_resource_is_that_of_whoever_needs_most_of_it() -> None:
    small, large = member(decided(1.0, 3e9)), member(decided(2.0, 1e9, run_s=90.0))
    found = seen(small, large, member(None))
    assert found.forecast == (2.0, 3e9)
    assert found.leading is large and found.decision is large.decision
    assert (found.working_set_bytes, found.pinned, found.run_s) == (2e9, True, 90.0)
    assert (found.doubt, found.requests) == (None, HAS)


def test_of_equal_ones_the_first_leads_and_one_to_come_leads_nobody() -> None:
    first, second, coming = member(decided(1.0, 1e9)), member(decided(1.0, 1e9)), decided(3.0, 5e8)
    assert seen(first, second).leading is first
    found = seen(first, second, expected=(coming,))
    assert found.forecast == (3.0, 1e9)
    assert found.leading is first and found.decision is coming
    assert seen(expected=(coming,)).leading is None


@pytest.mark.parametrize(
    ("members", "expected", "doubt"),
    [
        ([], [], "no running container"),
        ([member(None)], [], "too little history"),
        ([member(decided(1.0, 1e9), phase=UNKNOWN_PHASE)], [], "phase unknown"),
        ([member(decided(1.0, 1e9), phase=UNKNOWN_PHASE), member(decided(1.0, 1e9))], [], None),
        ([member(decided(1.0, 1e9, CLASS), phase=UNKNOWN_PHASE)], [], None),
        ([member(None)], [decided(1.0, 1e9)], None),
    ],
)
def test_doubt_by_hand(members: list[Member], expected: list[Decision], doubt: str | None) -> None:
    found = seen(*members, expected=tuple(expected))
    assert found.doubt == doubt
    assert (found.decision is None) == (doubt in ("no running container", "too little history"))


def test_where_nothing_is_foreseen_nothing_is_a_number() -> None:
    found = seen()
    assert found.forecast is NOTHING and math.isinf(found.run_s)


@pytest.mark.parametrize("allocation", [(math.nan, 1e9), (1.0, math.nan), (math.nan, math.nan), (math.inf, 1e9)])
def test_an_allocation_is_of_both_resources(allocation: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="an allocation of"):
        decided(*allocation)
