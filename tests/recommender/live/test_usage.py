"""Samples are waited for as long as the process lives, and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from recommender.cluster.errors import Unreachable
from recommender.live.fleet.member import Sample
from recommender.live.view.usage import Patience, Placed
from recommender.live.view.view import Place

ONE = (Place("ns", "pod", "main"), Sample(10.0, 0.5, 1e9))


def test_what_the_source_says_is_handed_on_in_its_order() -> None:
    asked: list[float] = []

    def source(now_s: float) -> Iterable[Placed]:
        asked.append(now_s)
        yield from (ONE, ONE)

    patience = Patience(source)
    assert patience.samples(7.0) == [ONE, ONE]
    assert patience.samples(8.0) == [ONE, ONE]
    assert asked == [7.0, 8.0]


def test_what_the_source_raises_half_way_is_raised() -> None:
    def source(_: float) -> Iterable[Placed]:
        yield ONE
        raise Unreachable("no Prometheus")

    with pytest.raises(Unreachable, match="no Prometheus"):
        Patience(source).samples(0.0)


def test_told_to_end_it_waits_no_longer_for_a_source_that_hangs() -> None:
    go_on, asked = threading.Event(), threading.Event()

    def source(_: float) -> Iterable[Placed]:
        asked.set()
        go_on.wait()
        return []

    patience = Patience(source)

    def end() -> None:
        asked.wait()
        patience.end()

    threading.Thread(target=end, daemon=True).start()
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="as the process ends"):
        patience.samples(0.0)
    assert time.monotonic() - began_s < 2.0
    go_on.set()
    with pytest.raises(Unreachable):  # and it does not ask again
        patience.samples(1.0)
