"""Planned moves are reported as events, once each; with limits they are also carried out, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from extender.gangs.ledger import Ledger
from extender.moves.board import Planner
from extender.moves.gate import MoveLimits
from extender.moves.job import Algorithm, read_job
from extender.moves.mover import Mover
from extender.moves.phasewise import MoveOptions, PhasewisePlanner
from extender.moves.specon import SpeConPlanner
from extender.moves.store import read_profile_facts
from recommender.base.units import format_time
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Invalid, ServerFailed
from tests.extender.gangs.herds import NOON_S, nodes
from tests.extender.moves.fakes import FakeApi, FakeReflector
from tests.extender.moves.trainings import ADMITTED, CC, PC, WC, job_json, thesis, training


def mover_of(
    api: FakeApi,
    pods: Mapping[Any, Any],
    limits: MoveLimits | None = None,
    planner: Planner | None = None,
) -> Mover:
    """A mover that plans in every run."""
    mover = Mover(
        cast(Api, api),
        lambda: True,
        lambda: (pods, nodes(4)),
        Ledger(cast(Api, api), "kube-system", clock=lambda: NOON_S),
        planner or SpeConPlanner(),
        limits,
        period_s=0.0,
        clock=lambda: NOON_S,
    )
    names = {PC: "Progressing", WC: "Watching", CC: "Converged"}
    status = {"pods": [{"uid": pod.uid, "category": names[category]} for pod, category in pods.items()]}
    mover._store._profiles = cast(
        Any, FakeReflector(read_profile_facts, {"metadata": {"name": "p", "namespace": "team"}, "status": status})
    )
    mover._store._jobs = cast(Any, FakeReflector(read_job, *(job_json(pod.owner.name) for pod in pods if pod.owner)))
    api.jobs = cast(Any, mover._store._jobs)
    return mover


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def test_a_plan_is_reported_once_by_an_event_and_on_the_profile_of_the_pod(api: FakeApi) -> None:
    mover = mover_of(api, thesis())
    mover.reconcile()
    mover.reconcile()
    (event,) = api.events
    assert (event["reason"], event["involvedObject"]["name"]) == ("MovePlanned", "job-1")
    assert event["message"].startswith("would be moved from n3 to n1: converged, beside jobs that learn")
    assert (mover.planned, mover.refused) == (1, 0)
    assert [path for path, _ in api.patched] == ["phaseprofiles/p"]
    assert api.patched[0][1]["metadata"]["annotations"]["phasewise.dev/move"] == f"job-1 {event['message']}"
    assert api.evicted == []


def test_a_refusal_is_reported_too_and_counted_separately(api: FakeApi) -> None:
    mover = mover_of(api, thesis(owner=None))
    mover.reconcile()
    assert [(event["reason"], event["message"]) for event in api.events] == [
        ("MoveRefused", "is not moved from n3: it has no owner that would recreate it")
    ]
    assert (mover.planned, mover.refused) == (0, 1)


def test_an_event_that_could_not_be_written_is_written_with_the_next_plan(api: FakeApi) -> None:
    api.fails["events"] = [ServerFailed("away")]
    mover = mover_of(api, thesis())
    mover.reconcile()
    assert api.events == []
    mover.reconcile()
    assert len(api.events) == 1


def test_nothing_is_planned_before_the_cluster_is_known(api: FakeApi) -> None:
    mover = mover_of(api, thesis())
    mover._cluster = lambda: None
    mover.reconcile()
    assert (api.events, mover.planned) == ([], 0)


def test_moves_are_planned_for_the_pods_that_are_left_once_a_large_gang_is_admitted() -> None:
    """Meanwhile the controller holds the reservations, and all pods have ended."""
    mover, pods = mover_of(FakeApi(), thesis()), [thesis()]
    mover._cluster = lambda: (pods[-1], nodes(4))

    @contextmanager
    def lock() -> Iterator[None]:
        pods.append({})
        yield

    mover._ledger.lock = cast(Any, lock())
    mover.reconcile()
    assert mover.planned == 0


def test_only_the_leader_plans_and_only_while_its_watches_are_synced_and_in_contact(api: FakeApi) -> None:
    mover = mover_of(api, thesis())
    for synced, failing, leads, planned in (
        (True, 0, False, 0),
        (True, 1, True, 0),
        (False, 0, True, 0),
        (True, 0, True, 1),
        (True, 0, False, 0),  # another leads now, and reports what it plans
    ):
        mover.watches = cast(Any, SimpleNamespace(synced=synced, failing=failing))
        mover._leads = lambda leads=leads: leads
        mover._reconcile_if_leading()
        assert mover.planned == planned


def test_with_limits_the_planned_move_is_made_and_reported(api: FakeApi) -> None:
    mover = mover_of(api, thesis(annotations=ADMITTED), MoveLimits())
    mover.reconcile()
    assert api.evicted == ["job-1"]
    assert [event["reason"] for event in api.events] == ["MoveStarted"]
    assert mover.counts["MoveStarted"] == 1
    mover.reconcile()
    assert api.evicted == ["job-1"]


@pytest.mark.parametrize(("most", "moved"), [(1, "a"), (2, "ab")])
def test_a_job_being_moved_counts_on_its_new_node_for_the_next_move_if_the_limit_allows_one(
    most: int, moved: str, api: FakeApi
) -> None:
    """S is 4 on n3, 0 on n1 and 1 on n2: the first converged job goes to n1. Then n1 and n2 are equal, and n2, of which
    less is requested, takes the second; on n0 many learn."""
    first, second = (training(name, "n3", annotations=ADMITTED) for name in ("a", "b"))
    others = {training(f"l-{n}", "n0"): PC for n in range(3)} | {training("c", "n2", cpu="500m", annotations={}): CC}
    limits = MoveLimits(max_active_in_namespace=most)
    mover = mover_of(api, {first: CC, second: CC, training("learns", "n3"): PC, **others}, limits)
    mover.reconcile()
    mover.reconcile()
    assert api.reserved == dict([("uid-a", "n1"), ("uid-b", "n2")][:most])
    mover.reconcile()
    assert api.evicted == [*moved]


def test_a_move_that_the_gate_refuses_is_reported_with_the_reason_and_not_started(api: FakeApi) -> None:
    mover = mover_of(api, thesis(), MoveLimits())
    mover.reconcile()
    assert (api.evicted, api.reserved) == ([], {})
    (event,) = api.events
    assert event["message"].startswith("is not moved from n3: it did not get its node by a reservation at the gate")


def test_a_job_that_cannot_be_annotated_is_refused_and_the_next_one_is_moved(api: FakeApi) -> None:
    api.fails["jobs"] = [Invalid("annotations: Too long")]
    first, second = (training(name, "n3", annotations=ADMITTED) for name in ("a", "b"))
    others = {training(f"l-{n}", "n0"): PC for n in range(3)}
    mover = mover_of(api, {first: CC, second: CC, training("learns", "n3"): PC, **others}, MoveLimits())
    for _ in range(3):
        mover.reconcile()
    assert api.evicted == ["b"]
    refused = [event["message"] for event in api.events if event["reason"] == "MoveRefused"]
    assert refused == ["is not moved from n3: its Job could not be annotated: annotations: Too long"]


def test_a_move_of_the_phasewise_planner_is_made_and_the_work_done_recorded_on_the_job() -> None:
    """Two jobs whose runs take 600 core seconds share a node of ten cores; each has used nine."""
    api, pods = FakeApi(), {training(name, "n3", cpu="4", annotations=ADMITTED): PC for name in ("a", "b")}
    mover = mover_of(api, pods, MoveLimits(), PhasewisePlanner(MoveOptions(cost_s=5.0)))
    profiles = mover._store._profiles
    reports = [
        {"uid": pod.uid, "meanCpuCores": 3.0, "startedAt": format_time(NOON_S - 3.0), "category": "Progressing"}
        for pod in pods
    ]
    profiles.objects = {  # type: ignore[attr-defined]
        "p": {"metadata": {"name": "p", "namespace": "team"}, "status": {"pods": reports}},
        **{
            f"class.{name}": {
                "metadata": {"name": f"class.{name}", "namespace": "team"},
                "spec": {"class": True},
                "status": {"containers": [{"name": "main", "demand": {"stepSeconds": 15, "cpuCores": [8.0] * 5}}]},
            }
            for name in {job.workload for job in mover._store.jobs().values()}
        },
    }
    mover.reconcile()
    assert len(api.evicted) == 1
    (record,) = [each for job in mover._store.jobs().values() for each in job.records]
    assert (record.algorithm, record.done_core_s, record.node) == (Algorithm.SOONER, 9.0, api.reserved[record.uid])
