"""Replicas that share one history."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.base.records import Block, FloatArray
from recommender.policies.histogram import HistogramAggregate, HistogramSession

NO_DECISION = np.empty(0, np.int64)


def block(cpu_cores: float, memory_bytes: float, start_s: int, n: int) -> Block:
    usage = np.tile([cpu_cores, memory_bytes], (n, 1))
    return Block(usage, np.arange(start_s, start_s + 60 * n, 60, dtype=np.int64), NO_DECISION)


def estimate_of(session: HistogramSession | HistogramAggregate) -> FloatArray:
    if isinstance(session, HistogramSession):
        estimate = session.estimate()
        return np.array([estimate.lower, estimate.target, estimate.upper])
    requests = np.empty((3, 2))
    session.estimate_into(requests)
    return requests


def test_a_single_container_is_estimated_as_without_an_aggregate() -> None:
    alone, together = HistogramSession(), HistogramAggregate()
    for part in (block(0.5, 2**29, 0, 61), block(0.25, 2**28, 3660, 30)):
        alone.advance(part)
        together.session("a").advance(part)
    np.testing.assert_array_equal(estimate_of(together), estimate_of(alone))


def test_a_shorter_interval_keeps_more_memory_peaks_and_so_forgets_a_high_one_sooner() -> None:
    by_day, by_hour = HistogramAggregate(), HistogramAggregate()
    by_hour.memory_interval_s = 3600
    for aggregate in (by_day, by_hour):
        session = aggregate.session("a")
        session.advance(block(0.5, 2**32, 0, 1))
        session.advance(block(0.5, 2**28, 60, 24 * 60 - 1))
    assert estimate_of(by_day)[1][1] > 2**32, "the day's one peak"
    assert estimate_of(by_hour)[1][1] < 2**29, "one of 24 is above the 90th percentile"


def test_there_is_no_estimate_before_the_first_sample() -> None:
    assert not estimate_of(HistogramAggregate()).any()


def test_replicas_add_their_samples_and_a_removed_one_leaves_its_history() -> None:
    aggregate = HistogramAggregate()
    aggregate.session("a").advance(block(0.5, 2**29, 0, 60))
    aggregate.session("b").advance(block(1.0, 2**30, 0, 60))
    before, samples = estimate_of(aggregate), aggregate.samples
    aggregate.leave("a")
    assert aggregate.samples == samples == 120
    np.testing.assert_array_equal(estimate_of(aggregate), before)
    assert before[1, 0] == 1.168  # the busier replica decides the 90th percentile


def test_an_oom_kill_raises_the_target_as_upstream_does() -> None:
    session = HistogramSession()
    session.advance(block(0.1, 50 * 2**20, 0, 2))
    session.observe_oom(120.0, 1200 * 2**20)
    assert session.estimate().target[1] == 1470157273


def test_an_estimate_of_an_aggregate_may_be_below_the_pod_minimum() -> None:
    """Containers share the minimum of their pod, which is applied where all of them are known."""
    alone, together = HistogramSession(), HistogramAggregate()
    for session in (alone, together.session("a")):
        session.advance(block(0.001, 2**20, 0, 60))
    assert estimate_of(alone)[1].tolist() == [0.025, 250 * 2**20]
    assert estimate_of(together)[1].tolist() == [0.011, 11_500_000]


def test_a_container_that_is_killed_before_its_first_sample_has_an_estimate() -> None:
    aggregate = HistogramAggregate()
    aggregate.session("a").observe_oom(120.0, 1200 * 2**20)
    aggregate.leave("a")
    assert estimate_of(aggregate)[1].tolist() == [0.0, 1470157273]


@pytest.mark.parametrize(
    ("gaps", "looks", "counted"),
    [([], 5, [0, 4, 7]), ([4], 5, [0, 3, 7]), ([0, 5, 6, 7], 5, [4]), ([], 3, [0, 2, 7]), ([], 8, [0, 4, 7])],
)
def test_of_the_cells_in_a_minute_only_the_latest_known_counts(gaps: list[int], looks: int, counted: list[int]) -> None:
    """Eight cells of 15 s from a full minute on: a look at the next one, after four more, counts that as the latest."""
    usage, others = np.random.default_rng(0).uniform((0.1, 1e8), (2.0, 4e9), (8, 2)), np.full((8, 2), np.nan)
    usage[gaps] = np.nan
    others[counted] = usage[counted]
    thinned, expected = HistogramAggregate(), HistogramAggregate()
    thinned.sample_every(60.0)
    thinned.session("a").observe_grid(usage[:looks], 4_000_000, 15.0)
    thinned.session("a").observe_grid(usage[looks:], 4_000_000 + looks, 15.0)
    expected.session("a").observe_grid(others, 4_000_000, 15.0)
    np.testing.assert_array_equal(estimate_of(thinned), estimate_of(expected))
    assert thinned.samples == len(counted)


def test_cells_of_a_grid_count_like_the_samples_of_a_block_and_gaps_not_at_all() -> None:
    generator = np.random.default_rng(0)
    usage = generator.uniform((0.1, 1e8), (2.0, 4e9), (300, 2))
    usage[generator.random(300) < 0.2] = np.nan
    of_cells, of_block, step_s, first_cell = HistogramSession(), HistogramSession(), 299.5, 5_000_000
    of_cells.observe_grid(usage[:100], first_cell, step_s)
    of_cells.observe_grid(usage[100:], first_cell + 100, step_s)
    timestamps = np.round((first_cell + np.arange(300)) * step_s).astype(np.int64)
    of_block.advance(Block(usage, timestamps, NO_DECISION))
    np.testing.assert_array_equal(estimate_of(of_cells), estimate_of(of_block))
    np.testing.assert_array_equal(of_cells.state, of_block.state)
