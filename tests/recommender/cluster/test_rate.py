"""The limit on our own requests, on a clock of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.access.rate import TokenBucket
from tests.fakes.clock import Clock


def bucket(per_s: float, burst: int, time: Clock) -> TokenBucket:
    return TokenBucket(per_s, burst, clock=time, sleep=time.sleep)


def test_a_burst_goes_at_once_and_the_rest_at_the_rate_a_quarter_of_a_second_s_together() -> None:
    time = Clock(0.0)
    tokens = bucket(10, 3, time)
    taken = []
    for _ in range(6):
        tokens.take()
        taken.append(round(time.now_s, 6))
    assert taken == [0, 0, 0, 0.2, 0.2, 0.4]
    time.now_s += 100
    for _ in range(3):
        tokens.take()
    assert round(time.now_s, 6) == 100.4, "a pause fills it to the burst and no further"
    tokens.take()
    assert round(time.now_s, 6) == 100.6


def test_nothing_goes_while_it_is_held() -> None:
    time = Clock(0.0)
    tokens = bucket(10, 100, time)
    tokens.pause_for(2.0)
    tokens.take()
    assert time.now_s == 2.0
    tokens.take()
    assert round(time.now_s, 6) == 2.2, "and no burst afterwards"


def test_whoever_comes_while_others_wait_does_not_overtake_them() -> None:
    time, waits = Clock(0.0), []
    tokens = TokenBucket(40, 1, clock=time, sleep=waits.append)
    tokens.take()
    tokens.take()
    time.now_s = 0.01
    tokens.take()
    assert [round(wait_s, 6) for wait_s in waits] == [0.025, 0.04]
    slow = TokenBucket(40, 10, clock=time, sleep=waits.append)
    for _ in range(11):
        slow.take()
    time.now_s = 0.2
    slow.take()
    assert [round(wait_s, 6) for wait_s in waits[2:]] == [0.25, 0.06]


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(1, 20), st.integers(1, 10))
def test_in_no_stretch_of_time_are_there_more_than_burst_and_rate_allow(
    pauses_s: list[float], per_s: int, burst: int
) -> None:
    time = Clock(0.0)
    tokens, taken_s = bucket(per_s, burst, time), []
    for pause_s in pauses_s:
        time.now_s += pause_s
        tokens.take()
        taken_s.append(time.now_s)
    for first in range(len(taken_s)):
        for last in range(first, len(taken_s)):
            assert last - first + 1 <= burst + per_s * (taken_s[last] - taken_s[first]) + 1e-6


def test_opened_up_nothing_waits_any_more() -> None:
    time = Clock(0.0)
    tokens = bucket(10, 1, time)
    tokens.lift_limit()
    for _ in range(1000):
        tokens.take()
    assert time.now_s == 0
