"""The client-side rate limit, on a simulated clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.access.rate import TokenBucket
from tests.fakes.clock import Clock


def bucket(per_s: float, burst: int, clock: Clock) -> TokenBucket:
    return TokenBucket(per_s, burst, clock=clock, sleep=clock.sleep)


def test_a_burst_passes_at_once_and_the_rest_at_the_rate_in_small_batches() -> None:
    clock = Clock(0.0)
    tokens = bucket(10, 3, clock)
    taken = []
    for _ in range(6):
        tokens.take()
        taken.append(round(clock.now_s, 6))
    assert taken == [0, 0, 0, 0.2, 0.2, 0.4]
    clock.now_s += 100
    for _ in range(3):
        tokens.take()
    assert round(clock.now_s, 6) == 100.4, "a pause fills the bucket up to the burst and no further"
    tokens.take()
    assert round(clock.now_s, 6) == 100.6


def test_pause_for_holds_all_requests_and_leaves_no_burst() -> None:
    clock = Clock(0.0)
    tokens = bucket(10, 100, clock)
    tokens.pause_for(2.0)
    tokens.take()
    assert clock.now_s == 2.0
    tokens.take()
    assert round(clock.now_s, 6) == 2.2, "and no burst afterwards"


def test_a_request_does_not_overtake_those_that_wait() -> None:
    clock, waits = Clock(0.0), []
    tokens = TokenBucket(40, 1, clock=clock, sleep=waits.append)
    tokens.take()
    tokens.take()
    clock.now_s = 0.01
    tokens.take()
    assert [round(wait_s, 6) for wait_s in waits] == [0.025, 0.04]
    slow = TokenBucket(40, 10, clock=clock, sleep=waits.append)
    for _ in range(11):
        slow.take()
    clock.now_s = 0.2
    slow.take()
    assert [round(wait_s, 6) for wait_s in waits[2:]] == [0.25, 0.06]


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(1, 20), st.integers(1, 10))
def test_no_interval_has_more_requests_than_burst_and_rate_allow(pauses_s: list[float], per_s: int, burst: int) -> None:
    clock = Clock(0.0)
    tokens, taken_s = bucket(per_s, burst, clock), []
    for pause_s in pauses_s:
        clock.now_s += pause_s
        tokens.take()
        taken_s.append(clock.now_s)
    for first in range(len(taken_s)):
        for last in range(first, len(taken_s)):
            assert last - first + 1 <= burst + per_s * (taken_s[last] - taken_s[first]) + 1e-6


def test_after_lift_limit_no_request_waits() -> None:
    clock = Clock(0.0)
    tokens = bucket(10, 1, clock)
    tokens.lift_limit()
    for _ in range(1000):
        tokens.take()
    assert clock.now_s == 0
