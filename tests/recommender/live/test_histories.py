"""Histories between rounds and checkpoints: which are written, and what of a checkpoint is still used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recommender.base.records import Block
from recommender.base.units import format_time
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.metrics_api import UsageReport
from recommender.cluster.vpas.checkpoints import CHECKPOINTS, CONTAINER_UNUSED_S, CheckpointKey
from recommender.live.outside import cluster_view
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.steady_clock import STEADY_S
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from tests.fakes.clock import Clock
from tests.fakes.records import a_vpa

NOW_S = 1_000_000_000.0
JOB, OTHER = ObjectKey("ns", "job"), ObjectKey("ns", "other")


class Server:
    """An API server with one checkpoint, which accepts others and counts how often all were listed."""

    def __init__(self) -> None:
        self.lists = 0
        spec = {"vpaObjectName": JOB.name, "containerName": "main"}
        self.checkpoints = [{"metadata": {"namespace": "ns", "name": "job-main", "uid": "u"}, "spec": spec}]

    def list_pages(self, path: str, query: Mapping[str, str] | None = None) -> list[Mapping[str, Any]]:
        if CHECKPOINTS[1] not in path:
            return []
        self.lists += 1
        return [{"items": self.checkpoints}]

    def get(self, path: str) -> Mapping[str, Any]:
        return {}  # every VPA exists

    def create(self, path: str, body: Mapping[str, Any], timeout_s: float) -> None: ...

    def delete(self, path: str, uid: str) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the view takes for both clocks."""
    clock = Clock(NOW_S)
    monkeypatch.setattr(cluster_view, "time", SimpleNamespace(time=clock, monotonic=clock))
    return clock


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def view(server: Server, clock: Clock) -> ClusterView:
    return ClusterView(server, Scope(), lambda _: UsageReport([]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("status", "written"), [("True", [OTHER]), ("False", [JOB, OTHER])])
def test_no_checkpoint_is_written_while_the_history_of_a_vpa_is_being_fetched(
    view: ClusterView, status: str, written: list[ObjectKey]
) -> None:
    view._vpas._put(a_vpa() | {"status": {"conditions": [{"type": "FetchingHistory", "status": status}]}})
    view._vpas._put(a_vpa("other"))
    built: list[ObjectKey] = []

    def builder_for(key: ObjectKey) -> Callable[[], Mapping[str, Mapping[str, Any]]]:
        def build() -> Mapping[str, Mapping[str, Any]]:
            built.append(key)
            return {}

        return build

    view.write_checkpoints({key: builder_for(key) for key in (JOB, OTHER)}, within_s=60.0, every_s=0.0, at_most=10)
    assert sorted(built) == written


def test_checkpoints_are_listed_for_a_new_vpa_only_if_it_may_have_some(server: Server, view: ClusterView) -> None:
    def lists(vpa: ObjectKey, created_s: float) -> int:
        before, raw = server.lists, a_vpa(vpa.name)
        raw["metadata"] |= {"uid": f"{vpa}-{created_s}", "creationTimestamp": format_time(created_s)}
        view._vpas._put(raw)
        view.load_histories()
        return server.lists - before

    assert lists(OTHER, NOW_S + 9.0) == 1  # nothing has been listed yet
    view.collect_checkpoints()
    assert lists(OTHER, NOW_S + 19.0) == 0
    assert lists(OTHER, NOW_S - 9.0) == 1  # it may have been another recommender's
    assert lists(JOB, NOW_S + 9.0) == 1
    assert view.write_checkpoints({OTHER: lambda: {"main": {}}}, 60.0, 0.0, 10).written == 1
    assert lists(OTHER, NOW_S + 99.0) == 1  # what we wrote before the VPA was recreated
    view.collect_checkpoints()
    view.forget_histories()
    assert lists(ObjectKey("ns", "new"), NOW_S + 99.0) == 1  # another may have written meanwhile


def test_a_checkpoint_is_deleted_for_its_age_only_once_the_clock_has_run_evenly_for_an_hour(
    view: ClusterView, clock: Clock
) -> None:
    view._vpas._put(a_vpa())
    assert view.collect_checkpoints() == []
    clock.sleep(STEADY_S)
    assert view.collect_checkpoints() == ["ns/job-main"]


def test_the_history_of_a_vpa_that_is_gone_is_dropped_once_there_is_another_new_one(view: ClusterView) -> None:
    view._vpas._put(a_vpa())
    view.load_histories()
    view.adopt({CheckpointKey(JOB, "main"): HistogramSession()})
    view._vpas._store(JOB, None)
    view._vpas._put(a_vpa("other"))
    view.load_histories()
    assert view.history(JOB, "main") is None


def test_a_view_is_synced_without_profiles_and_quotas_if_these_cannot_be_listed(view: ClusterView) -> None:
    optional = (view._profiles, view._quotas)
    for reflector in view._watched:
        if reflector not in optional:
            assert not view.synced
            reflector._synced.set()
    for reflector in optional:
        assert not view.synced
        reflector.problem = "404"
    assert view.synced


def test_a_container_without_samples_for_eight_days_is_forgotten(view: ClusterView) -> None:
    sessions = {name: HistogramSession() for name in ("lately", "long-ago")}
    for session, age_s in zip(sessions.values(), (CONTAINER_UNUSED_S - 60.0, CONTAINER_UNUSED_S + 60.0), strict=True):
        session.advance(Block(np.array([[0.5, 2.0**30]]), np.array([int(NOW_S - age_s)]), np.empty(0, np.int64)))
    view.adopt({CheckpointKey(JOB, name): session for name, session in sessions.items()})
    assert list(view.containers_with_history(JOB)) == ["lately"]
