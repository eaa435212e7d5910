"""Forecasts from a container's own past: what followed when it was in the same stage before."""

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


def forecast(cpu_cores: list[float], *ahead: int) -> tuple[int, list[float]] | None:
    """Number of matches, and peak usage within each number of samples ahead; None without a forecast."""
    past, slot = OwnPast(3), np.array([1])
    for cores in cpu_cores:
        past.observe(slot, np.array([cores]))
    matches, largest_cores = past.find_matches(slot, np.array(ahead))
    if matches[0] == 0:
        assert np.isnan(largest_cores).all()
        return None
    return int(matches[0]), largest_cores[0].tolist()


BLURRED = [*[0.125] * 5, 0.25, 1.0, 1.0, 1.0, 0.25]
"""A quarter on the way up is too near to training for a jump, and so its last sample; on the way down its first."""
SAVES = [*EPOCH, *[0.125] * 2, *[9.0] * 2]
"""Every other epoch saves after it has evaluated; training after that is shorter."""
LARGE = [10.0 * cores for cores in EPOCH]
FORECASTS: dict[str, tuple[list[float], tuple[int, ...], tuple[int, list[float]] | None]] = {
    "four samples of training are left, and within four no more is needed": (
        [*EPOCH * 4, 0.125, 0.125], (4, 5), (3, [0.125, 1.0]),
    ),
    "one sample nearer": ([*EPOCH * 4, 0.125, 0.125, 0.125], (3, 4), (3, [0.125, 1.0])),
    "the first epoch has no stage before it: two matches": ([*EPOCH * 3, 0.125, 0.125], (4,), None),
    "during an evaluation the fall after it": ([*EPOCH * 4, *EPOCH[:6], 1.0, 1.0], (6, 7), (4, [0.125, 1.0])),
    "a stage that lasts longer than ever may end with the next sample": ([*EPOCH * 4, *[0.125] * 9], (1,), (3, [1.0])),
    "the first sample of a segment may be half of the stage before": ([*EPOCH * 4, 0.125], (4,), None),
    "samples half of two stages count for neither": ([*BLURRED * 4, 0.125, 0.125, 0.125], (3,), (3, [0.125])),
    "after saving comes a whole epoch": ([*SAVES * 5, 0.125, 0.125], (4,), (4, [0.125])),
    "after evaluating it saves at once": ([*SAVES * 5, *EPOCH, 0.125, 0.125], (4,), (5, [9.0])),
    "ten times the usage": ([*LARGE * 4, 1.25, 1.25], (4, 5), (3, [1.25, 10.0])),
}  # fmt: skip


@pytest.mark.parametrize("case", FORECASTS)
def test_what_followed_the_same_stage_three_times_is_forecast(case: str) -> None:
    cpu_cores, ahead, expected = FORECASTS[case]
    assert forecast(cpu_cores, *ahead) == expected


def test_gaps_count_as_time_and_jumps_across_them_are_seen() -> None:
    complete = [*EPOCH * 4, 0.125, 0.125, 0.125]
    with_gaps = [math.nan if at % 8 in (2, 3) else cores for at, cores in enumerate(complete)]
    assert forecast(with_gaps, 3, 4) == forecast(complete, 3, 4) == (3, [0.125, 1.0])


def test_two_containers_have_pasts_of_their_own() -> None:
    past = OwnPast(2)
    for cores in [*EPOCH * 4, 0.125, 0.125]:
        past.observe(np.array([0, 1]), np.array([cores, 3.0]))
    matches, largest_cores = past.find_matches(np.array([1, 0]), np.array([5]))
    assert matches.tolist() == [0, 3]
    np.testing.assert_array_equal(largest_cores, [[np.nan], [1.0]])


def kept_past() -> dict[str, Any]:
    """Kept state of a container in its fifth epoch, passed through JSON."""
    past = OwnPast(1)
    for cores in [*EPOCH * 4, 0.125, 0.125]:
        past.observe(np.array([0]), np.array([cores]))
    kept: dict[str, Any] = orjson.loads(orjson.dumps(past.of(0), option=orjson.OPT_SERIALIZE_NUMPY))
    return kept


def test_a_restored_past_continues() -> None:
    past = OwnPast(1)
    past.restore(0, kept_past())
    matches, largest_cores = past.find_matches(np.array([0]), np.array([4, 5]))
    assert (matches.tolist(), largest_cores.tolist()) == ([3], [[0.125, 1.0]])


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
def test_state_that_does_not_fit_is_refused_and_none_of_it_is_restored(name: str, value: object) -> None:
    past = OwnPast(1)
    with pytest.raises((ValueError, TypeError)):
        past.restore(0, {**kept_past(), name: value})
    with pytest.raises(KeyError):
        past.restore(0, {kind: part for kind, part in kept_past().items() if kind != name})
    assert past.samples[0] == 0


LEVELS = st.sampled_from([0.0, 0.125, 0.15625, 0.25, 0.5, 1.0, 2.0, 4.0])
STAGE = st.lists(st.one_of(LEVELS, st.just(math.nan)), min_size=1, max_size=5)


@given(st.lists(STAGE, min_size=1, max_size=5), st.integers(1, 16), st.integers(0, 5), st.integers(1, 20))
def test_forecasts_agree_with_the_reference(stages: list[list[float]], cycles: int, extra: int, ahead: int) -> None:
    cycle = [cores for stage in stages for cores in stage]
    cpu_cores = [*cycle * cycles, *cycle[:extra]]
    expected = naive_own_past(cpu_cores, ahead, SEGMENTS)
    assert forecast(cpu_cores, ahead) == (None if expected is None else (expected[0], [expected[1]]))


def test_the_samples_of_a_very_long_stage_are_counted_up_to_a_maximum() -> None:
    past, slot = OwnPast(1), np.array([0])
    past.observe(slot, np.array([0.125]))
    past.samples[0] = MAX_SEGMENT_SAMPLES
    past.observe(slot, np.array([0.125]))
    past.observe(slot, np.array([np.nan]))
    assert past.samples[0] == MAX_SEGMENT_SAMPLES
