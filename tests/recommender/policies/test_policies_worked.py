"""Each policy on numbers small enough to follow by hand, then against a reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.records import Block, FloatArray
from recommender.policies.ai4dl import phase_rules, statistics_of
from recommender.policies.registry import POLICIES, make_policy
from recommender.simulate.judging import decision_positions
from tests.baselines import replay as reference

GAP = (np.nan, np.nan)
CYCLE_SAMPLES = 2
USAGE = np.array([(1, 10), (1, 10), (3, 30), (5, 10), (2, 20), (4, 20), GAP, GAP, (7, 70), GAP], float)
"""Cycle 2: decisions at 4 (cells 4-5), 6 (a gap, dropped by the dry run) and 8 (cells 8-9)."""


class TwoPhases:
    class statistics:  # noqa: N801
        usage_mean = np.array([[1.0, 10.0], [4.0, 20.0]])
        usage_sd = np.array([[0.5, 1.0], [1.0, 5.0]])


def decide(name: str, block: Block, cycle_samples: int = CYCLE_SAMPLES) -> list[list[float]]:
    allocations: list[list[float]] = make_policy(name, TwoPhases).decide(block, cycle_samples)[0].tolist()
    return allocations


def block(decisions: list[int], labels: list[int] | None = None, requests: FloatArray | None = None) -> Block:
    return Block(USAGE, np.arange(10) * 15, np.array(decisions), np.array(labels), requests)


def test_ground_truth_is_the_usage() -> None:
    assert decide("ground.truth", block([4, 5, 8])) == [[2, 20], [4, 20], [7, 70]]


def test_the_oracles_read_the_coming_cycle() -> None:
    assert decide("current.step.max", block([4, 8])) == [[4, 20], [7, 70]]
    # Mean 3 and population standard deviation 1; then a single sample without spread.
    assert decide("current.step.rules", block([4, 8])) == [[5, 20], [7, 70]]


def test_the_reactive_policies_read_the_cycle_just_ended() -> None:
    assert decide("prev.step.max", block([4])) == [[5, 30]]
    # Cores 3, 5: mean 4, spread 1. Bytes 30, 10: mean 20, spread 10.
    assert decide("prev.step.rules", block([4])) == [[6, 40]]


def test_a_cycle_in_a_gap_keeps_the_allocation() -> None:
    assert decide("prev.step.max", block([4, 8])) == [[5, 30], [5, 30]]


def test_the_first_decision_after_a_gap_reads_the_cycle_before_the_gap() -> None:
    assert decide("prev.step.max", block([8])) == [[4, 20]]


def test_a_first_cycle_that_is_too_short_reads_all_samples() -> None:
    assert decide("prev.step.max", block([4]), 40) == [[5, 30]]


def test_phase_rules_take_the_phase_right_before_the_cycle() -> None:
    labels = [0, 0, 0, 1, 0, 0, 0, 0, 1, 1]
    assert decide("phase.rules", block([4, 8], labels)) == [[6, 30], [2, 12]]


def test_an_unknown_phase_falls_back_to_the_cycle_just_ended_and_is_counted() -> None:
    labels = [0, 0, 0, -1, 0, 1, 1, 1, 1, 1]
    allocations, explanation = make_policy("phase.rules", TwoPhases).decide(block([4, 6], labels), CYCLE_SAMPLES)
    assert allocations.tolist() == [[5, 30], [6, 30]]
    assert (explanation["decisions"], explanation["fallbacks"], explanation["phase"]) == (2, 1, 1)


def test_a_phase_that_the_model_does_not_have_is_unknown() -> None:
    assert decide("phase.rules", block([4], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0])) == [[5, 30]]


def test_a_phase_not_met_in_training_falls_back_as_an_unknown_one() -> None:
    """As after `model split` with data that do not have all phases."""

    decide_by_phase = phase_rules(np.array([[1.0, 10.0], [np.nan, np.nan]]), TwoPhases.statistics.usage_sd)
    assert decide_by_phase(block([4], [1] * 10), CYCLE_SAMPLES)[0].tolist() == [[5, 30]]


def test_bytes_too_large_for_sums_of_squares_keep_their_spread() -> None:
    usage = np.array([[1.0, 1e15 + 1], [1.0, 1e15 + 3]])
    found = statistics_of(usage, np.array([0]), np.array([2]))
    assert (found.mean[0, 1], found.spread[0, 1]) == (1e15 + 2, 1.0)


def test_a_constant_has_no_spread_at_all() -> None:
    found = statistics_of(np.full((7, 2), 0.1), np.array([0]), np.array([7]))
    assert found.mean.tolist() == [[0.1, 0.1]]
    assert found.spread.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", POLICIES)
@given(
    draw=st.integers(0, 2**32 - 1),
    n=st.integers(5, 70),
    gap_share=st.sampled_from([0.0, 0.2, 0.7]),
    cycle=st.integers(1, 7),
    declared=st.booleans(),
)
@settings(max_examples=25, deadline=None, report_multiple_bugs=False)
def test_a_policy_agrees_with_the_reference(
    name: str, draw: int, n: int, gap_share: float, cycle: int, declared: bool
) -> None:
    generator = np.random.default_rng(draw)
    usage = np.column_stack([generator.choice([0.0, 0.1, 0.7, 2.0, 33.3], n), generator.integers(0, 11, n) * 4e8])
    usage[generator.random(n) < gap_share] = np.nan
    labels = generator.integers(-1, 2, n)
    requests = np.full((n, 2), np.nan)
    requests[[2, n // 2]] = (2.0, 1e9) if declared else GAP
    times = 1_700_000_000 + np.arange(n) * 300
    demand = TwoPhases.statistics.usage_mean + 2 * TwoPhases.statistics.usage_sd
    container = reference.Container(
        samples=[None if np.isnan(row[0]) else (row[0], row[1]) for row in usage.tolist()],
        times=times.tolist(),
        requests=[None if np.isnan(row[0]) else (row[0], row[1]) for row in requests.tolist()],
        labels=labels.tolist(),
        phase_demand=[(row[0], row[1]) for row in demand.tolist()],
        cycle=cycle,
    )
    positions = decision_positions(~np.isnan(usage[:, 0]), cycle, 3)
    assert positions.tolist() == container.decisions()
    if not len(positions):
        return
    expected = reference.allocations(name, container)
    made = Block(usage, times, np.array([p for p, _ in expected]), labels, requests)
    found = make_policy(name, TwoPhases).decide(made, cycle)[0]
    np.testing.assert_allclose(found, [GAP if a is None else a for _, a in expected], rtol=1e-12, atol=0)
