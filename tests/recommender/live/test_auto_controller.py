"""The controller of auto-created VPAs: a failed write is retried, logged once, and stops no other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from recommender.cluster.errors import ApiError, Conflict, Forbidden, Invalid, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.metrics_api import UsageReport
from recommender.live.auto.controller import INITIAL_BACKOFF_S, MAX_BACKOFF_S, RESYNC_INTERVAL_S, AutoVpaController
from recommender.live.auto.settings import MODE
from recommender.live.auto.view import AutoView, Namespace
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.view.scope import Scope
from tests.fakes.records import a_vpa
from tests.recommender.live.auto_world import TEAM, Server, World, a_workload


class Setup:
    """A controller, and its `AutoView` replaced by a `World`."""

    def __init__(self, server: Server | None = None) -> None:
        self.world = world = World(server=server or Server())
        self.is_scalable, self.has_in_place, self.live_pods = world.is_scalable, world.has_in_place, world.live_pods
        self.scalers, self.workloads = world.scalers, world.workloads
        self.now_s, self.leads, self.changed_namespaces = 0.0, True, {TEAM}
        self.outdated_vpas: dict[ObjectKey, Vpa] | None = None
        self.registry = CollectorRegistry()
        self.controller = AutoVpaController(
            self.world.server,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            "phasewise",
            self.registry,
            lambda: self.leads,
            lambda: self.now_s,
        )

    def changed(self) -> set[str]:
        found, self.changed_namespaces = self.changed_namespaces, set()
        return found

    def all_namespaces(self) -> set[str]:
        return {TEAM}

    def namespace(self, name: str) -> Namespace | None:
        return self.world.namespace if name == TEAM else None

    def vpas(self, _: str) -> Mapping[ObjectKey, Vpa]:
        return self.world.vpas() if self.outdated_vpas is None else self.outdated_vpas

    def reconcile_at(self, at_s: float, *, changed: bool = False) -> list[str]:
        """Reconcile at this time; returns the VPAs that exist afterwards."""
        self.now_s = at_s
        self.changed_namespaces = {TEAM} if changed else set()
        self.controller.reconcile()
        return sorted(self.world.server.vpas)

    def count_of(self, action: str) -> float:
        return self.registry.get_sample_value("phasewise_auto_vpas_total", {"action": action}) or 0.0


class RefusingServer(Server):
    """Refuses to create a VPA with this in its name."""

    def __init__(self, refused_part: str, error: ApiError) -> None:
        super().__init__()
        self.refused_part, self.error, self.refusals = refused_part, error, 0

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.refused_part and self.refused_part in body["metadata"]["name"]:
            self.refusals += 1
            raise self.error
        return super().create(path, body)


def test_changed_namespaces_are_reconciled_and_writes_are_counted() -> None:
    setup = Setup()
    setup.world.add(a_workload("Job", "a"), a_workload("Job", "b"))
    assert setup.reconcile_at(0.0) == ["a.job", "b.job"]
    setup.world.add(
        a_workload("Job", "a", annotations={MODE: "Off"}),
        a_workload("Job", "b", labels={"phasewise.dev/auto": "false"}),
    )
    assert setup.reconcile_at(1.0) == ["a.job", "b.job"], "no change was seen, and no resync is due"
    assert setup.reconcile_at(2.0, changed=True) == ["a.job"]
    assert [setup.count_of(action) for action in ("made", "changed", "removed", "failed")] == [2, 1, 1, 0]


def test_all_namespaces_are_reconciled_at_the_resync_interval_without_a_change() -> None:
    setup = Setup()
    setup.reconcile_at(0.0)
    setup.world.add(a_workload("Job", "a"))
    assert setup.reconcile_at(RESYNC_INTERVAL_S - 1) == []
    assert setup.reconcile_at(RESYNC_INTERVAL_S) == ["a.job"]


def test_a_refused_vpa_does_not_stop_others_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = RefusingServer("bad", Invalid("POST: the webhook says no", status=422))
    setup = Setup(server)
    setup.world.add(a_workload("Job", "bad"), a_workload("Job", "good"))
    with caplog.at_level(logging.INFO):
        for at_s in (0.0, 1.0, 3.0, 7.0):
            assert setup.reconcile_at(at_s) == ["good.job"]
        server.refused_part = ""
        assert setup.reconcile_at(15.0) == ["bad.job", "good.job"]
    messages = [record.message for record in caplog.records]
    assert messages.count("VPA team/bad.job: could not be made: POST: the webhook says no") == 1
    assert "VPA team/bad.job: resolved" in messages
    assert setup.count_of("failed") == 4
    assert setup.registry.get_sample_value("phasewise_auto_problems") == 0.0


def test_a_failure_is_retried_with_growing_backoff_whatever_changes_are_seen_meanwhile() -> None:
    server = RefusingServer("bad", Invalid("no", status=422))
    setup = Setup(server)
    setup.world.add(a_workload("Job", "bad"))
    attempts = []
    for at_s in range(240):
        before = server.refusals
        setup.reconcile_at(float(at_s), changed=True)
        attempts += [at_s] * (server.refusals - before)
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert waits[:6] == [INITIAL_BACKOFF_S, 2, 4, 8, 16, 32]
    assert set(waits[6:]) == {MAX_BACKOFF_S}


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no connection"),
        Forbidden("POST: w0.job is forbidden: exceeded quota: vpas", status=403),
    ],
)
def test_an_unreachable_server_or_a_used_up_quota_is_met_once_and_not_for_each_vpa(error: ApiError) -> None:
    server = RefusingServer("w", error)
    setup = Setup(server)
    setup.world.add(*(a_workload("Job", f"w{number}") for number in range(20)))
    assert setup.reconcile_at(0.0) == []
    assert server.refusals == 1
    server.refused_part = ""
    assert len(setup.reconcile_at(INITIAL_BACKOFF_S)) == 20


def test_an_outdated_view_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.world.add(a_workload("Job", "a"))
    setup.reconcile_at(0.0)
    setup.outdated_vpas = {}
    with caplog.at_level(logging.INFO):
        setup.reconcile_at(0.1, changed=True)
    assert caplog.records == []
    assert setup.count_of("failed") == 0
    setup.outdated_vpas = None
    setup.world.add(a_workload("Job", "b"))
    assert setup.reconcile_at(0.2, changed=True) == ["a.job", "b.job"], "new VPAs need not wait for the view"


def test_nothing_is_written_after_leadership_is_lost() -> None:
    class Losing(Server):
        def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            setup.leads = False
            return super().create(path, body)

    setup = Setup(Losing())
    setup.world.add(a_workload("Job", "a"), a_workload("Job", "b"))
    assert len(setup.reconcile_at(0.0)) == 1


def test_after_a_conflict_with_a_users_write_the_users_write_stays() -> None:
    class Conflicting(Server):
        def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
            raise Conflict("there was another write", status=409)

    setup = Setup(Conflicting())
    setup.world.add(a_workload("Job", "a"))
    setup.reconcile_at(0.0)
    setup.world.add(a_workload("Job", "a", annotations={MODE: "Initial"}))
    setup.reconcile_at(1.0, changed=True)
    setup.world.edit("a.job", updatePolicy={"updateMode": "Off"})
    setup.reconcile_at(2.0, changed=True)
    assert setup.world.server.vpas["a.job"]["spec"]["updatePolicy"] == {"updateMode": "Off"}


def test_an_unexpected_failure_in_one_namespace_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Setup):
        def namespace(self, name: str) -> Namespace | None:
            if name == "earlier":
                raise ValueError("a bug")
            return super().namespace(name)

        def all_namespaces(self) -> set[str]:
            return {"earlier", TEAM}

    setup = Broken()
    setup.world.add(a_workload("Job", "a"))
    for at_s in range(8):
        assert setup.reconcile_at(float(at_s)) == ["a.job"]
    failures = [record for record in caplog.records if "namespace earlier" in record.message]
    assert len(failures) == 4, "it is tried again after 1, 2 and 4 s"
    assert failures[0].exc_info


def test_a_vpa_is_changed_from_its_present_resource_version_even_if_nothing_else_of_it_has_changed() -> None:
    view = ClusterView(None, Scope(), lambda _: UsageReport([]))  # type: ignore[arg-type]
    auto, key = AutoView(None, view, Scope()), ObjectKey("ns", "job")  # type: ignore[arg-type]
    for version in ("1", "2"):
        raw = a_vpa()
        raw["metadata"]["resourceVersion"] = version
        view._vpas._put(raw)
        assert auto.vpas("ns")[key].resource_version == version
    assert auto.vpas("other") == {}
