"""The one way in which tests wait."""

from __future__ import annotations

import gc
import weakref

import pytest

from local_cluster import waiting
from local_cluster.waiting import NotInTime, wait_until


class Watch:
    """A clock that only sleeping moves, and how long each sleep was."""

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
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_what_is_there_at_once_is_not_waited_for(watch: Watch) -> None:
    assert wait_until(lambda: "here", "it") == "here"
    assert watch.slept_s == []


def test_the_longer_it_takes_the_further_apart_the_looks_up_to_a_second(watch: Watch) -> None:
    with pytest.raises(NotInTime):
        wait_until(lambda: False, "it", timeout_s=60, every_s=0.1)
    assert watch.slept_s[:20] == pytest.approx([0.1] * 20)
    assert watch.slept_s == sorted(watch.slept_s)
    assert watch.slept_s[-1] == 1.0
    assert len(watch.slept_s) < 150


def test_a_look_that_takes_long_is_not_most_of_the_time(watch: Watch) -> None:
    def slow() -> bool:
        watch.now_s += 0.5
        return False

    with pytest.raises(NotInTime):
        wait_until(slow, "it", timeout_s=10, every_s=0.1)
    assert min(watch.slept_s) == 0.5


def test_when_the_time_is_over_it_says_for_what_and_what_was_seen_last(watch: Watch) -> None:
    def broken() -> bool:
        raise OSError("no such pod")

    with pytest.raises(NotInTime, match=r"waited 5 s for the pod; last seen: OSError: no such pod") as said:
        wait_until(broken, "the pod", timeout_s=5)
    assert isinstance(said.value.__cause__, OSError)


def test_what_failed_on_the_way_is_not_kept(watch: Watch) -> None:
    class Connection:
        pass

    opened: list[weakref.ref[Connection]] = []

    def third_time_lucky() -> bool:
        connection = Connection()
        opened.append(weakref.ref(connection))
        if len(opened) < 3:
            raise OSError("refused")
        return True

    gc.disable()  # a connection that only the collector closes is told as an error of whatever test runs by then
    try:
        wait_until(third_time_lucky, "it")
        assert [each() for each in opened] == [None] * 3
    finally:
        gc.enable()
