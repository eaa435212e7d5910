"""Carrying out what is planned: what fails is tried again, said once, and stops nothing else."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from recommender.cluster.errors import ApiError, Conflict, Invalid, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.workloads.namespaces import Namespace
from recommender.cluster.workloads.ownership import Ref, Workload
from recommender.live.auto.controller import INITIAL_BACKOFF_S, MAX_BACKOFF_S, RESYNC_INTERVAL_S, AutoVpaController
from recommender.live.auto.settings import MODE
from tests.recommender.live.auto_world import TEAM, Server, World, a


class Stage:
    """Stands where `AutoView` stands, over a world; and the keeper that looks at it."""

    def __init__(self, server: Server | None = None) -> None:
        self.world = World(server=server or Server())
        self.now_s, self.leads, self.news = 0.0, True, {TEAM}
        self.late: dict[ObjectKey, Vpa] | None = None
        self.registry = CollectorRegistry()
        self.keeper = AutoVpaController(
            self.world.server,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            "phasewise",
            self.registry,
            lambda: self.leads,
            lambda: self.now_s,
        )

    def changed(self) -> set[str]:
        found, self.news = self.news, set()
        return found

    def all_namespaces(self) -> set[str]:
        return {TEAM}

    def namespace(self, name: str) -> Namespace | None:
        return self.world.namespace if name == TEAM else None

    def workloads(self, _: str) -> Mapping[Ref, Workload]:
        return self.world.workloads

    def vpas(self, _: str) -> Mapping[ObjectKey, Vpa]:
        return self.world.vpas if self.late is None else self.late

    def is_scalable(self, api_version: str, kind: str) -> bool:
        return self.world.is_scalable(api_version, kind)

    def has_in_place(self, namespace: str) -> bool:
        return self.world.has_in_place(namespace)

    def live_pods(self, workload: Workload) -> Collection[Resizability]:
        return self.world.live_pods(workload)

    def look(self, at_s: float, *, news: bool = False) -> list[str]:
        """Look once at this time; returns the VPAs that are there then."""
        self.now_s = at_s
        self.news = {TEAM} if news else set()
        self.keeper.reconcile()
        return sorted(self.world.server.vpas)

    def counted(self, action: str) -> float:
        return self.registry.get_sample_value("phasewise_auto_vpas_total", {"action": action}) or 0.0


class Refusing(Server):
    """Refuses what has this in its name."""

    def __init__(self, part: str, error: ApiError) -> None:
        super().__init__()
        self.part, self.error, self.refused = part, error, 0

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.part and self.part in body["metadata"]["name"]:
            self.refused += 1
            raise self.error
        return super().create(path, body)


def test_what_was_told_is_looked_at_and_what_is_planned_is_done_and_counted() -> None:
    stage = Stage()
    stage.world.add(a("Job", "a"), a("Job", "b"))
    assert stage.look(0.0) == ["a.job", "b.job"]
    stage.world.add(a("Job", "a", annotations={MODE: "Off"}), a("Job", "b", labels={"phasewise.dev/auto": "false"}))
    assert stage.look(1.0) == ["a.job", "b.job"], "nothing was told, and it is not time to look at everything"
    assert stage.look(2.0, news=True) == ["a.job"]
    assert [stage.counted(action) for action in ("made", "changed", "removed", "failed")] == [2, 1, 1, 0]


def test_everything_is_looked_at_now_and_then_though_nothing_is_told() -> None:
    stage = Stage()
    stage.look(0.0)
    stage.world.add(a("Job", "a"))
    assert stage.look(RESYNC_INTERVAL_S - 1) == []
    assert stage.look(RESYNC_INTERVAL_S) == ["a.job"]


def test_one_that_is_refused_stops_no_other_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Refusing("bad", Invalid("POST: the webhook says no", status=422))
    stage = Stage(server)
    stage.world.add(a("Job", "bad"), a("Job", "good"))
    with caplog.at_level(logging.INFO):
        for at_s in (0.0, 1.0, 3.0, 7.0):
            assert stage.look(at_s) == ["good.job"]
        server.part = ""
        assert stage.look(15.0) == ["bad.job", "good.job"]
    told = [record.message for record in caplog.records]
    assert told.count("VPA team/bad.job: could not be made: POST: the webhook says no") == 1
    assert "VPA team/bad.job: resolved" in told
    assert stage.counted("failed") == 4
    assert stage.registry.get_sample_value("phasewise_auto_problems") == 0.0


def test_what_fails_is_tried_again_after_a_while_that_grows_whatever_is_told_meanwhile() -> None:
    server = Refusing("bad", Invalid("no", status=422))
    stage = Stage(server)
    stage.world.add(a("Job", "bad"))
    tries = []
    for at_s in range(240):
        before = server.refused
        stage.look(float(at_s), news=True)
        tries += [at_s] * (server.refused - before)
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert waits[:6] == [INITIAL_BACKOFF_S, 2, 4, 8, 16, 32]
    assert set(waits[6:]) == {MAX_BACKOFF_S}


def test_a_server_that_does_not_answer_is_not_asked_for_each_of_a_thousand() -> None:
    server = Refusing("w", Unreachable("no connection"))
    stage = Stage(server)
    stage.world.add(*(a("Job", f"w{number}") for number in range(20)))
    assert stage.look(0.0) == []
    assert server.refused == 1


def test_a_view_that_is_late_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.world.add(a("Job", "a"))
    stage.look(0.0)
    stage.late = {}
    with caplog.at_level(logging.INFO):
        stage.look(0.1, news=True)
    assert caplog.records == []
    assert stage.counted("failed") == 0
    stage.late = None
    stage.world.add(a("Job", "b"))
    assert stage.look(0.2, news=True) == ["a.job", "b.job"], "new ones need not wait for it"


def test_nothing_is_written_once_another_leads() -> None:
    class Losing(Server):
        def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            stage.leads = False
            return super().create(path, body)

    stage = Stage(Losing())
    stage.world.add(a("Job", "a"), a("Job", "b"))
    assert len(stage.look(0.0)) == 1


def test_a_conflict_with_a_persons_write_is_settled_by_what_they_wrote() -> None:
    class Overtaken(Server):
        def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            raise Conflict("somebody wrote", status=409)

    stage = Stage(Overtaken())
    stage.world.add(a("Job", "a"))
    stage.look(0.0)
    stage.world.add(a("Job", "a", annotations={MODE: "Initial"}))
    stage.look(1.0, news=True)
    stage.world.edit("a.job", updatePolicy={"updateMode": "Off"})
    stage.look(2.0, news=True)
    assert stage.world.server.vpas["a.job"]["spec"]["updatePolicy"] == {"updateMode": "Off"}
