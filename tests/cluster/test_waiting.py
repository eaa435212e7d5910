"""`wait_until`, which all tests wait with."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.rig import waiting
from tests.rig.waiting import NotInTime, wait_until


class FakeClock:
    """A clock that only sleeping moves; it records the length of each sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.slept_s: list[float] = []
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(waiting.time, "sleep", self.sleep)
        monkeypatch.setattr(waiting, "patience", lambda: 1.0)

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


def test_the_first_result_that_is_true_is_returned_at_once(clock: FakeClock) -> None:
    results = iter([None, "", "here"])
    assert wait_until(lambda: next(results), "it") == "here"
    assert len(clock.slept_s) == 2


def test_checks_become_less_frequent_over_time_down_to_one_per_second(clock: FakeClock) -> None:
    with pytest.raises(NotInTime):
        wait_until(lambda: False, "it", timeout_s=60, every_s=0.1)
    assert clock.slept_s[:20] == pytest.approx([0.1] * 20)
    assert clock.slept_s == sorted(clock.slept_s)
    assert clock.slept_s[-1] == 1.0
    assert len(clock.slept_s) < 150


def test_the_pause_after_a_slow_check_is_as_long_as_the_check(clock: FakeClock) -> None:
    def slow() -> bool:
        clock.now_s += 0.5
        return False

    with pytest.raises(NotInTime):
        wait_until(slow, "it", timeout_s=10, every_s=0.1)
    assert min(clock.slept_s) == 0.5


def test_a_timeout_names_the_awaited_condition_and_the_last_error(clock: FakeClock) -> None:
    def broken() -> bool:
        raise OSError("no such pod")

    with pytest.raises(NotInTime, match=r"waited 5 s for the pod; last seen: OSError: no such pod") as raised:
        wait_until(broken, "the pod", timeout_s=5)
    assert isinstance(raised.value.__cause__, OSError)


def test_objects_of_failed_checks_are_released(clock: FakeClock) -> None:
    class Connection:
        pass

    opened: list[weakref.ref[Connection]] = []

    def third_time_lucky() -> bool:
        connection = Connection()
        opened.append(weakref.ref(connection))
        if len(opened) < 3:
            raise OSError("refused")
        return True

    gc.disable()  # a connection that only the collector closes would be an error of whatever test runs then
    try:
        wait_until(third_time_lucky, "it")
        assert [each() for each in opened] == [None] * 3
    finally:
        gc.enable()
