"""Invariants of every policy in the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest

from recommender.base.errors import Misuse
from recommender.base.records import Block, FloatArray
from recommender.policies.registry import NEED_MODEL, POLICIES, Policy, make_policy
from recommender.simulate.judging import judge

Maker = Callable[..., Block]
CYCLE_SAMPLES = 8
NAMES = tuple(POLICIES)
ORACLES = ("ground.truth", "current.step.max", "current.step.rules")
PAST_ONLY = tuple(name for name in NAMES if name not in ORACLES)
SCALING = tuple(name for name in NAMES if name.startswith(("ground.", "current.", "prev.")))
"""The others know fixed amounts: floors, buckets, requests or levels of a phase."""


@pytest.fixture(params=NAMES)
def policy(request: pytest.FixtureRequest, model: Any) -> Policy:
    return make_policy(request.param, model)


@pytest.fixture
def make_block(policy: Policy, random_block: Maker) -> Maker:
    """Random containers with the decisions that the policy makes in a dry run."""

    def make(*args: int, gap: slice | None = None, **kwargs: float) -> Block:
        block = random_block(*args, **kwargs)
        if gap is not None:
            block.usage[gap] = np.nan
        samples = np.flatnonzero(~np.isnan(block.usage[:, 0]))
        covers_some = np.diff(np.searchsorted(samples, [*block.decisions, len(block.usage)])) > 0
        positions = block.decisions[covers_some]
        return replace(block, decisions=samples[samples >= positions[0]] if policy.every_sample else positions)

    return make


def up_to(block: Block, number: int) -> Block:
    """The samples before a decision, and the decisions up to it."""
    end = int(block.decisions[number])
    assert block.requests is not None
    labels = block.labels[:end]
    decisions = block.decisions[: number + 1]
    return Block(block.usage[:end], block.timestamps[:end], decisions, labels, block.requests[:end])


def allocated(policy: Policy, block: Block) -> FloatArray:
    return policy.decide(block, CYCLE_SAMPLES)[0]


def blocks(make_block: Maker) -> Iterator[Block]:
    yield make_block(0)
    yield make_block(1, gap_share=0.0)
    yield make_block(2, n=9, gap_share=0.0)
    yield make_block(3, gap_share=0.6)
    # Four samples, a gap of more than two cycles, then the first decision that covers anything.
    yield make_block(4, n=40, gap_share=0.0, gap=slice(4, 24))
    yield make_block(n=600, gap=slice(100, 500))


def test_the_registry_lists_the_policies_in_the_order_of_the_reports() -> None:
    assert NAMES == (
        "ground.truth",
        "current.step.max",
        "current.step.rules",
        "prev.step.max",
        "prev.step.rules",
        "phase.rules",
        "histogram",
    )
    assert {"phase.rules"} == NEED_MODEL


def test_policies_have_their_names_and_only_three_are_oracles_and_one_decides_every_sample(model: Any) -> None:
    made = [make_policy(name, model) for name in NAMES]
    assert tuple(p.name for p in made) == NAMES
    assert {p.name for p in made if p.oracle} == set(ORACLES)
    assert {p.name for p in made if p.every_sample} == {"ground.truth"}


def test_every_decision_is_two_finite_amounts_of_at_least_zero(policy: Policy, make_block: Maker) -> None:
    for block in blocks(make_block):
        allocations = allocated(policy, block)
        assert allocations.shape == (len(block.decisions), 2)
        assert allocations.dtype == np.float64
        assert np.isfinite(allocations).all()
        assert (allocations >= 0).all()


@pytest.mark.parametrize("policy", PAST_ONLY, indirect=True)
def test_a_decision_depends_on_the_past_only(policy: Policy, make_block: Maker) -> None:
    block = make_block()
    assert block.requests is not None
    for number in (0, 3, len(block.decisions) - 1):
        from_here = np.arange(len(block.usage)) >= block.decisions[number]
        other = replace(
            block,
            usage=np.where(from_here[:, np.newaxis], block.usage * 7 + 1, block.usage),
            requests=np.where(from_here[:, np.newaxis], block.requests * 3, block.requests),
            labels=np.where(from_here, 0, block.labels),
        )
        np.testing.assert_array_equal(allocated(policy, other)[: number + 1], allocated(policy, block)[: number + 1])


@pytest.mark.parametrize("policy", ORACLES, indirect=True)
def test_a_decision_of_an_oracle_depends_on_its_own_cycle_only(policy: Policy, make_block: Maker) -> None:
    block = make_block()
    for number, (begin, end) in enumerate(pairwise(block.decisions)):
        changed = block.usage * 9
        changed[begin:end] = block.usage[begin:end]
        allocations = allocated(policy, replace(block, usage=changed))
        np.testing.assert_array_equal(allocations[number], allocated(policy, block)[number])


@pytest.mark.parametrize("policy", PAST_ONLY, indirect=True)
def test_a_decision_is_the_same_with_and_without_later_samples(policy: Policy, make_block: Maker) -> None:
    block = make_block()
    all_allocations = allocated(policy, block)
    for number in (0, 4):
        np.testing.assert_array_equal(allocated(policy, up_to(block, number)), all_allocations[: number + 1])


def test_the_same_samples_give_the_same_decisions(policy: Policy, make_block: Maker) -> None:
    alone = allocated(policy, make_block(0))
    allocated(policy, make_block(5))
    np.testing.assert_array_equal(allocated(policy, make_block(0)), alone)


def test_a_policy_does_not_change_its_input(policy: Policy, make_block: Maker) -> None:
    block = make_block()
    assert block.requests is not None
    arrays = (block.usage, block.timestamps, block.decisions, block.labels, block.requests)
    before = [array.copy() for array in arrays]
    allocations = allocated(policy, block)
    allocations *= 2
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_steady_use_is_never_violated_after_the_first_cycle(policy: Policy, model: Any, make_block: Maker) -> None:
    block = make_block(gap_share=0.0)
    usage = np.tile(model.statistics.usage_mean[1], (len(block.usage), 1))
    steady = replace(block, usage=usage, labels=np.ones(len(usage), np.int64))
    allocations = allocated(policy, steady)
    tally = judge(usage, steady.decisions[1:], allocations[1:], np.ones(len(usage)))
    assert tally.violations == (0, 0)


def test_the_last_decision_has_an_explanation_in_json(policy: Policy, make_block: Maker) -> None:
    allocations, why = policy.decide(make_block(), CYCLE_SAMPLES)
    explanation = orjson.loads(orjson.dumps(dict(why)))
    assert explanation["rule"]
    assert [explanation["cpu_cores"], explanation["memory_bytes"]] == allocations[-1].tolist()


@pytest.mark.parametrize("policy", SCALING, indirect=True)
def test_twice_the_use_gets_twice_the_allocation(policy: Policy, make_block: Maker) -> None:
    block = make_block()
    twice = replace(block, usage=block.usage * 2)
    np.testing.assert_array_equal(allocated(policy, twice), allocated(policy, block) * 2)


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Misuse, match=r"no policy 'phase\.rule'\. Did you mean 'phase\.rules'"):
        make_policy("phase.rule")
