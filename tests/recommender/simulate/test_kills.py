"""Memory kills and their cost: worked examples, agreement with the reference, and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, RunTally
from recommender.simulate.judging import ClusterRules, judge_run
from tests.reference import memory as reference

GIB = 2.0**30
MIB = 2.0**20


def judged(
    memory_gib: list[float], allocated_gib: list[float], rules: ClusterRules, first: int = 0, delay_samples: int = 0
) -> RunTally:
    """One decision per sample from `first` on; samples of 10 s, 1 core and 4 GiB declared."""
    usage = np.column_stack([np.full(len(memory_gib), 0.5), np.array(memory_gib) * GIB])
    declared = np.tile([1.0, 4.0 * GIB], (len(usage), 1))
    allocations = np.array([[1.0, gib * GIB] for gib in allocated_gib])
    positions = np.arange(first, first + len(allocations))
    return judge_run(usage, declared, positions, allocations, np.full(len(usage), 10.0), rules, None, delay_samples)


def test_a_kill_costs_the_run_so_far_and_a_restart_and_raises_the_floor() -> None:
    # Killed at the third sample, 20 s old, with 2 GiB: the floor is 2.4. It redoes 20 s and restarts for 120 s.
    tally = judged([1, 2, 2.3, 2.3], [2, 2, 2, 2], ClusterRules())
    assert (tally.kills, tally.killed_runs, tally.runs) == (1, 1, 1)
    assert tally.lost[MEMORY] == pytest.approx(140 * 2.4 * GIB)
    assert tally.lost[CPU] == pytest.approx(140)
    assert tally.reserved[MEMORY] == pytest.approx((2 + 2 + 2.4 + 2.4) * 10 * GIB)
    assert tally.net_saved(MEMORY) == pytest.approx(1 - (88 + 140 * 2.4) / 160)


@pytest.mark.parametrize(
    ("memory", "had", "checkpoint_every_s", "floors"),
    [
        ([1, 3], 2, math.inf, [2.4, 2.88, 3.456]),
        ([0.05, 0.12], 0.1, math.inf, [0.1 + 100 / 1024]),
        ([1, 1, 1, 2.1], 2, 20.0, [2.4]),
    ],
    ids=["killed again at the same sample", "raised by 100 MiB at least", "only what came after the last checkpoint"],
)
def test_each_kill_loses_the_work_so_far_at_its_floor(
    memory: list[float], had: float, checkpoint_every_s: float, floors: list[float]
) -> None:
    rules = ClusterRules(restart_s=0.0, checkpoint_every_s=checkpoint_every_s)
    tally = judged(memory, [had] * len(memory), rules)
    assert tally.kills == len(floors)
    assert tally.lost[MEMORY] == pytest.approx(10 * sum(floors) * GIB)


def test_the_declared_amounts_are_in_force_until_the_first_decision_is() -> None:
    # Decided at sample 0, in force from sample 2 on: use before that is judged by the declared 4 GiB.
    assert judged([3, 3, 1], [2, 2, 2], ClusterRules(), delay_samples=2).kills == 0
    assert judged([3, 3, 3], [2, 2, 2], ClusterRules(), delay_samples=2).killed_runs == 1


def test_samples_before_the_first_decision_add_to_the_age_but_are_not_judged() -> None:
    tally = judged([9, 9, 3], [2], ClusterRules(restart_s=0.0), first=2)
    assert tally.kills == 3
    assert tally.declared[MEMORY] == pytest.approx(40 * GIB)
    assert tally.lost[MEMORY] == pytest.approx(20 * (2.4 + 2.88 + 3.456) * GIB)


def test_a_change_that_recreates_costs_what_a_kill_does_also_if_it_lowers_memory_to_the_floor() -> None:
    # Killed at the third sample; the floor is 2.4 GiB, which is no change of its own. Recreated at 40 s with 3 GiB, and
    # at 60 s with the floor, since the target is below it. At 70 s it keeps the floor.
    tally = judged([1, 1, 2.3, 1, 1, 1, 1, 1], [2, 2, 2, 2.4, 3, 3, 1, 2], ClusterRules(recreates=True))
    assert tally.kills == 1
    assert tally.lost[CPU] == pytest.approx((20 + 120) + (40 + 120) + (60 + 120))
    assert tally.lost[MEMORY] == pytest.approx((140 * 2.4 + 160 * 3 + 180 * 2.4) * GIB)


levels = st.lists(st.one_of(st.just(math.nan), st.floats(0.01, 20.0)), min_size=1, max_size=30)


@given(levels, st.lists(st.floats(0.1, 20.0), min_size=30, max_size=30), st.integers(0, 5), st.booleans())
@example([2.0] * 3, [2.0] * 30, 0, False)
@example([0.1 * (1 + 2e-16)], [0.1] * 30, 0, False)  # equal to the allocation except for rounding
def test_kills_and_their_cost_agree_with_the_reference(
    memory: list[float], allocated: list[float], first: int, recreates: bool
) -> None:
    first = min(first, len(memory) - 1)
    tally = judged(memory, allocated[first : len(memory)], ClusterRules(recreates=recreates), first)
    in_force = [(1.0, gib * GIB) for gib in allocated[: len(memory)]]
    kills, reserved, lost = reference.kills_of([m * GIB for m in memory], in_force, 10.0, first, 120.0, recreates)
    assert tally.kills == kills
    assert tally.reserved[MEMORY] == pytest.approx(reserved)
    assert tally.lost[MEMORY] == pytest.approx(lost)


@given(st.lists(st.floats(0.01, 20.0), min_size=1, max_size=30), st.floats(0.1, 20.0), st.floats(1.0, 3.0))
def test_more_memory_never_kills_more_runs(memory: list[float], allocated: float, factor: float) -> None:
    n = len(memory)
    less = judged(memory, [allocated] * n, ClusterRules())
    more = judged(memory, [allocated * factor] * n, ClusterRules())
    assert more.killed_runs <= less.killed_runs
    assert judged(memory, [20.0] * n, ClusterRules()).kills == 0


def test_savings_are_nan_where_nothing_is_declared() -> None:
    assert math.isnan(RunTally(runs=1).net_saved(MEMORY))
