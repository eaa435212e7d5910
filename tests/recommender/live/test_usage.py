"""Samples are waited for as long as the process lives, and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.view.scope import Scope
from recommender.live.view.usage import InterruptibleUsage, KeyedSample, RecentUsage
from recommender.records import Sample
from tests.fakes.records import a_pod

ONE = (ContainerKey("ns", "pod", "main"), Sample(10.0, 0.5, 1e9))


def test_what_the_source_says_is_handed_on_in_its_order() -> None:
    asked: list[float] = []

    def source(now_s: float) -> RecentUsage:
        asked.append(now_s)
        return RecentUsage(iter((ONE, ONE)), {"ns/bad": "no number"})

    patience = InterruptibleUsage(source)
    assert patience.samples(7.0) == RecentUsage([ONE, ONE], {"ns/bad": "no number"})
    assert patience.samples(8.0).samples == [ONE, ONE]
    assert asked == [7.0, 8.0]


def test_of_which_pods_the_metrics_could_not_be_read_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    broken = {"ns/bad": "PodMetrics ns/bad: timestamp is not a string"}
    view = ClusterView(cast(Api, None), Scope(), lambda _: RecentUsage([ONE], broken))
    for _ in range(2):
        assert list(view.samples()) == [ONE]
        assert view.unreadable == 1
    assert caplog.text.count("PodMetrics ns/bad") == 1
    broken.clear()
    view.samples()
    assert view.unreadable == 0


def test_pods_that_finish_by_themselves_are_told_once_and_not_those_that_do_as_they_are_deleted() -> None:
    """A program may end with 0 when it is told to stop: that run is no whole one."""
    view, runs = ClusterView(cast(Api, None), Scope(), lambda _: RecentUsage([], {})), a_pod("pod-0")
    done, stopped = replace(runs, phase="Succeeded"), replace(runs, phase="Succeeded", deleting=True)
    changes = [(None, done), (runs, done), (done, stopped), (done, None), (replace(runs, deleting=True), stopped)]
    for old, new in changes:
        view._pod_changed(old, new)
    assert view.finished_pods() == [done]
    assert view.finished_pods() == []


def test_what_the_source_raises_half_way_is_raised() -> None:
    def samples() -> Iterable[KeyedSample]:
        yield ONE
        raise Unreachable("no Prometheus")

    with pytest.raises(Unreachable, match="no Prometheus"):
        InterruptibleUsage(lambda _: RecentUsage(samples())).samples(0.0)


def test_told_to_end_it_waits_no_longer_for_a_source_that_hangs() -> None:
    go_on, asked = threading.Event(), threading.Event()

    def source(_: float) -> RecentUsage:
        asked.set()
        go_on.wait()
        return RecentUsage([])

    patience = InterruptibleUsage(source)

    def end() -> None:
        asked.wait()
        patience.stop()

    threading.Thread(target=end, daemon=True).start()
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="the process is shutting down"):
        patience.samples(0.0)
    assert time.monotonic() - began_s < 2.0
    go_on.set()
    with pytest.raises(Unreachable):  # and it does not ask again
        patience.samples(1.0)
