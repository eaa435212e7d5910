"""A watch that is busy is read a few events at a time, and no event waits for longer than that."""

from __future__ import annotations

import pytest

from extender.view.watched import REST_S, Gathering


class Watch:
    """Events at these moments; the thread takes each as soon as it is there and the one before it is done."""

    def __init__(self, *, watching: bool = True) -> None:
        self.now_s, self.rests, self.read_s = 100.0, 0, list[float]()
        self._gathering = Gathering(self._read, lambda: watching, clock=lambda: self.now_s, sleep=self._rest)

    def _read(self, event: float) -> float:
        if event < 0:
            raise ValueError(event)
        self.now_s += 0.0002
        self.read_s.append(self.now_s)
        return event

    def _rest(self, duration_s: float) -> None:
        self.rests += 1
        self.now_s += duration_s

    def take(self, *moments_s: float) -> list[float]:
        """How long each event waited until it was read."""
        for moment_s in moments_s:
            self.now_s = max(self.now_s, 100.0 + moment_s)
            assert self._gathering(moment_s) == moment_s
        return [at_s - 100.0 - moment_s for at_s, moment_s in zip(self.read_s, moments_s, strict=True)]


def test_events_that_come_alone_are_read_at_once() -> None:
    watch = Watch()
    assert max(watch.take(1.0, 2.0, 2.05, 3.0)) < 0.001
    assert watch.rests == 0


def test_of_many_a_few_are_read_at_a_time_and_none_waits_for_longer_than_a_rest() -> None:
    """One every 6 ms: a rest for every fourth or so."""
    watch = Watch()
    waited_s = watch.take(*(0.006 * number for number in range(100)))
    assert max(waited_s) <= REST_S + 0.002
    assert 20 <= watch.rests <= 30


def test_what_was_there_already_and_what_is_listed_is_read_without_a_rest() -> None:
    flood = Watch()
    assert len(flood.take(*[1.0] * 1000)) == 1000
    listed = Watch(watching=False)
    listed.take(*(0.006 * number for number in range(100)))
    assert (flood.rests, listed.rests) == (0, 0)


def test_what_cannot_be_read_is_told_as_before() -> None:
    watch = Watch()
    with pytest.raises(ValueError, match="-1"):
        watch.take(-1.0)
    watch.now_s += 0.01
    watch._gathering(1.0)
    assert watch.rests == 1, "an event all the same"
