"""What the view reads of pods: samples, which a stop interrupts, unreadable metrics, and finished pods; who writes."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.usage.metrics_api import UsageReport
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.workloads.horizontal import ALL, Scaler, left_alone
from recommender.cluster.workloads.ownership import Ref
from recommender.live.outside.cluster_view import ClusterView, InterruptibleUsage
from recommender.live.view.scope import Scope
from tests.fakes.records import GIB, a_container, a_pod, a_vpa, pod_of

ONE = (ContainerKey("ns", "pod", "main"), Sample(10.0, 0.5, 1e9))


def test_samples_of_the_source_are_returned_in_order() -> None:
    times_s: list[float] = []

    def source(now_s: float) -> UsageReport:
        times_s.append(now_s)
        return UsageReport(iter((ONE, ONE)), {"ns/bad": "no number"})

    usage = InterruptibleUsage(source)
    assert usage.samples(7.0) == UsageReport([ONE, ONE], {"ns/bad": "no number"})
    assert usage.samples(8.0).samples == [ONE, ONE]
    assert times_s == [7.0, 8.0]


def test_samples_are_not_kept_until_the_next_round() -> None:
    class Name(str):
        """Which may be weakly referenced."""

    usage = InterruptibleUsage(lambda _: UsageReport([(ContainerKey("ns", Name("pod"), "main"), ONE[1])]))
    (kept,) = [weakref.ref(key.pod) for key, _ in usage.samples(0.0).samples]
    deadline_s = time.monotonic() + 5.0
    while kept() is not None:  # the thread that read it may still be about to end
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_unreadable_metrics_of_a_pod_are_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    broken = {"ns/bad": "PodMetrics ns/bad: timestamp is not a string"}
    view = ClusterView(cast(Api, None), Scope(), lambda _: UsageReport([ONE], broken))
    for _ in range(2):
        assert list(view.samples()) == [ONE]
        assert view.unreadable == 1
    assert caplog.text.count("PodMetrics ns/bad") == 1
    broken.clear()
    view.samples()
    assert view.unreadable == 0


def test_nothing_is_written_once_this_process_no_longer_leads() -> None:
    view = ClusterView(cast(Api, None), Scope(), lambda _: UsageReport([]), leads=lambda: False)
    vpa = read_vpa(a_vpa())
    for write in (
        lambda: view.publish(vpa, [], {}),
        lambda: view.resize_waiting(a_pod("pod"), []),
        lambda: view.write_profile(vpa, {}),
        lambda: view.write_class_profile(vpa.key, {}),
        lambda: view.write_class_profile(vpa.key, None),
    ):
        with pytest.raises(Unreachable, match="no longer leads"):
            write()
    assert view.write_checkpoints({vpa.key: dict}, 60.0, 0.0, 10).written == 0
    assert view.collect_checkpoints() == []


def test_pods_that_finish_on_their_own_are_returned_once_and_deleted_ones_never() -> None:
    """A program may exit with 0 when it is stopped: such a run is incomplete."""
    view, alive = ClusterView(cast(Api, None), Scope(), lambda _: UsageReport([], {})), a_pod("pod-0")
    done, stopped = replace(alive, phase="Succeeded"), replace(alive, phase="Succeeded", deleting=True)
    changes = [(None, done), (alive, done), (done, stopped), (done, None), (replace(alive, deleting=True), stopped)]
    for old, new in changes:
        view._pod_changed(old, new)
    assert view.finished_pods() == [done]
    assert view.finished_pods() == []


def test_an_event_can_claim_no_more_than_the_limit_of_its_container_and_a_kill_no_more_than_its_node_has() -> None:
    view = ClusterView(cast(Api, None), Scope(), lambda _: UsageReport([], {}))
    nodes = [read_node({"metadata": {"name": "n"}, "status": {"capacity": {"memory": "64Gi"}}})]
    view._rooms._nodes = SimpleNamespace(version=1, snapshot=lambda: dict(enumerate(nodes)))  # type: ignore[assignment]
    limited = a_container(limits={"memory": "8Gi"}, memory="4Gi")
    before = pod_of("pod-0", limited, nodeName="n")
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-28T09:00:00Z"}}
    status = {"reason": "Evicted", "containerStatuses": [{"name": "main", "state": killed}]}
    view._pod_changed(None, before)
    view._pod_changed(before, pod_of("pod-0", limited, phase="Failed", status=status, nodeName="n"))
    view._ooms.eviction_changed(None, [OomObservation(before.key, "main", time.time(), 9e14, evicted=True)])
    assert [(oom.evicted, oom.memory_bytes / GIB, oom.most_bytes / GIB) for oom in view.kills()] == [
        (False, 4.0, 64.0),
        (True, 9e14 / GIB, 8.0),
    ]


def test_a_vpa_is_read_without_what_an_autoscaler_of_its_target_measures() -> None:
    view, vpa = ClusterView(cast(Api, None), Scope(), lambda _: UsageReport([], {})), read_vpa(a_vpa())
    scaler = Scaler(ObjectKey("ns", "of-job"), Ref.of(vpa.target), frozenset({(ALL, "cpu")}))
    view._vpas = SimpleNamespace(snapshot=lambda: {vpa.key: vpa})  # type: ignore[assignment]
    view._scalers = SimpleNamespace(snapshot=lambda: {scaler.key: scaler})  # type: ignore[assignment]
    view._loaded = {vpa.key: vpa.uid}
    (read,) = view.vpas()
    assert read == left_alone(vpa, [scaler]) != vpa
    assert view.scalers_in("ns") == {scaler.target: "of-job"} and view.scalers_in("other") == {}


def test_an_error_of_the_source_between_samples_is_raised() -> None:
    def samples() -> Iterable[tuple[ContainerKey, Sample]]:
        yield ONE
        raise Unreachable("no Prometheus")

    with pytest.raises(Unreachable, match="no Prometheus"):
        InterruptibleUsage(lambda _: UsageReport(samples())).samples(0.0)


def test_a_stop_ends_the_wait_for_a_source_that_hangs() -> None:
    release, called = threading.Event(), threading.Event()

    def source(_: float) -> UsageReport:
        called.set()
        release.wait()
        return UsageReport([])

    usage = InterruptibleUsage(source)

    def stop_when_called() -> None:
        called.wait()
        usage.stop()

    threading.Thread(target=stop_when_called, daemon=True).start()
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="the process is shutting down"):
        usage.samples(0.0)
    assert time.monotonic() - began_s < 2.0
    release.set()
    with pytest.raises(Unreachable):  # a later call does not ask the source, which would answer now
        usage.samples(1.0)
