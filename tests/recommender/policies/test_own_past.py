"""What a container did before, where it is now, says what comes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.kernels.own_past import MAX_SEGMENT_SAMPLES
from recommender.policies.own_past import SEGMENTS, OwnPast
from tests.reference.own_past import naive_own_past

EPOCH = [0.125] * 6 + [1.0] * 2
"""Trains for six samples and evaluates for two."""


def told(cpu_cores: list[float], *ahead: int) -> tuple[int, list[float]] | None:
    """How often it was there, and the largest use in each time ahead; None where nothing is said."""
    past, slot = OwnPast(3), np.array([1])
    for cores in cpu_cores:
        past.observe(slot, np.array([cores]))
    times, largest_cores = past.find_matches(slot, np.array(ahead))
    if times[0] == 0:
        assert np.isnan(largest_cores).all()
        return None
    return int(times[0]), largest_cores[0].tolist()


def test_the_next_evaluation_is_told_once_training_has_led_to_one_three_times() -> None:
    """Two samples into the fifth epoch four are left: within four there was never more than training needs."""
    assert told([*EPOCH * 4, 0.125, 0.125], 4, 5) == (3, [0.125, 1.0])
    assert told([*EPOCH * 4, 0.125, 0.125, 0.125], 3, 4) == (3, [0.125, 1.0]), "a sample later it is a sample nearer"
    assert told([*EPOCH * 3, 0.125, 0.125], 4) is None, "the first epoch came after nothing: it was so twice"


def test_of_evaluating_it_is_told_when_less_is_enough() -> None:
    assert told([*EPOCH * 4, *EPOCH[:6], 1.0, 1.0], 6, 7) == (4, [0.125, 1.0])


def test_a_stage_that_lasts_longer_than_ever_may_end_with_each_sample() -> None:
    assert told([*EPOCH * 4, *[0.125] * 9], 1) == (3, [1.0])


def test_in_the_first_sample_of_a_segment_nothing_is_told() -> None:
    """It may be half of the stage before: a mean over the time since the last sample."""
    assert told([*EPOCH * 4, 0.125], 4) is None


def test_samples_that_are_half_of_two_stages_count_for_neither() -> None:
    """A quarter on the way up is too near to training for a jump, and so its last sample; on the way down its first."""
    epoch = [0.125] * 5 + [0.25] + [1.0, 1.0, 1.0] + [0.25]
    assert told([*epoch * 4, 0.125, 0.125, 0.125], 3) == (3, [0.125])


def test_a_stage_after_another_one_is_another_stage() -> None:
    """Every other epoch saves after it has evaluated; training after that is shorter."""
    turns = [*EPOCH, *[0.125] * 2, *[9.0] * 2]
    assert told([*turns * 5, 0.125, 0.125], 4) == (4, [0.125]), "after saving comes a whole epoch"
    assert told([*turns * 5, *EPOCH, 0.125, 0.125], 4) == (5, [9.0]), "after evaluating it saves at once"


def test_gaps_count_as_time_and_jumps_across_them_are_seen() -> None:
    whole = [*EPOCH * 4, 0.125, 0.125, 0.125]
    holes = [math.nan if place % 8 in (2, 3) else cores for place, cores in enumerate(whole)]
    assert told(holes, 3, 4) == told(whole, 3, 4) == (3, [0.125, 1.0])


def test_what_is_ten_times_as_large_is_told_ten_times_as_large() -> None:
    large = [10.0 * cores for cores in EPOCH]
    assert told([*large * 4, 1.25, 1.25], 4, 5) == (3, [1.25, 10.0])


def test_two_containers_have_pasts_of_their_own() -> None:
    past = OwnPast(2)
    for cores in [*EPOCH * 4, 0.125, 0.125]:
        past.observe(np.array([0, 1]), np.array([cores, 3.0]))
    times, largest_cores = past.find_matches(np.array([1, 0]), np.array([5]))
    assert times.tolist() == [0, 3]
    np.testing.assert_array_equal(largest_cores, [[np.nan], [1.0]])


def kept_past() -> dict[str, Any]:
    """What is kept of a container in its fifth epoch, as it comes back from JSON."""
    past = OwnPast(1)
    for cores in [*EPOCH * 4, 0.125, 0.125]:
        past.observe(np.array([0]), np.array([cores]))
    kept: dict[str, Any] = orjson.loads(orjson.dumps(past.of(0), option=orjson.OPT_SERIALIZE_NUMPY))
    return kept


def test_it_goes_on_from_what_was_kept() -> None:
    past = OwnPast(1)
    past.restore(0, kept_past())
    times, largest_cores = past.find_matches(np.array([0]), np.array([4, 5]))
    assert (times.tolist(), largest_cores.tolist()) == ([3], [[0.125, 1.0]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lengths", [-1] * SEGMENTS),
        ("lengths", [1e9] * SEGMENTS),
        ("lengths", [1]),
        ("cores", [None] * SEGMENTS),
        ("cores", [1e300] * SEGMENTS),
        ("ended", 10**30),
        ("samples", "many"),
        ("samples", [1]),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_of_it_is_taken(name: str, value: object) -> None:
    past = OwnPast(1)
    with pytest.raises((ValueError, TypeError)):
        past.restore(0, {**kept_past(), name: value})
    with pytest.raises(KeyError):
        past.restore(0, {kind: part for kind, part in kept_past().items() if kind != name})
    assert past.samples[0] == 0


LEVELS = st.sampled_from([0.0, 0.125, 0.15625, 0.25, 0.5, 1.0, 2.0, 4.0])
STAGE = st.lists(st.one_of(LEVELS, st.just(math.nan)), min_size=1, max_size=5)


@given(st.lists(STAGE, min_size=1, max_size=5), st.integers(1, 16), st.integers(0, 5), st.integers(1, 20))
def test_it_agrees_with_lists_and_loops(stages: list[list[float]], turns: int, more: int, ahead: int) -> None:
    turn = [cores for stage in stages for cores in stage]
    cpu_cores = [*turn * turns, *turn[:more]]
    expected = naive_own_past(cpu_cores, ahead, SEGMENTS)
    assert told(cpu_cores, ahead) == (None if expected is None else (expected[0], [expected[1]]))


def test_of_the_longest_stages_no_more_samples_are_counted_than_there_is_room_for() -> None:
    past, slot = OwnPast(1), np.array([0])
    past.observe(slot, np.array([0.125]))
    past.samples[0] = MAX_SEGMENT_SAMPLES
    past.observe(slot, np.array([0.125]))
    past.observe(slot, np.array([np.nan]))
    assert past.samples[0] == MAX_SEGMENT_SAMPLES
