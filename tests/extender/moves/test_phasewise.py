"""The planner `phasewise`: moves planned from the demand of a class and the CPU time its pods have used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.member import Member
from extender.moves.board import MoveInputs, PlannedMove, Rate
from extender.moves.job import (
    ANNOTATION,
    MAX_RECORDS,
    Algorithm,
    MoveRecord,
    Outcome,
    read_job,
    read_records,
    records_json,
)
from extender.moves.phasewise import MoveOptions, PhasewisePlanner, cost_s
from extender.moves.store import read_profile_facts
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.reading import BadField
from recommender.contention.sharing import Stage, stages_of
from tests.extender.gangs.herds import NOON_S, node, pod
from tests.extender.moves.trainings import job_json, training

OPTIONS = MoveOptions(cost_s=10.0, margin=2.0, cool_down_s=0.0)
SAME_CLASS = {"template": {"metadata": {"labels": {"phasewise.dev/workload": "vae"}}, "spec": {}}}
ONE_CORE = [Stage(100.0, 1.0)]
"""A run of a hundred seconds on one core."""


def inputs_of(
    pods: list[Member], run: list[Stage] | None = None, used_s: float = 0.0, **annotations: dict[str, str]
) -> MoveInputs:
    """Inputs with jobs of one class, each of which has used one core for `used_s`."""
    names = [pod.owner.name for pod in pods if pod.owner]
    jobs = {name: read_job(job_json(name, annotations.get(name), **SAME_CLASS)) for name in names}
    rates = {pod.identity: Rate(1.0, NOON_S - used_s) for pod in pods}
    return MoveInputs(rates=rates, classes={ObjectKey("team", "vae"): ONE_CORE if run is None else run}, jobs=jobs)


def planned(pods: list[Member], inputs: MoveInputs, *cpus: str) -> list[tuple[str, str]]:
    moves = plan(pods, inputs, *cpus)
    return [(move.pod.key.name, move.node) for move in moves]


def plan(pods: list[Member], inputs: MoveInputs, *cpus: str) -> list[PlannedMove]:
    nodes = [node(f"n{number}", cpu=cpu) for number, cpu in enumerate(cpus or ("1", "1"))]
    return PhasewisePlanner(OPTIONS).plan(pods, nodes, inputs, NOON_S)


def pair(**fields: Any) -> list[Member]:
    return [training(name, "n0", cpu="500m", **fields) for name in ("a", "b")]


def test_one_of_two_jobs_that_share_a_core_moves_to_the_idle_node_and_the_plan_states_the_gain() -> None:
    """Together both end after 200 s; apart one ends after 100 s, the other after 100 s and the 10 s of the move."""
    (move,) = plan(pair(), inputs_of(pair()))
    assert (move.pod.key.name, move.node, move.algorithm) == ("a", "n1", Algorithm.SOONER)
    assert move.text == "jobs end 190 s earlier in sum, for 10 s"


def test_a_move_gains_only_what_is_left_of_a_run() -> None:
    """With 8 of 100 core seconds left they end after 16 s: apart one after 8, the moved one after 18."""
    assert planned(pair(), inputs_of(pair(), used_s=92.0)) == []
    assert plan(pair(), inputs_of(pair(), used_s=40.0))[0].done_core_s == 40.0


def test_jobs_that_do_not_compete_for_cores_stay_together() -> None:
    halves = [Stage(50.0, 0.5)]
    assert planned(pair(), inputs_of(pair(), halves)) == []


@pytest.mark.parametrize("make", [pod, training], ids=["no job", "a job of an unknown class"])
def test_pods_without_a_forecast_occupy_what_they_request(make: Callable[..., Member]) -> None:
    other = make("other", on="n1", cpu="500m")
    inputs = inputs_of([*pair(), other])
    inputs = replace(inputs, jobs={**inputs.jobs, "other": read_job(job_json("other"))})
    assert planned([*pair(), other], inputs, "1", "1") == []  # half a core there is no gain
    assert planned([*pair(), other], inputs, "1", "2") == [("a", "n1")]


def test_a_job_of_an_unknown_class_is_not_moved() -> None:
    assert planned(pair(), replace(inputs_of(pair()), classes={})) == []


@pytest.mark.parametrize(
    "stays",
    [
        {"annotations": {}},
        {"nodeSelector": {"pool": "elsewhere"}},
        {"labels": {"batch.kubernetes.io/job-name": "both"}},
        {"owner": None},
    ],
)
def test_a_pod_that_must_not_be_moved_stays_whatever_the_gain(stays: dict[str, Any]) -> None:
    assert planned(pair(**stays), inputs_of(pair(**stays))) == []


def test_a_node_that_is_full_by_requests_takes_no_pod_though_it_has_idle_cores() -> None:
    pods, web_only = [*pair(), pod("web", on="n1", cpu="500m")], {"pods": "1"}
    candidates = [node("n0", cpu="1"), node("n1", cpu="2", resources=web_only)]
    assert PhasewisePlanner(OPTIONS).plan(pods, candidates, inputs_of(pair()), NOON_S) == []


def past_move(downtime_s: float, done_core_s: float = 30.0) -> dict[str, str]:
    record = MoveRecord("", Algorithm.SOONER, "old", "old", "n0", NOON_S - 500.0, Outcome.BACK, done_core_s, downtime_s)
    return {"phasewise.dev/moves": records_json([record])}


def test_a_move_costs_what_earlier_moves_have_cost() -> None:
    """The gain is 190 s at a cost of 10 s, but 100 s at a cost of 100 s, where 200 s would be required."""
    inputs = inputs_of(pair())
    costly = replace(inputs, jobs={**inputs.jobs, "c": read_job(job_json("c", past_move(100.0)))})
    assert planned(pair(), costly) == []


def test_work_of_earlier_pods_counts_as_done_and_a_job_is_moved_twice_at_most() -> None:
    inputs = inputs_of(pair(), a=past_move(10.0), used_s=20.0)
    assert [(move.pod.key.name, move.done_core_s) for move in plan(pair(), inputs)] == [("a", 50.0)]
    (record,) = read_records(past_move(10.0))
    twice = {
        "phasewise.dev/moves": records_json([record, MoveRecord("", Algorithm.SOONER, "o", "p", "n1", NOON_S - 99.0)])
    }
    assert planned(pair(), inputs_of(pair(), a=twice, b=twice)) == []


def test_a_record_keeps_the_work_done_and_the_downtime_and_older_records_are_read() -> None:
    (record,) = read_records(past_move(12.34))
    assert (record.done_core_s, record.downtime_s) == (30.0, 12.3)
    old = '[{"algorithm": "rebalance", "pod": "p", "uid": "u", "node": "n", "since": "2026-11-01T00:00:00Z",'
    (read,) = read_records({"phasewise.dev/moves": f'{old} "outcome": "back"}}]'})
    assert math.isnan(read.downtime_s)


def test_impossible_values_of_a_record_and_excess_records_are_not_read() -> None:
    text = past_move(10.0)[ANNOTATION]
    for number in ('"soon"', "-1", "1.7e308"):
        (read,) = read_records({ANNOTATION: text.replace("30.0", number).replace("10.0", number)})
        assert (math.isnan(read.done_core_s), math.isnan(read.downtime_s)) == (True, True)
    for since in ("9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z"):
        (record,) = orjson.loads(text)
        with pytest.raises(BadField, match="is not a list of moves"):
            read_records({ANNOTATION: orjson.dumps([{**record, "since": since}]).decode()})
    assert len(read_records({ANNOTATION: f"[{','.join([text[1:-1]] * 500)}]"})) == MAX_RECORDS


def test_one_namespace_does_not_determine_the_cost_of_a_move() -> None:
    """However many of its Jobs claim a downtime of zero, or of an hour."""
    job = read_job(job_json("a", past_move(100.0)))
    (record,) = job.records
    others = [replace(job, key=ObjectKey(f"other-{number}", "a")) for number in range(2)]
    for claimed_s in (0.0, 3600.0):
        claims = [replace(job, records=[replace(record, downtime_s=claimed_s)] * MAX_RECORDS)] * 50
        assert cost_s([*others, *claims], 60.0) == 100.0
    assert cost_s([replace(job, records=[replace(record, downtime_s=0.0)])], 60.0) == 1.0
    assert cost_s([], 60.0) == 60.0


def test_an_idle_job_that_has_done_more_than_any_run_does_not_stall_planning() -> None:
    inputs = inputs_of(pair(), a=past_move(10.0, done_core_s=1e12))
    idle = replace(inputs, rates={pod.identity: Rate(0.0, NOON_S) for pod in pair()})
    assert planned(pair(), idle) == []


def test_the_demand_of_a_class_and_the_rates_of_its_pods_are_read_from_profiles() -> None:
    demand = {"stepSeconds": 10, "cpuCores": [0.0, 1.0, 3.0]}
    containers = [
        {"name": "main", "demand": demand},
        {"name": "side", "demand": {"stepSeconds": 10, "cpuCores": [0.1]}},
    ]
    pods = [
        {"uid": "u", "meanCpuCores": 0.5, "startedAt": "2026-11-23T12:00:00Z"},
        {"uid": "u", "category": "Watching"},
    ]
    raw = {"metadata": {"name": "class.vae", "namespace": "team"}, "status": {"containers": containers, "pods": pods}}
    facts = read_profile_facts({**raw, "spec": {"class": True}})
    assert facts.run == [Stage(0.1, 0.01), Stage(10.0, 1.0), Stage(30.0, 3.0)]
    assert {uid: rate.cpu_cores for uid, rate in facts.rates.items()} == {"u": 0.5}
    demand["usedCoreSeconds"] = 20.05
    assert [stage.core_s for stage in read_profile_facts({**raw, "spec": {"class": True}}).run] == pytest.approx(
        [0.05, 5, 15]
    )
    assert read_profile_facts(raw).run == ()
    broken = [{"name": "main", "demand": {"stepSeconds": 10, "cpuCores": cores}} for cores in ([1.0, "x"], "curve", [])]
    assert read_profile_facts({**raw, "spec": {"class": True}, "status": {"containers": broken}}).run == ()


@given(st.lists(st.floats(0.0, 8.0), min_size=1, max_size=240), st.floats(1.0, 900.0))
def test_at_most_twelve_stages_hold_all_the_work_of_a_demand_curve(levels: list[float], step_s: float) -> None:
    stages = stages_of(step_s, levels)
    assert len(stages) <= 12
    assert sum(stage.core_s for stage in stages) == pytest.approx(sum(max(x, 0.01) for x in levels) * step_s)
