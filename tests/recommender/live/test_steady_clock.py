"""Whether the wall clock has run evenly for so long that something may be deleted for its age."""

from __future__ import annotations

from recommender.live.steady_clock import STEADY_S, SteadyClock
from tests.fakes.clock import Clock

DAY_S = 86400.0


def test_a_clock_is_trusted_after_an_hour_and_again_an_hour_after_it_jumped() -> None:
    wall, monotonic = Clock(1e9), Clock(5.0)
    clock = SteadyClock(wall, monotonic)

    def is_steady_after(seconds: float) -> bool:
        wall.sleep(seconds)
        monotonic.sleep(seconds)
        return clock.is_steady()

    for jump_s in (0.0, 31 * DAY_S, -31 * DAY_S):
        wall.sleep(jump_s)
        assert not is_steady_after(0.0)
        assert not is_steady_after(STEADY_S - 1.0)
        assert is_steady_after(1.0)
    wall.sleep(60.0)
    assert is_steady_after(0.0), "a correction that makes nothing old"
