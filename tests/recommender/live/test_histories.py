"""Histories between rounds and checkpoints: which are written, and what of a checkpoint is still used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey
from recommender.live.outside.stores import CheckpointStore
from recommender.live.steady_clock import STEADY_S
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from recommender.records import Block
from tests.fakes.clock import Clock
from tests.fakes.records import a_vpa

NOW_S = 1_000_000_000.0
JOB, OTHER = ObjectKey("ns", "job"), ObjectKey("ns", "other")


@pytest.fixture
def histories() -> CheckpointStore:
    """Without an API server: there is nothing to write to it."""
    return CheckpointStore(None, Scope(), lambda: NOW_S)  # type: ignore[arg-type]


@pytest.mark.parametrize(("status", "written"), [("True", [OTHER]), ("False", [JOB, OTHER])])
def test_no_checkpoint_is_written_while_the_history_of_a_vpa_is_being_fetched(
    histories: CheckpointStore, status: str, written: list[ObjectKey]
) -> None:
    fetching = {"status": {"conditions": [{"type": "FetchingHistory", "status": status}]}}
    vpas = {JOB: read_vpa(a_vpa() | fetching), OTHER: read_vpa(a_vpa("other"))}
    built: list[ObjectKey] = []

    def builder_for(key: ObjectKey) -> Callable[[], Mapping[str, Mapping[str, Any]]]:
        def build() -> Mapping[str, Mapping[str, Any]]:
            built.append(key)
            return {}

        return build

    histories.write({key: builder_for(key) for key in vpas}, vpas, within_s=60.0, every_s=0.0, at_most=10)
    assert sorted(built) == written


class Server:
    """An API server with one checkpoint, which accepts others and counts how often all were listed."""

    def __init__(self) -> None:
        self.lists = 0
        spec = {"vpaObjectName": JOB.name, "containerName": "main"}
        self.checkpoints = [{"metadata": {"namespace": "ns", "name": "job-main", "uid": "u"}, "spec": spec}]

    def list_pages(self, path: str) -> list[Mapping[str, Any]]:
        self.lists += 1
        return [{"items": self.checkpoints}]

    def create(self, path: str, body: Mapping[str, Any], timeout_s: float) -> None: ...

    def delete(self, path: str, uid: str) -> None: ...


def test_checkpoints_are_listed_for_a_new_vpa_only_if_it_may_have_some() -> None:
    server = Server()
    histories = CheckpointStore(server, Scope(), lambda: NOW_S)  # type: ignore[arg-type]

    def lists(vpa: ObjectKey, created_s: float) -> int:
        before = server.lists
        histories.load({vpa: created_s}, ())
        return server.lists - before

    assert lists(OTHER, NOW_S + 9.0) == 1  # nothing has been listed yet
    histories.collect({JOB, OTHER}, {JOB, OTHER})
    assert lists(OTHER, NOW_S + 9.0) == 0
    assert lists(OTHER, NOW_S - 9.0) == 1  # it may have been another recommender's
    assert lists(JOB, NOW_S + 9.0) == 1
    written = {OTHER: lambda: {"main": {}}}
    assert histories.write(written, {OTHER: read_vpa(a_vpa("other"))}, 60.0, 0.0, 10).written == 1
    assert lists(OTHER, NOW_S + 99.0) == 1  # what we wrote before the VPA was recreated
    histories.collect({JOB, OTHER}, {JOB, OTHER})
    histories.forget_all()
    assert lists(ObjectKey("ns", "new"), NOW_S + 99.0) == 1  # another may have written meanwhile


def test_a_checkpoint_is_deleted_for_its_age_only_once_the_clock_has_run_evenly_for_an_hour() -> None:
    monotonic = Clock()
    server = Server()
    histories = CheckpointStore(server, Scope(), lambda: NOW_S + monotonic(), monotonic)  # type: ignore[arg-type]
    assert histories.collect({JOB}, {JOB}) == []
    monotonic.sleep(STEADY_S)
    assert histories.collect({JOB}, {JOB}) == ["ns/job-main"]


def test_a_container_without_samples_for_eight_days_is_forgotten(histories: CheckpointStore) -> None:
    sessions = {name: HistogramSession() for name in ("lately", "long-ago")}
    for session, age_s in zip(sessions.values(), (CONTAINER_UNUSED_S - 60.0, CONTAINER_UNUSED_S + 60.0), strict=True):
        session.advance(Block(np.array([[0.5, 2.0**30]]), np.array([int(NOW_S - age_s)]), np.empty(0, np.int64)))
    histories.adopt({CheckpointKey(JOB, name): session for name, session in sessions.items()})
    assert list(histories.containers(JOB)) == ["lately"]
